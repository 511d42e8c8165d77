"""Kernels for the tests of the language: from a function, or from text, as a notebook cell would
give it.
"""

from __future__ import annotations

import itertools
import linecache
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.ir import ops
from tilepipe.ir.program import walk

Body = Callable[[tp.Context, Any], object]
_cells = itertools.count(1)


def in_role(
    body: Body,
    out: Any = None,
    *,
    warps: int = 1,
    warpgroups: int = 0,
    cluster: int = 1,
    grid: int = 1,
) -> tp.Program:
    """A kernel with one role, whose body is `body(ctx, out)`; `out`: int32[64] unless given."""

    @tp.kernel(grid=grid, cluster=cluster)
    def k(ctx: tp.Context, out: Any) -> None:
        size = {"warpgroups": warpgroups} if warpgroups else {"warps": warps}

        @ctx.role("one", **size)
        def one() -> None:
            body(ctx, out)

    return k.bind(np.zeros(64, np.int32) if out is None else out)


def evaluated(body: Callable[[tp.Context], Any], dtype: Any = np.int32) -> Any:
    """What the scalar that `body(ctx)` gives is when the kernel runs."""
    out = np.zeros(1, dtype)

    def store(ctx: tp.Context, out: Any) -> None:
        result = body(ctx)
        with ctx.elect_one():
            ctx.store(out[0], result)

    in_role(store, out).run()
    return out[0].item()


def from_text(text: str, header: str = "def k(ctx, out):", **names: Any) -> tp.KernelFunction:
    """The kernel `header` + `text`, with its source in linecache but in no file."""
    source = f"{header}\n{textwrap.indent(textwrap.dedent(text).strip(), '    ')}\n"
    filename = f"<cell {next(_cells)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    scope: dict[str, Any] = {
        "__name__": "cell",
        "tp": tp,
        "contextlib": __import__("contextlib"),
        **names,
    }
    exec(compile(source, filename, "exec"), scope)
    return tp.kernel()(scope["k"])


def role_from_text(
    text: str, warps: str = "warps=1", before: str = "pass", **names: Any
) -> tp.Program:
    """A kernel with one role of this text."""
    body = (
        f"{textwrap.dedent(before).strip()}\n"
        f"@ctx.role('one', {warps})\n"
        "def one():\n"
        f"{textwrap.indent(textwrap.dedent(text).strip(), '    ')}"
    )
    return from_text(body, **names).bind(np.zeros(64, np.int32))


@contextmanager
def refused(error: type[tp.TilepipeError], *words: str) -> Iterator[None]:
    """Expects `error` (no subclass of it) with all of `words` in its message."""
    with pytest.raises(error) as caught:
        yield
    assert caught.type is error, caught.value
    missing = [w for w in words if w not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def kinds(program: tp.Program, role: int = 0) -> list[str]:
    """The names of the ops of a role, in program order."""
    return [type(op).__name__ for op in walk(program.kernel.roles[role].body)]


def of_kind(program: tp.Program, kind: type[ops.Op], role: int = 0) -> list[Any]:
    """The ops of one kind of a role."""
    return [op for op in walk(program.kernel.roles[role].body) if isinstance(op, kind)]
