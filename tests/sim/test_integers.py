"""Conversions and integer operations: what they give over edge values, and which are faults of the
lanes that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.fragments import Case
from tests.cases.numbers import CASES, INTEGERS, UNIFORM, operate, outcome, pairs
from tests.cases.scalars import check
from tilepipe.errors import SimFault, TraceError
from tilepipe.ir.dtypes import DType


@pytest.mark.sampled(21, suite=2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_lanes_compute_what_python_does(case: Case) -> None:
    program, out, want, limit = case.make(np.random.default_rng(0))
    program.run()
    check(out, want, limit)


@pytest.mark.sampled(5, suite=2)
@pytest.mark.parametrize("case", UNIFORM, ids=lambda case: case.name)
def test_one_number_is_computed_as_python_does(case: Case) -> None:
    program, out, want, limit = case.make(np.random.default_rng(0))
    program.run()
    check(out, want, limit)


@pytest.mark.slow
@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda t: t.name)
def test_an_undefined_result_is_a_fault(dtype: DType, uniform: bool) -> None:
    """Each pair of edge values alone, so that no fault hides behind another."""
    tried = 0
    for name in ("floordiv", "mod", "abs", "neg", "shl", "mul"):
        undefined = [(x, y) for x, y in pairs(dtype) if outcome(name, x, y, dtype) is None]
        for x, y in undefined[:: max(len(undefined) // 4, 1)]:
            operands = (np.array([v], dtype.numpy) for v in (x, y))
            with pytest.raises(SimFault, match=r"(by zero|overflow)(.|\n)*numbers.py"):
                operate.bind(*operands, np.zeros(1, dtype.numpy), name=name, uniform=uniform).run()
            tried += 1
    assert tried >= (10 if dtype.kind == "int" else 2)


def lanes_of(
    body: Callable[[tp.Context, Any, Any], Any], x: np.ndarray, out: np.ndarray
) -> tp.Program:
    """out[lane] = body of (ctx, x[lane], lane)."""

    @tp.kernel()
    def each(ctx: tp.Context, x: Any, out: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.store(out[ctx.lane], body(ctx, ctx.load(x[ctx.lane]), ctx.lane))

    return each.bind(x, out)


def test_the_lane_that_divides_by_zero_is_named() -> None:
    x = np.arange(1, 33, dtype=np.int32)
    x[7] = 0
    with pytest.raises(
        SimFault, match=r"integer division by zero in thread 7: 100 // 0(.|\n)*guard it with"
    ):
        lanes_of(lambda ctx, v, lane: 100 // v, x, np.zeros(32, np.int32)).run()
    with pytest.raises(SimFault, match=r"integer remainder by zero in thread 7: 100 % 0"):
        lanes_of(lambda ctx, v, lane: 100 % v, x, np.zeros(32, np.int32)).run()


def test_the_least_integer_by_minus_one_is_told_as_overflow() -> None:
    x = np.full(32, -1, np.int32)
    with pytest.raises(
        SimFault,
        match=r"int32 overflow in thread 3: -2147483648 // -1 divides the least integer by -1",
    ):
        lanes_of(
            lambda ctx, v, lane: ctx.select(lane == 3, -(2**31), 5) // v, x, np.zeros(32, np.int32)
        ).run()


GUARDS: dict[str, Callable[[tp.Context, Any, Any], Any]] = {
    "select": lambda ctx, v, lane: ctx.select(v != 0, 64 // v, -1),
    "otherwise": lambda ctx, v, lane: ctx.select(v == 0, -1, 64 // v),
    "nested": lambda ctx, v, lane: ctx.select(lane >= 0, ctx.select(v == 0, -1, 64 // v), 9),
    "and": lambda ctx, v, lane: ctx.select((v != 0) & (64 // v >= 0), 64 // ctx.max(v, 1), -1),
    "or": lambda ctx, v, lane: ctx.select((v == 0) | (64 // v < 0), -1, 64 // ctx.max(v, 1)),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guarded_division_is_no_fault(guard: str) -> None:
    """The printed ?:, && and || do not evaluate the other side either."""
    x = np.arange(32, dtype=np.int32) % 5
    out = np.zeros(32, np.int32)
    lanes_of(GUARDS[guard], x, out).run()
    np.testing.assert_array_equal(out, np.where(x == 0, -1, 64 // np.maximum(x, 1)))


def test_a_guarded_sum_may_leave_its_dtype() -> None:
    x = np.full(32, 2**31 - 8, np.int32)
    out = np.zeros(32, np.int32)
    lanes_of(lambda ctx, v, lane: ctx.select(lane < 8, v + lane, lane), x, out).run()
    np.testing.assert_array_equal(
        out, np.where(np.arange(32) < 8, 2**31 - 8 + np.arange(32), np.arange(32))
    )
    with pytest.raises(SimFault, match="int32 overflow: 2,147,483,648 is outside"):
        lanes_of(lambda ctx, v, lane: ctx.select(lane < 9, v + lane, lane), x, out).run()


def test_an_unsigned_integer_that_becomes_signed_may_be_negative() -> None:
    """So its division is not printed as one of positive numbers."""
    x = np.full(32, 2**32 - 7, np.uint32)
    out = np.zeros(32, np.int32)
    program = lanes_of(lambda ctx, v, lane: v.to("int32") // 2, x, out)
    program.run()
    assert set(out.tolist()) == {-4}
    assert "floor_div<i32>" in program.source()


def constant(value: int | float, dtype: str) -> Callable[[tp.Context, Any, Any], Any]:
    return lambda ctx, v, lane: ctx.let(value).to(dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (300, "uint8", 44),
        (-1, "uint32", 2**32 - 1),
        (3e10, "int32", 2**31 - 1),
        (-3e10, "uint32", 0),
        (2.9, "int8", 2),
    ],
)
def test_constants_convert_as_values_do(value: int | float, dtype: str, want: int) -> None:
    out = np.zeros(32, np.int64)
    program = lanes_of(constant(value, dtype), np.zeros(32, np.int32), out)
    program.run()
    assert set(out.tolist()) == {want}


@pytest.mark.parametrize(
    "expression", [lambda ctx: abs(ctx.let(-(2**31))), lambda ctx: -ctx.let(-(2**31))]
)
def test_constants_that_leave_their_dtype_are_refused(
    expression: Callable[[tp.Context], Any],
) -> None:
    with pytest.raises(TraceError, match=r"2147483648 does not fit in int32"):
        lanes_of(
            lambda ctx, v, lane: expression(ctx) + v, np.zeros(32, np.int32), np.zeros(32, np.int32)
        )


@pytest.mark.slow
def test_a_float_fragment_in_an_integer_tile_is_clamped() -> None:
    @tp.kernel()
    def clamp(ctx: tp.Context, x: Any, out: Any) -> None:
        tile = ctx.smem((64, 8), "int8", name="tile")[0]
        meet = ctx.named_barrier(128, "meet")

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            ctx.store(tile, ctx.load_global(x, (0, 0), (64, 8)))
            meet.sync()
            for column in ctx.range(8):
                with ctx.when(ctx.thread < 64):
                    ctx.store(out[ctx.thread, column], ctx.load(tile[ctx.thread, column]))

    x = np.linspace(-400, 400, 512, dtype=np.float32).reshape(64, 8)
    x[0, :3] = np.nan, np.inf, -np.inf
    out = np.zeros((64, 8), np.int8)
    clamp.bind(x, out).run()
    want = np.clip(np.trunc(np.nan_to_num(x, nan=0.0)), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(out, want)


def test_a_wrapped_divisor_of_zero_is_a_fault() -> None:
    with pytest.raises(SimFault, match=r"integer division by zero in thread 4"):
        lanes_of(
            lambda ctx, v, lane: 10 // (lane.to("uint32") - 5 + 1),
            np.zeros(32, np.int32),
            np.zeros(32, np.int64),
        ).run()


def test_conditions_on_lanes_may_guard_what_is_undefined_elsewhere() -> None:
    @tp.kernel()
    def guarded(ctx: tp.Context, out: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.when((ctx.lane != 0) & (10 // ctx.lane > 2)):
                ctx.store(out[0, ctx.lane], 1)
            with ctx.when(
                (ctx.lane < 10) & ((ctx.lane * 0 + 1).to("int64") << (ctx.lane * 3) & 7 != 0)
            ):
                ctx.store(out[1, ctx.lane], 1)

    out = np.zeros((2, 32), np.int32)
    guarded.bind(out).run()
    assert np.flatnonzero(out[0]).tolist() == [1, 2, 3]
    assert np.flatnonzero(out[1]).tolist() == [0]
