"""The user's line that an error names."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.ir.location import Loc, caller

KERNEL = """
@tp.kernel()
def kernel(ctx, out):
    @ctx.role("r", warps=1)
    def r():
        ctx.smem((1, 32), tp.float32)

kernel.bind(out)
"""


def test_a_kernel_without_a_file_has_lines_of_its_own() -> None:
    """As `python -c` and `exec` run it: no line of tilepipe is given in their place."""
    with pytest.raises(tp.TraceError, match="allocated in set-up code") as caught:
        exec(KERNEL, {"tp": tp, "out": np.zeros(32, np.float32)})
    assert caught.value.loc == Loc("<string>", 6, "r")
    assert str(caught.value).endswith("at <string>:6")


@dataclass
class Made:
    """Which has a generated `__init__`."""

    loc: Loc = field(default_factory=caller)


def test_a_method_that_dataclasses_generate_is_no_line_of_the_user() -> None:
    here = sys._getframe().f_lineno
    assert Made().loc == Loc(__file__, here + 1, sys._getframe().f_code.co_name)


def test_a_line_inside_an_inlined_function_is_shown_with_the_call() -> None:
    asm = Loc("/cute/copy.hpp", 7)
    assert Loc("/k.cu", 41, inside=asm).short == "k.cu:41 > copy.hpp:7"
    assert str(Loc("/k.cu", 41, inside=asm)) == "/k.cu:41 (inlined: copy.hpp:7)"
    deep = Loc("/a.h", 1, inside=Loc("/b.h", 2, inside=Loc("/c.h", 3, inside=asm)))
    assert deep.short == "a.h:1 > ... > c.h:3 > copy.hpp:7"
