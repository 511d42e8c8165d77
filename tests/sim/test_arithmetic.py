"""Integer arithmetic that leaves its dtype, wherever the value is used; unsigned wrapping; NaN in
min and max.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from tests.support.build import LANE, Builder, binary
from tilepipe import sim
from tilepipe.errors import SimFault
from tilepipe.ir import dtypes, ops, ranges
from tilepipe.ir.expressions import Binary, Cast, Const, Expr, Param, Unary, children, const
from tilepipe.ir.placement import place


def bound(b: Builder, big: Expr) -> None:
    with b.loop(big):
        pass


def coordinate(b: Builder, big: Expr) -> None:
    src, tile, full = b.tensor("src", box=(8, 32)), b.smem("tile", 8, 32), b.kernel.barriers[0]
    with b.elect():
        b.load_tile(src, (big, 0), b.tile(tile), b.bar(full))


def tile_index(b: Builder, big: Expr) -> None:
    cell = b.smem("cell", 1, 4, 2, dtypes.int32)
    with b.elect():
        b.store(b.element(b.tile(cell, binary("floordiv", big, 1 << 30)), 0, 0), 1)


def expect(b: Builder, big: Expr) -> None:
    with b.elect():
        b.expect(b.bar(b.kernel.barriers[0]), big)


def step(b: Builder, big: Expr) -> None:
    b.step(b.cursor(2), big)


def condition(b: Builder, big: Expr) -> None:
    with b.when(binary("gt", big, 0)):
        pass


def lanes(b: Builder, big: Expr) -> None:
    with b.when(binary("lt", LANE, binary("add", big, LANE))):
        pass


def inside(b: Builder, big: Expr) -> None:
    b.let(binary("floordiv", big, 1 << 20))


@pytest.mark.parametrize(
    "use",
    [bound, coordinate, tile_index, expect, step, condition, lanes, inside],
    ids=lambda f: f.__name__,
)
def test_overflow_is_reported_wherever_the_value_is_used(
    use: Callable[[Builder, Expr], None],
) -> None:
    b = Builder()
    n = b.scalar("n")
    b.barriers("full")
    b.setup_done()
    with b.role("one", warps=1):
        use(b, binary("mul", n, n))
    arrays = {
        p.name: np.zeros((8, 32), dtypes.bfloat16.numpy) for p in b.kernel.params if p.name == "src"
    }
    with pytest.raises(
        SimFault,
        match=r"int32 overflow: 4,294,967,296 is outside -2,147,483,648 \.\. "
        r"2,147,483,647(.|\n)*test_arithmetic",
    ):
        b.run(n=1 << 16, **arrays)


def test_lanes_that_are_masked_out_may_overflow() -> None:
    b = Builder()
    out, n = b.tensor("out", dtypes.int32, rank=1), b.scalar("n")
    b.setup_done()
    with b.role("one", warps=1), b.when(binary("lt", LANE, 2)):
        b.store(b.element(out, LANE), binary("mul", n, LANE))
    arrays = {"out": np.zeros(2, np.int32)}
    b.run(n=1 << 30, **arrays)
    assert arrays["out"].tolist() == [0, 1 << 30]
    with pytest.raises(SimFault, match="int32 overflow: 2,147,483,648 is outside"):
        b.run(n=1 << 31, **arrays)


def test_what_cannot_overflow_is_not_checked() -> None:
    b = Builder()
    b.setup_done()
    with b.role("one", warps=1):
        b.let(binary("add", binary("mul", LANE, 64), 5))
    place(b.kernel)
    assert "fit" not in sim.source(b.kernel)


@pytest.mark.parametrize("fits", [True, False])
def test_a_conversion_to_a_smaller_integer_must_fit(fits: bool) -> None:
    b = Builder()
    n, out = b.scalar("n", dtypes.int64), b.tensor("out", dtypes.int32, rank=1)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.store(b.element(out, 0), Cast(dtypes.int32, a=binary("mul", n, n)))
    arrays = {"out": np.zeros(1, np.int32)}
    if fits:
        b.run(n=-(1 << 15), **arrays)
        assert arrays["out"].tolist() == [1 << 30]
    else:
        with pytest.raises(SimFault, match="int32 overflow: 1,099,511,627,776 is outside"):
            b.run(n=1 << 20, **arrays)


@pytest.mark.parametrize(
    ("x", "want"), [(-2.7, -2), (np.nan, 0), (np.inf, 2**31 - 1), (-3e9, -(2**31))]
)
def test_a_fraction_becomes_an_integer_towards_zero(x: float, want: int) -> None:
    b = Builder()
    source, out = b.tensor("source", dtypes.float32, rank=1), b.tensor("out", dtypes.int32, rank=1)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.store(b.element(out, 0), Cast(dtypes.int32, a=b.load(b.element(source, 0))))
    arrays = {"source": np.array([x], np.float32), "out": np.zeros(1, np.int32)}
    b.run(**arrays)
    assert arrays["out"].tolist() == [want]


def test_unsigned_to_signed_keeps_the_bits() -> None:
    b = Builder()
    out = b.tensor("out", dtypes.int32, rank=1)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.store(b.element(out, 0), Cast(dtypes.int32, a=Const(dtypes.uint32, value=2**32 - 2)))
    arrays = {"out": np.zeros(1, np.int32)}
    b.run(**arrays)
    assert arrays["out"].tolist() == [-2]


small = st.integers(-(2**31), 2**31 - 1)
leaves = st.builds(const, small) | st.just(Param(dtypes.int32, name="n"))


def node(op: str, a: Expr, b: Expr) -> Expr:
    return Binary(dtypes.int32, op=op, a=a, b=b)


trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(node, st.sampled_from(["add", "sub", "mul", "min", "max"]), inner, inner),
        st.builds(node, st.sampled_from(["floordiv", "mod"]), inner, st.integers(1, 9).map(const)),
        st.builds(node, st.just("shl"), inner, st.integers(0, 33).map(const)),
    ),
    max_leaves=5,
)


def value(x: Expr, n: int) -> int:
    match x:
        case Const():
            return int(x.value)
        case Binary(op=op, a=a, b=b):
            p, q = value(a, n), value(b, n)
            return {
                "add": lambda: p + q,
                "sub": lambda: p - q,
                "mul": lambda: p * q,
                "shl": lambda: p << q,
                "floordiv": lambda: p // q,
                "mod": lambda: p % q,
                "min": lambda: min(p, q),
                "max": lambda: max(p, q),
            }[op]()
    return n


def fit(x: Expr, n: int) -> bool:
    """Whether every part of `x` that is checked fits."""
    inside = all(fit(c, n) for c in children(x))
    return inside and (not ranges.grows(x) or -(2**31) <= value(x, n) < 2**31)


@pytest.mark.slow
@given(x=trees, n=small)
def test_bounds_hold(x: Expr, n: int) -> None:
    """For what passes its checks, and one step beyond."""
    assume(all(fit(c, n) for c in children(x)))
    low, high = ranges.exact(x)
    assert low <= value(x, n) <= high


def test_unsigned_integers_wrap_round() -> None:
    b = Builder()
    out = b.tensor("out", dtypes.uint32, rank=1)
    b.setup_done()
    one = Const(dtypes.uint32, value=1)
    with b.role("one", warps=1):
        flipped = Unary(dtypes.uint32, op="not", a=one)
        with b.elect():
            b.store(b.element(out, 0), binary("shr", flipped, Const(dtypes.uint32, value=31)))
            b.store(b.element(out, 1), Unary(dtypes.uint32, op="neg", a=one))
        with b.when(binary("gt", flipped, Const(dtypes.uint32, value=5))), b.elect():
            b.store(b.element(out, 2), 7)
        lane = Unary(
            dtypes.uint32, vary=LANE.vary, op="not", a=Cast(dtypes.uint32, vary=LANE.vary, a=LANE)
        )
        with b.when(binary("eq", LANE, 4)):
            b.store(b.element(out, 3), lane)
    arrays = {"out": np.zeros(4, np.uint32)}
    b.run(**arrays)
    assert arrays["out"].tolist() == [1, 2**32 - 1, 7, 2**32 - 5]


@pytest.mark.parametrize(("op", "want"), [("max", 3.0), ("min", 3.0)])
def test_a_nan_gives_way_to_a_number(op: str, want: float) -> None:
    """As fminf and fmaxf do."""
    b = Builder()
    x, out = b.tensor("x", dtypes.float32, rank=1), b.tensor("out", dtypes.float32, rank=1)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        nan = b.load(b.element(x, 0))
        b.store(b.element(out, 0), binary(op, nan, 3.0))
        b.store(b.element(out, 1), binary(op, 3.0, nan))
        b.store(b.element(out, 2), binary(op, nan, nan))
    arrays = {"x": np.array([np.nan], np.float32), "out": np.zeros(3, np.float32)}
    b.run(**arrays)
    assert arrays["out"][:2].tolist() == [want, want]
    assert np.isnan(arrays["out"][2])


def test_row_max_passes_over_nan() -> None:
    b = Builder()
    full, src, tile = (
        b.barriers("full"),
        b.tensor("src", dtypes.float32, box=(64, 8)),
        b.smem("tile", 64, 8, dtype=dtypes.float32),
    )
    out, row_out = (
        b.tensor("out", dtypes.float32, box=(64, 8)),
        b.smem("rows", 64, 8, dtype=dtypes.float32),
    )
    meet = b.named("meet", 128)
    b.setup_done()
    with b.role("one", warpgroups=1):
        x, top = b.fragment("x", 64, 8), b.fragment("top", 64, 1)
        with b.elect("warpgroup"):
            b.expect(b.bar(full), 64 * 8 * 4)
            b.load_tile(src, (0, 0), b.tile(tile), b.bar(full))
        b.wait(b.bar(full), 0)
        b.do(ops.FragmentLoad, x, b.tile(tile))
        b.do(ops.FragmentReduce, top, b.value(x), "max")
        b.do(ops.FragmentSet, x, b.value(top))
        b.do(ops.FragmentStore, b.tile(row_out), b.value(x))
        b.do(ops.FenceProxyAsync)
        b.do(ops.NamedSync, meet)
        with b.elect("warpgroup"):
            b.store_tile(out, (0, 0), b.tile(row_out))
            b.do(ops.TmaStoreCommit)
            b.do(ops.TmaStoreWait, 0, False)
    values = np.random.default_rng(3).standard_normal((64, 8)).astype(np.float32)
    values[::3, 2] = np.nan
    arrays = {"src": values, "out": np.zeros((64, 8), np.float32)}
    b.run(**arrays)
    assert np.array_equal(
        arrays["out"], np.repeat(np.nanmax(values, axis=1, keepdims=True), 8, axis=1)
    )


@pytest.mark.parametrize("lane", [False, True])
def test_a_fraction_names_no_place(lane: bool) -> None:
    b = Builder()
    half: Expr = const(0.5)
    if lane:
        half = Cast(dtypes.float32, vary=LANE.vary, a=LANE)
    full = b.barriers("full")
    b.setup_done()
    with b.role("one", warps=1):
        coordinate(b, half)
    assert full.size == 1
    with pytest.raises(
        SimFault, match=r"a coordinate is a float32; it must be an integer(.|\n)*test_arithmetic"
    ):
        b.run(src=np.zeros((8, 32), dtypes.bfloat16.numpy))
