"""Sums of rows up to each column: what is refused, and what is printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text
from tilepipe import cuda

F = """
f = ctx.fragment(shape=(64, 32))
f.fill(0)
w = ctx.fragment(shape=(2, 1024), layout="rows:64")
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f.sum().cumsum()", ("cumsum() adds along columns", "64×1 has one")),
        ("w.cumsum()", ('layout "rows:64"', "held by 2 warps", 'at most "rows:32"')),
        ("(f > 0).cumsum()", ("not a condition", "f.to('int32')")),
        ("f.to('int8').cumsum()", ("not int8", "f.to('int32')")),
        (
            "with ctx.when(ctx.lane < 4):\n    f.cumsum()",
            ("cumsum() is executed by all threads", "the branch block"),
        ),
        (
            "row = ctx.fragment(shape=(1, 32))\nrow.fill(0)\n"
            "with ctx.per_warp():\n    row.cumsum()",
            ("one value a column is the same in all warps", "out of per_warp"),
        ),
    ],
)
def test_a_misuse_is_refused(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(F + text, warps="warpgroups=1")


def test_the_result_has_the_shape_dtype_and_layout_of_the_value() -> None:
    found: list[Any] = []
    role_from_text(
        "f = ctx.fragment(shape=(128, 16), dtype='float16', layout='tmem')\n"
        "f.fill(1)\nfound.append(f.cumsum())",
        found=found,
        warps="warpgroups=1",
    )
    (sums,) = found
    assert (sums.shape, sums.dtype, sums.layout) == ((128, 16), tp.float16, "tmem")


@tp.kernel(grid=1)
def scanned(ctx: tp.Context, x: Any) -> None:
    @ctx.role("scan", warpgroups=1)
    def scan() -> None:
        ctx.store_global(x, (0, 0), ctx.load_global(x, (0, 0), (64, 32)).cumsum())


def test_lanes_that_shuffle_stay_together() -> None:
    """A condition of the lane beside the shuffles would let the compiler give lanes copies of them
    in two branches.
    """
    program = scanned.bind(np.zeros((64, 32), np.float32))
    ptx = cuda.compile(program.kernel, "sm_90a", "ptx").data.decode()
    # of two rows of a thread: of four rounds each, two steps, what is before, and the round's sum
    assert ptx.count("shfl.sync.up.b32") == 2 * 4 * 3
    assert ptx.count("shfl.sync.idx.b32") == 2 * 4 + 1  # one tells the warp's number
