"""`ctas_per_sm`: what the printed kernel promises of the registers, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused


def bound(**given: Any) -> tp.Program:
    """A kernel of 128 threads that would like to hold many registers."""

    @tp.kernel(**given)
    def doubled(ctx: tp.Context, x: tp.GlobalTensor, *, ctas: int = 3) -> None:
        @ctx.role("rows", warpgroups=1)
        def rows() -> None:
            f = ctx.load_global(x, (0, 0), (1, 16384), layout="rows:128").to("float32")
            ctx.store_global(x, (0, 0), f + f.sum())

    return doubled.bind(np.ones((1, 16384), tp.bfloat16.numpy))


@pytest.mark.slow
def test_registers_are_limited() -> None:
    few, many = bound().compile(), bound(ctas_per_sm=5).compile()
    assert few.registers is not None
    assert many.registers is not None
    assert many.registers <= 65536 // 5 // 128 < few.registers


def test_a_function_of_static_parameters() -> None:
    assert "__launch_bounds__(128, 3)" in bound(ctas_per_sm=lambda ctas: ctas).source()
    assert "__launch_bounds__(128, 4)" in bound(ctas_per_sm=lambda chip: 4).source()


@pytest.mark.parametrize("count", [0, 33, 1.5, None, "2"])
def test_refused(count: Any) -> None:
    with refused(tp.BindError, "ctas_per_sm= is the number of CTAs that share an SM, 1 to 32; got"):
        bound(ctas_per_sm=count)


def test_more_threads_than_an_sm_has() -> None:
    with refused(tp.LimitError, "ctas_per_sm=17 × 128 threads = 2176", "at most 2048"):
        bound(ctas_per_sm=17)
