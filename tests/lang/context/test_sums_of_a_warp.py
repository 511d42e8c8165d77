"""A number that all lanes of a warp have is added to memory by one of them; where all add it, the
run and the check say so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp

Body = Callable[[Any, Any, Any], object]


def program(body: Body, *, warps: int = 1) -> tuple[tp.Program, Any]:
    @tp.kernel()
    def kernel(ctx: tp.Context, x: Any, out: Any) -> None:
        @ctx.role("sum", warps=warps)
        def sum_() -> None:
            body(ctx, x, out)

    out = np.zeros(4, np.float32)
    return kernel.bind(np.arange(32, dtype=np.float32), out), out


def row_sum(ctx: Any, x: Any) -> Any:
    row = ctx.var(ctx.load(x[ctx.lane]))
    for mask in (1, 2, 4, 8, 16):
        row += ctx.shuffle_xor(row.get(), mask)
    return row.get()


def by_all(ctx: Any, x: Any, out: Any) -> None:
    ctx.atomic_add(out[0], row_sum(ctx, x))


def by_one(ctx: Any, x: Any, out: Any) -> None:
    row = row_sum(ctx, x)
    with ctx.elect_one():
        ctx.atomic_add(out[0], row)


def test_a_sum_of_a_warp_that_all_lanes_add_is_advice() -> None:
    bound, out = program(by_all)
    run = bound.run()
    assert out[0] == 32 * np.arange(32).sum()
    for advice in (run.advice, bound.check().advice):
        (said,) = advice
        assert "atomic_add out[0], at " in said
        assert (
            "32 lanes add the same number to one element, which becomes greater by 32 times that"
            in said
        )
        assert "let one lane add it, by ctx.elect_one(). If each lane has its own" in said
        assert "by ctx.reduce_lanes or ctx.shuffle_xor, and let one lane" in said


def test_a_sum_of_a_warp_that_one_lane_adds_is_none() -> None:
    bound, out = program(by_one)
    assert bound.run().advice == []
    assert out[0] == np.arange(32).sum()


@pytest.mark.parametrize(
    "body",
    [
        lambda ctx, x, out: ctx.atomic_add(out[0], ctx.load(x[ctx.lane])),
        lambda ctx, x, out: ctx.atomic_add(out[ctx.lane % 1], ctx.select(ctx.lane >= 0, 1.0, 0.0)),
        lambda ctx, x, out: ctx.atomic_add(out[0], ctx.select(ctx.lane < 0, 1.0, 0.0)),
        lambda ctx, x, out: ctx.store(
            x[ctx.lane], ctx.atomic_add(out[0], ctx.select(ctx.lane >= 0, 1.0, 0.0))
        ),
    ],
    ids=["numbers of their own", "an element by lane", "zeros", "tickets"],
)
def test_additions_of_lanes_that_are_meant_are_no_advice(body: Body) -> None:
    assert program(body)[0].run().advice == []


def test_the_error_for_one_value_says_what_elects_a_lane_of_each_warp() -> None:
    with pytest.raises(tp.TraceError) as caught:
        program(lambda ctx, x, out: ctx.atomic_add(out[0], ctx.warp.to("float32")), warps=2)
    said = str(caught.value)
    assert 'Put it under `with ctx.elect_one("role"):`' in said
    assert "For a number of each warp, `ctx.elect_one()` is one lane of each warp." in said
    assert "`ctx.select(condition, 1, 0)`" in said
