"""Loops of unknown length, atomic adds and cluster launch control: what they mean, and what tracing
refuses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import faults, refuses


@tp.kernel()
def unguarded(ctx: tp.Context, x: Any, n: Any, *, dtype: str) -> None:
    @ctx.role("one", warps=1)
    def one() -> None:
        if dtype == "data":
            with ctx.elect_one(), ctx.when(n > 0):
                ctx.atomic_add(x[n], 1)
        elif dtype == "lanes":
            ctx.atomic_add(x[0], 1)
        elif dtype == "tile":
            with ctx.elect_one():
                ctx.atomic_add(ctx.lane, 1)  # type: ignore[arg-type]
        else:
            with ctx.elect_one():
                ctx.atomic_add(x[0], 1)


def test_what_is_no_atomic_add() -> None:
    x = np.zeros(4, np.int32)
    refuses(
        lambda: unguarded.bind(x, 0, dtype="lanes"),
        tp.TraceError,
        "atomic_add of one value to one element must be executed by one lane",
    )
    refuses(
        lambda: unguarded.bind(x, 0, dtype="tile"),
        tp.TraceError,
        "atomic_add takes one element of a tensor in global memory",
    )
    refuses(
        lambda: unguarded.bind(x.astype(np.int8), 0, dtype=""),
        tp.TraceError,
        "float16, bfloat16; 'x' is int8",
    )
    faults(
        unguarded.bind(x, 9, dtype="data"),
        tp.SimFault,
        "accesses element (9,) of tensor 'x' of shape (4,)",
    )


@pytest.mark.parametrize(
    ("shape", "row", "words"),
    [((2, 4), (0, 2), "2×4 int32"), ((2, 8), (0, 1), "1×8 int32"), ((1, 1), (0, 1), "1×1 int32")],
)
def test_what_is_no_response(shape: tuple[int, int], row: tuple[int, int], words: str) -> None:
    @tp.kernel()
    def wrong(ctx: tp.Context) -> None:
        rows = ctx.smem(shape, tp.int32, swizzle=0, name="rows")[0]
        bar = tp.SharedMemBarrier.allocate(ctx, 1, "bar")

        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                ctx.clc_try_cancel(rows.rows(*row), bar)

    refuses(wrong.bind, tp.TraceError, "clc_try_cancel: a response is a row of 4 int32", words)


@tp.kernel()
def loops(ctx: tp.Context, out: Any, *, what: str) -> None:
    @ctx.role("one", warps=1)
    def one() -> None:
        if what == "unused":
            ctx.loop_while(ctx.var(True))
        elif what == "number":
            for _ in ctx.loop_while(ctx.var(3)):
                pass
        elif what == "lanes":
            for _ in ctx.loop_while(ctx.var(ctx.lane < 3)):
                pass
        elif what == "break":
            for _ in ctx.loop_while(ctx.var(True)):
                break
        elif what == "endless":
            left, more = ctx.var(5), ctx.var(True)
            for _ in ctx.loop_while(more):
                left -= 1
        else:
            left = ctx.var(5)
            more = ctx.var(out.shape[0] > 1)
            for _ in ctx.loop_while(more):
                ctx.store(out[left.get()], left.get())
                left -= 1
                more.set(left > 1)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("unused", "ctx.loop_while is not iterated"),
        ("number", "runs while a boolean variable holds"),
        ("lanes", "must be the same in every thread that runs the loop"),
        ("break", "left by `break` or `return`"),
        ("endless", "so it would never end"),
    ],
)
def test_what_is_no_loop(what: str, words: str) -> None:
    refuses(lambda: loops.bind(np.zeros(8, np.int32), what=what), tp.TraceError, words)


def test_a_loop_runs_while_its_variable_holds() -> None:
    out = np.zeros(8, np.int32)
    loops.bind(out, what="right").run()
    assert out.tolist() == [0, 0, 2, 3, 4, 5, 0, 0]
    out = np.zeros(1, np.int32)
    loops.bind(out, what="right").run()
    assert out.tolist() == [0], "tested before the first iteration, too"
