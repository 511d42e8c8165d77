"""`ctx.range(..., unroll=n)`: the same loop, written n times over by the compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.printed_ptx import printed
from tests.support.tracing import refused, role_from_text
from tilepipe import cuda


@tp.kernel(grid=1)
def running_sum(ctx: tp.Context, out: Any, n: int, *, unroll: int) -> None:
    """out[i] = 0 + 1 + ... + i, below n."""

    @ctx.role("one", warps=1)
    def one() -> None:
        total = ctx.var(0)
        for i in ctx.range(n, unroll=unroll):
            total.set(total.get() + i)
            with ctx.elect_one():
                ctx.store(out[i], total.get())


@pytest.mark.parametrize("unroll", [1, 4])
@pytest.mark.parametrize("n", [0, 3, 4, 11])
def test_the_loop_does_the_same(n: int, unroll: int) -> None:
    """Also with trips that it does not divide, in the simulator and as the compiler writes it."""
    want = np.cumsum(np.arange(16, dtype=np.int32)) * (np.arange(16) < n)
    out = np.zeros(16, np.int32)
    running_sum.bind(out, n, unroll=unroll).run()
    np.testing.assert_array_equal(out, want)
    out[:] = 0
    printed(running_sum.bind(out, n, unroll=unroll), "sm_90a").run()
    np.testing.assert_array_equal(out, want)


def test_the_compiler_is_told() -> None:
    out = np.zeros(16, np.int32)
    source = cuda.source(running_sum.bind(out, 11, unroll=4).kernel)
    assert "#pragma unroll 4\n" in source
    assert "#pragma unroll" not in cuda.source(running_sum.bind(out, 11, unroll=1).kernel)
    assert "unroll=4" in str(running_sum.bind(out, 11, unroll=4).kernel)


@pytest.mark.parametrize("unroll", ["0", "65", "10**20", "2.0", "True", "n.get()"])
def test_what_it_cannot_be(unroll: str) -> None:
    text = f"n = ctx.var(4)\nfor i in ctx.range(8, unroll={unroll}):\n    n.set(i)"
    with refused(tp.TraceError, "unroll= takes an integer of 32 bits", ", 1..64, got"):
        role_from_text(text)
