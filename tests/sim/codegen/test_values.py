"""Scalars, fragments, ordinary accesses to global memory, poison, printing, and what generated code
looks like.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tilepipe as tp
from tests.support.build import LANE, Builder, binary
from tilepipe import sim
from tilepipe.errors import BindError, KernelAssertError, PoisonError, RaceError, SimFault
from tilepipe.ir import dtypes, layout, ops
from tilepipe.ir.expressions import Cast, Unary, const
from tilepipe.ir.memory import SmemBuffer


def one(b: Builder):  # type: ignore[no-untyped-def]
    b.setup_done()
    return b.role("one", warps=1)


@pytest.mark.slow
@given(
    dtype=st.sampled_from([dtypes.bfloat16, dtypes.float32, dtypes.float8_e4m3]),
    swizzle=st.sampled_from(layout.SWIZZLES),
    order=st.sampled_from(["row", "col"]),
    lines=st.sampled_from([8, 16, 64]),
    panels=st.integers(1, 3),
)
def test_elements_and_bytes_are_one_to_one(
    dtype: dtypes.DType, swizzle: int, order: str, lines: int, panels: int
) -> None:
    """The simulator compares accesses by element; that is exact because a layout maps elements one
    to one on bytes.
    """
    inner = panels * ((swizzle or 64) // dtype.nbytes)
    rows, cols = (lines, inner) if order == "row" else (inner, lines)
    buffer = SmemBuffer("x", dtype, 1, rows, cols, order, swizzle)
    offsets = layout.byte_offsets(buffer, np.arange(rows)[:, None], np.arange(cols)[None, :])
    assert sorted(offsets.ravel().tolist()) == list(range(0, buffer.tile_bytes, dtype.nbytes))


def test_integer_overflow_is_reported() -> None:
    b = Builder()
    n = b.scalar("n")
    with one(b):
        b.let(binary("mul", n, n))
    assert b.run(n=46340).steps
    with pytest.raises(SimFault, match="int32 overflow: 2,147,488,281 is outside"):
        b.run(n=46341)


def test_division_by_zero_has_the_line() -> None:
    b = Builder()
    n = b.scalar("n")
    with one(b):
        b.let(binary("floordiv", 7, n))
    with pytest.raises(
        SimFault, match=r"integer division by zero: 7 // 0(.|\n)*at .*test_values.py"
    ):
        b.run(n=0)


def test_floor_division_and_select_are_pythons() -> None:
    b = Builder()
    out = b.tensor("out", dtypes.int32, rank=1)
    with one(b), b.elect():
        b.store(b.element(out, 0), binary("floordiv", -7, 2))
        b.store(b.element(out, 1), binary("mod", -7, 2))
        b.store(b.element(out, 2), binary("min", binary("shl", 3, 2), 100))
    arrays = {"out": np.zeros(3, np.int32)}
    b.run(**arrays)
    assert arrays["out"].tolist() == [-4, 1, 12]


def test_print_and_assert(capsys: pytest.CaptureFixture[str]) -> None:
    b = Builder()
    with one(b):
        with b.when(binary("lt", LANE, 2)):
            b.do(ops.Print, "lane {} says {}", (LANE, const(1.5)))
        b.do(ops.Print, "once", ())
        b.do(ops.Assert, binary("lt", LANE, 31), "too many lanes")
    with pytest.raises(KernelAssertError, match=r"too many lanes \(thread 31 of role 'one'\)"):
        b.run()
    assert capsys.readouterr().out.splitlines() == ["lane 0 says 1.5", "lane 1 says 1.5", "once"]


def test_out_of_range_accesses_are_named() -> None:
    b = Builder()
    out, cell = b.tensor("out", dtypes.int32, rank=1), b.smem("cell", 1, 4, 2, dtypes.int32)
    n = b.scalar("n")
    with one(b), b.elect():
        b.store(b.element(out, n), 1)
        b.store(b.element(b.tile(cell, n), 0, 0), 1)
        b.store(b.element(b.tile(cell), 0, binary("add", n, 3)), 1)
    arrays = {"out": np.zeros(2, np.int32)}
    with pytest.raises(SimFault, match=r"element \(2,\) of tensor 'out' of shape \(2,\)"):
        b.run(n=2, **arrays)
    with pytest.raises(SimFault, match=r"element \(0, 4\) of a 1×4 tile"):
        b.run(n=1, **arrays)
    arrays = {"out": np.zeros(3, np.int32)}
    with pytest.raises(SimFault, match=r"cell\[2\] is out of range: there are 2"):
        b.run(n=2, **arrays)


@pytest.mark.parametrize("seed", range(3))
def test_poison_names_the_tile_and_the_line(seed: int) -> None:
    b = Builder()
    dst, tile = (
        b.tensor("dst", dtypes.float32, box=(1, 32)),
        b.smem("tile", 1, 32, dtype=dtypes.float32),
    )
    with one(b):
        with b.when(binary("lt", LANE, 30)):
            b.store(b.element(b.tile(tile), 0, LANE), 1.0)
        b.do(ops.FenceProxyAsync)
        b.do(ops.SyncWarp)
        with b.elect():
            b.store_tile(dst, (0, 0), b.tile(tile))
            b.do(ops.TmaStoreCommit)
            b.do(ops.TmaStoreWait, 0, True)
    with pytest.raises(
        PoisonError,
        match=r"role 'one' reads tile \(all of it\)(.|\n)*2 of 32 elements were never "
        r"written(.|\n)*test_values",
    ):
        b.run(seed=seed, dst=np.zeros((1, 32), np.float32))


def test_fragments() -> None:
    b = Builder()
    tile, out = (
        b.smem("tile", 64, 16, dtype=dtypes.float32),
        b.tensor("out", dtypes.float32, box=(64, 16)),
    )
    src, meet, full = (
        b.tensor("src", dtypes.float32, box=(64, 16)),
        b.named("meet", 128),
        b.barriers("full"),
    )
    b.setup_done()
    with b.role("one", warpgroups=1):
        x, top = b.fragment("x", 64, 16), b.fragment("top", 64, 1)
        with b.elect("warpgroup"):
            b.expect(b.bar(full), 64 * 16 * 4)
            b.load_tile(src, (0, 0), b.tile(tile), b.bar(full))
        b.wait(b.bar(full), 0)
        b.do(ops.FragmentLoad, x, b.tile(tile))
        b.do(ops.FragmentReduce, top, b.value(x), "max")
        b.do(
            ops.FragmentSet,
            x,
            Unary(
                dtypes.float32, shape=(64, 16), op="exp2", a=binary("sub", b.value(x), b.value(top))
            ),
        )
        b.do(ops.NamedSync, meet)
        half = Cast(dtypes.bfloat16, shape=(64, 16), a=b.value(x))
        b.do(ops.FragmentStore, b.tile(tile), Cast(dtypes.float32, shape=(64, 16), a=half))
        b.do(ops.FenceProxyAsync)
        b.do(ops.NamedSync, meet)
        with b.elect("warpgroup"):
            b.store_tile(out, (0, 0), b.tile(tile))
            b.do(ops.TmaStoreCommit)
            b.do(ops.TmaStoreWait, 0, False)
    values = np.random.default_rng(1).standard_normal((64, 16)).astype(np.float32)
    arrays = {"src": values, "out": np.zeros((64, 16), np.float32)}
    b.run(**arrays)
    want = (
        np.exp2(values - values.max(1, keepdims=True))
        .astype(dtypes.bfloat16.numpy)
        .astype(np.float32)
    )
    assert np.array_equal(arrays["out"], want)


def mma(
    *,
    fill: bool = True,
    fence: bool = True,
    read_early: bool = False,
    from_registers: bool = False,
    overwrite: bool = False,
    again: str = "",
) -> tuple[Builder, dict[str, np.ndarray]]:
    b = Builder()
    src, tile, full = b.tensor("src", box=(64, 64)), b.smem("tile", 64, 64), b.barriers("full")
    out = b.tensor("out", dtypes.float32)
    b.setup_done()
    with b.role("one", warpgroups=1):
        acc, a = b.fragment("acc", 64, 64), b.fragment("a", 64, 64, dtypes.bfloat16)
        if fill:
            b.do(ops.FragmentSet, acc, const(0.0))
        b.do(ops.FragmentSet, a, const(1.0))
        with b.elect("warpgroup"):
            b.expect(b.bar(full), 64 * 64 * 2)
            b.load_tile(src, (0, 0), b.tile(tile), b.bar(full))
        b.wait(b.bar(full), 0)
        if fence:
            b.do(ops.WgmmaFence)
        b.do(
            ops.Wgmma,
            acc,
            a if from_registers else b.tile(tile),
            b.tile(tile),
            const(not overwrite),
        )
        b.do(ops.WgmmaCommit)
        if not read_early:
            b.do(ops.WgmmaWait, 0)
        row = b.fragment("row", 64, 1)
        b.do(ops.FragmentReduce, row, b.value(acc), "add")
        if again:
            if again == "fenced":
                b.do(ops.WgmmaFence)
            b.do(ops.Wgmma, acc, b.tile(tile), b.tile(tile), const(False))
            b.do(ops.WgmmaCommit)
            b.do(ops.WgmmaWait, 0)
        if read_early:
            b.do(ops.WgmmaWait, 0)
    arrays = {
        "src": np.eye(64).astype(dtypes.bfloat16.numpy),
        "out": np.zeros((64, 64), np.float32),
    }
    assert out.rank == 2
    return b, arrays


@pytest.mark.parametrize("from_registers", [False, True])
def test_mma_from_shared_memory_and_registers(from_registers: bool) -> None:
    b, arrays = mma(from_registers=from_registers)
    assert b.run(**arrays).roles[0].mmas == 1


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        ({"fill": False}, PoisonError, "accumulator 'acc', of which 64 columns were never set"),
        ({"fence": False}, RaceError, "no wgmma.fence stands between"),
        ({"fence": False, "from_registers": True}, RaceError, "no wgmma.fence stands between"),
        (
            {"fence": False, "fill": False, "overwrite": True},
            RaceError,
            "the first wgmma of role 'one', and no wgmma.fence stands before it",
        ),
        (
            {"again": "unfenced"},
            RaceError,
            (
                "role 'one' used the registers of fragment 'acc' at .* and no wgmma.fence "
                "stands between"
            ),
        ),
        (
            {"read_early": True},
            RaceError,
            "reads fragment 'acc' while 1 wgmma that writes it is in flight",
        ),
    ],
)
def test_register_rules_of_wgmma(fault: dict[str, Any], error: type[Exception], said: str) -> None:
    b, arrays = mma(**fault)
    with pytest.raises(error, match=said):
        b.run(**arrays)


@pytest.mark.slow
def test_a_fence_between_a_read_of_the_sums_and_the_wgmma_that_overwrites_them() -> None:
    b, arrays = mma(again="fenced")
    assert b.run(**arrays).roles[0].mmas == 2


def test_reading_and_writing_one_tensor_across_ctas() -> None:
    """A tensor that is written and read: another CTA's element is a race, one's own is not."""
    from tests.support.build import BLOCK

    for offset in (0, 1):
        b = Builder()
        x = b.tensor("x", dtypes.int32, rank=1)
        with one(b), b.elect():
            b.store(b.element(x, BLOCK), 1)
            b.load(b.element(x, binary("mod", binary("add", BLOCK, offset), 2)))
        arrays = {"x": np.zeros(2, np.int32)}
        if offset:
            with pytest.raises(RaceError, match=r"race on tensor 'x'(.|\n)*different clusters"):
                b.run(grid=2, **arrays)
        else:
            b.run(grid=2, **arrays)
            assert arrays["x"].tolist() == [1, 1]


def test_lanes_that_disagree_on_one_element() -> None:
    b = Builder()
    cell = b.smem("cell", 1, 4, dtype=dtypes.int32)
    with one(b):
        b.store(b.element(b.tile(cell), 0, 0), LANE)
    with pytest.raises(RaceError, match="threads 0 and 1 of role 'one' store different values"):
        b.run()


def test_lanes_that_disagree_on_one_element_of_a_tensor() -> None:
    for same in (False, True):
        x = np.zeros(4, np.float32)

        @tp.kernel()
        def k(ctx: tp.Context, x: Any, *, factor: int) -> None:
            @ctx.role("one", warps=1)
            def one() -> None:
                ctx.store(x[1], ctx.lane * factor)

        if same:
            k.bind(x, factor=0).run()
        else:
            with pytest.raises(
                RaceError,
                match=r"threads 0 and 1 of role 'one' store different values .* element \(1,\) "
                r"of tensor 'x'",
            ):
                k.bind(x, factor=1).run()


def test_lanes_that_agree_on_nan() -> None:
    @tp.kernel()
    def k(ctx: tp.Context, x: Any) -> None:
        cell = ctx.smem((1, 4), tp.float32, swizzle=0)[0]

        @ctx.role("one", warps=1)
        def one() -> None:
            nan = ctx.load(x[ctx.lane % 2])
            ctx.store(cell[0, 0], nan)
            ctx.store(cell[0, 1], ctx.load(x[3]))
            ctx.store(x[2], nan)

    x = np.full(4, np.nan, np.float32)
    k.bind(x).run()
    assert np.isnan(x).all()


def test_arguments_that_do_not_fit() -> None:
    b = Builder()
    b.tensor("x", dtypes.int32, rank=1)
    b.scalar("n")
    with one(b):
        pass
    with pytest.raises(
        BindError, match="tensor 'x': the simulator needs a NumPy int32 array of rank 1"
    ):
        b.run(x=np.zeros((2, 2), np.int32), n=1)
    with pytest.raises(BindError, match="parameter 'x' is a tensor"):
        b.run(x=3, n=1)
    with pytest.raises(BindError, match="parameter 'n' is a int32"):
        b.run(x=np.zeros(2, np.int32))


def test_generated_source_is_readable_and_cached() -> None:
    b = Builder()
    full = b.barriers("full", 2)
    with one(b), b.elect(), b.loop(2) as i:
        b.arrive(b.bar(full, i))
    assert b.run().steps == 4
    text = sim.source(b.kernel)
    assert "def one(m, ag, params):" in text
    assert "yield mbar_arrive, (S" in text
    assert "# test_values.py:" in text
    assert sim.source(b.kernel) is text


def test_a_machine_can_be_copied_between_steps() -> None:
    """The state beside the generators is plain: the checker copies it."""
    from tilepipe.ir.placement import place
    from tilepipe.ir.program import Launch
    from tilepipe.machine.barriers import mbarrier as mbarriers
    from tilepipe.machine.barriers.state import LIVE
    from tilepipe.machine.machine import Machine
    from tilepipe.sim.run import world_of

    b = Builder()
    full = b.barriers("full")
    with one(b), b.elect():
        b.arrive(b.bar(full))
        b.wait(b.bar(full), 0)
    place(b.kernel)
    m = Machine(world_of(Launch(b.kernel, 1, {}), "practice", None))
    for agent in m.agents:
        del agent.body
    m.ctas[0].bars[0].state = LIVE
    m.ctas[0].bars[0].count = m.ctas[0].bars[0].pending = 1
    m.ctas[0].bars[0].phase = 0
    twin = copy.deepcopy(m)
    site = m.world.program.sites[-1]
    mbarriers.mbar_arrive(twin, twin.agents[0], site, 1, 0, 1)
    assert twin.ctas[0].bars[0].phase == 1
    assert m.ctas[0].bars[0].phase == 0


@tp.kernel(grid=1)
def of_a_tile(ctx: tp.Context, x: Any, out: Any, *, op: str, more: int) -> None:
    """A reduction of all elements, and one scalar more."""

    @ctx.role("all", warpgroups=1)
    def everything() -> None:
        f = ctx.load_global(x, (0, 0), (64, 8))
        found = {"max": f.max, "min": f.min, "sum": f.sum}[op](axis=None)
        with ctx.elect_one("warpgroup"):
            ctx.store(out[0], found + more)


@pytest.mark.parametrize(
    ("op", "element", "more"),
    [("max", 2**31 - 1, 1), ("min", -(2**31), -1), ("sum", 2**22, 0)],
)
def test_a_scalar_of_a_reduced_tile_overflows_as_any(op: str, element: int, more: int) -> None:
    x, out = np.full((64, 8), element, np.int32), np.zeros(1, np.int32)
    with pytest.raises(SimFault, match=r"int32 overflow: -?2,147,483,64[89] is outside"):
        of_a_tile.bind(x, out, op=op, more=more).run()
    of_a_tile.bind(x // 2, out, op=op, more=more).run()
    assert out[0] == (512 if op == "sum" else 1) * (element // 2) + more


def test_the_sum_of_a_tile_of_uint32_wraps_round() -> None:
    x, out = np.full((64, 8), 2**32 - 1, np.uint32), np.zeros(1, np.uint32)
    of_a_tile.bind(x, out, op="sum", more=0).run()
    assert out[0] == 2**32 - 512
