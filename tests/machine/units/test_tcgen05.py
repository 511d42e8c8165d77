"""MMAs, copies and commits of Blackwell's tensor core: values, order, what a commit publishes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.cases.tensor_memory import CASES, Case, Handover
from tests.scenarios.support import SEEDS, at, clean, faults, matrix, zeros
from tests.support.build import LANE, binary
from tests.support.examples import share
from tests.support.machine.tensor_builders import Core
from tilepipe.errors import BarrierError, ExitError, RaceError, SimFault
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Const, const
from tilepipe.ir.memory import Tmem

Array = np.ndarray[Any, Any]


def where(mark: str) -> str:
    return at(__file__, mark)


@pytest.mark.sampled(9, suite=3)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_simulator_computes_like_numpy(case: Case) -> None:
    for seed in (0, 1, 2):
        program, c, reference, tolerance = case.make(np.random.default_rng(seed))
        assert not program.run(seed=seed).advice
        assert np.abs(c.astype(np.float64) - reference).max() <= tolerance
        assert np.abs(reference).max() > 1


# -- one CTA ---------------------------------------------------------------------------


def test_several_lanes_issue() -> None:
    b = Core()
    with b.role("mma", warps=1):
        address = b.begin()
        b.mma(address)
    b.try_(SimFault, "32 threads of role 'mma' issue it, so 32 MMAs are issued")
    b = Core()
    with b.role("mma", warps=1):
        b.begin()
        b.commit()
    b.try_(SimFault, "32 threads of role 'mma' issue it, so 32 arrivals are made")


def test_a_commit_for_each_of_two_lanes_is_right_if_each_covers_its_own() -> None:
    b = Core(count=2)
    with b.role("mma", warps=1):
        address = b.begin()
        for lane in (3, 4):
            with b.when(binary("eq", LANE, lane)):
                b.mma(address, 8 * lane)
                b.commit()
        b.wait(b.bar(b.done), 0)
        b.end(address)
    for seed in SEEDS:
        b.run(seed=seed, a=matrix(64, 16), b=matrix(8, 16))


@pytest.mark.parametrize("col", [0, 4])
def test_two_mmas_of_one_thread_are_a_pipeline_on_one_accumulator_alone(col: int) -> None:
    """The second adds to the accumulator of the first, or to columns of which half are its."""
    b = Core()
    with b.role("mma", warps=1):
        address = b.begin()
        with b.elect():
            b.mma(address)
            b.mma(address, col)
            b.commit()
        b.wait(b.bar(b.done), 0)
        b.end(address)
    operands = {"a": matrix(64, 16), "b": matrix(8, 16)}
    assert not b.run(**operands).advice
    if col == 0:
        assert not b.run(rules="strict", **operands).advice
        return
    with pytest.raises(RaceError) as caught:
        b.run(rules="strict", **operands)
    said = str(caught.value)
    assert said.startswith("strict rules, tensor-core order: race on ")
    assert "these ops form no pipeline" in said
    assert "Let role 'mma' wait for a commit of the first before it issues the second" in said


@pytest.mark.parametrize("adds", [False, True])
def test_two_threads_and_one_accumulator(adds: bool) -> None:
    b = Core(count=2)
    with b.role("mma", warps=1):
        address = b.begin()
        for lane in (3, 4):
            with b.when(binary("eq", LANE, lane)):
                b.mma(address, 0, adds and lane == 4)
                b.commit()
        b.wait(b.bar(b.done), 0)
        b.end(address)
    b.try_(
        RaceError,
        "race on tensor memory",
        "lanes 0..15, columns 0..7",
        "until a commit by the same thread has arrived",
    )


@pytest.mark.parametrize("committed", ["nowhere", "by another lane"])
def test_the_end_before_the_mma_is_known_to_be_over(committed: str) -> None:
    b = Core()
    with b.role("mma", warps=1):
        address = b.begin()
        with b.when(binary("eq", LANE, 0)):
            b.mma(address)
        if committed != "nowhere":
            with b.when(binary("eq", LANE, 5)):
                b.commit()
            b.wait(b.bar(b.done), 0)
    other = ("was issued by lane 0 of role 'mma'", "committed by lane 5 of role 'mma'")
    words = (
        "exits while the tensor cores may still use a_tile",
        *(
            other
            if committed != "nowhere"
            else (
                (
                    "Commit it (ctx.mma_commit) and let a role of this CTA wait for the "
                    "barrier before it ends."
                ),
            )
        ),
    )
    b.try_(ExitError, *words)


def test_the_columns_are_freed_under_the_mma() -> None:
    b = Core()
    with b.role("mma", warps=1):
        address = b.begin()
        with b.elect():
            b.mma(address)
            b.commit()
        b.end(address)
    b.try_(
        RaceError,
        "race on tensor memory",
        "tmem_dealloc 512 columns",
        "tcgen05_mma tmem[",
        "until a commit by the same thread has arrived",
    )


def test_the_end_before_a_commit_has_arrived() -> None:
    b = Core()
    with b.role("mma", warps=1):
        address = b.begin()
        with b.elect():
            b.commit()
        b.end(address)
    b.try_(
        ExitError,
        "can still arrive on done",
        "tcgen05_commit done",
        "wait for phase 0 of done, the last that completes,",
    )


def test_knowing_a_later_commit_of_the_thread_is_enough() -> None:
    b = Core(other=1)
    with b.role("mma", warps=1):
        address = b.begin()
        with b.elect():
            b.mma(address)
            b.commit(b.more["other"])
            b.commit()
        b.wait(b.bar(b.done), 0)
        b.end(address)
    for seed in SEEDS:
        b.run(seed=seed, a=matrix(64, 16), b=matrix(8, 16))


def test_commits_are_arrivals() -> None:
    b = Core()
    with b.role("mma", warps=1):
        address = b.begin()
        for phase in range(2):
            with b.elect():
                if not phase:
                    b.mma(address)
                b.commit()
            b.wait(b.bar(b.done), phase)
        b.end(address)
    assert b.run(a=matrix(64, 16), b=matrix(8, 16)).completions["done"] == [[2]]
    b = Core()
    with b.role("mma", warps=1):
        address = b.begin()
        with b.elect():
            b.expect(b.bar(b.done), 64, arrive=False)
            b.commit()
            b.commit()
        b.wait(b.bar(b.done), 0)
        b.end(address)
    b.try_(
        BarrierError, "over-arrival on done", "role 'mma' arrives 1 time(s)", "tcgen05_commit done"
    )


def test_a_wait_that_no_commit_ends() -> None:
    b = Core(count=2)
    with b.role("mma", warps=1):
        address = b.begin()
        with b.elect():
            b.mma(address)
            b.commit()
        b.wait(b.bar(b.done), 0)
        b.end(address)
    b.try_(
        tp.DeadlockError,
        "done",
        "1 of 2 arrivals",
        "tcgen05_commit at tensor_builders.py",
        "its count is too high",
    )


def test_a_commit_on_a_barrier_that_is_none() -> None:
    b = Core()
    other = b.barriers("other", init=False)
    with b.role("mma", warps=1):
        b.begin()
        with b.elect():
            b.commit(other)
    b.try_(BarrierError, "tcgen05_commit other", "before it was initialised")


def test_an_mma_reads_through_the_async_proxy() -> None:
    b = Core()
    with b.role("mma", warps=1):
        address = b.begin()
        with b.elect():
            b.store(b.element(b.tile(b.a), 3, 5), 1.0)
            b.mma(address)
            b.commit()
        b.wait(b.bar(b.done), 0)
        b.end(address)
    b.try_(RaceError, "race between proxies on a_tile", "tcgen05_mma", "ctx.fence_proxy_async()")


def test_a_tile_is_refilled_under_the_mma() -> None:
    b = Core()
    with b.role("mma", warps=1):
        address = b.begin()
        with b.elect():
            b.mma(address)
            b.expect(b.bar(b.full), 64 * 32)
            b.load_tile(b.operands[0], (0, 0), b.tile(b.a), b.bar(b.full))
            b.commit()
        b.wait(b.bar(b.done), 0)
        b.end(address)
    b.try_(
        RaceError,
        "race on a_tile",
        "tcgen05_mma",
        "until a commit by the same thread has arrived (ctx.mma_commit)",
    )


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(st.tuples(st.integers(0, 3), st.booleans()), st.none()), min_size=1, max_size=14
    ),
    st.integers(0, 50),
)
@settings(max_examples=share(40), deadline=None)
def test_a_queue_against_the_simplest_one(steps: list[tuple[int, bool] | None], seed: int) -> None:
    """MMAs into four accumulators (overwriting, or adding once something is there) and commits
    (None), by one thread: the values are those of executing them in order, and each commit is one
    arrival.
    """
    b = Core(1 + sum(step is None for step in steps), placed=32, free=128)
    placed, free = b.more["placed"], b.more["free"]
    out = b.tensor("out", dtypes.float32)
    total = np.zeros((4, 64, 8), np.float32)
    written = [False] * 4
    x, y = matrix(64, 16, 1), matrix(8, 16, 2)
    product = x.astype(np.float32) @ y.astype(np.float32).T
    with b.role("mma", warps=1):
        address = b.begin()
        b.arrive(b.bar(placed))
        with b.elect():
            for step in steps:
                if step is None:
                    b.commit()
                    continue
                i, adds = step
                adds = adds and written[i]
                total[i] = total[i] + product if adds else product
                written[i] = True
                b.mma(address, 8 * i, adds)
            b.commit()
        b.wait(b.bar(free), 0)
        b.end(address)
    with b.role("epilogue", warpgroups=1):
        b.wait(b.bar(placed), 0)
        base = b.load(b.element(b.tile(b.word), 0, 0))
        b.wait(b.bar(b.done), 0)
        b.do(ops.Tcgen05FenceAfter)
        for i in range(4):
            if written[i]:
                f = b.fragment(f"part{i}", 64, 8)
                b.do(
                    ops.TmemLoad,
                    f,
                    Tmem(
                        binary("add", base, Const(dtypes.uint32, nonneg=True, value=8 * i)),
                        64,
                        8,
                        dtypes.float32,
                    ),
                )
                b.do(ops.TmemWaitLoad)
                b.do(ops.FragmentStoreGlobal, out, (const(64 * i), const(0)), b.value(f))
        b.arrive(b.bar(free))
    got = np.zeros((256, 8), np.float32)
    run = b.run(seed=seed, a=x, b=y, out=got)
    assert (got.reshape(4, 64, 8) == total).all()
    assert run.completions["done"] == [[1]]
    assert run.roles[0].mmas == sum(step is not None for step in steps)


def test_the_figures_of_a_run() -> None:
    case = next(c for c in CASES if c.name == "bfloat16 m=128 n=256")
    program, _, _, _ = case.make(np.random.default_rng(0))
    mma = program.run().roles[0]
    assert mma.mmas == 3
    assert mma.flops == 2 * 128 * 256 * 192
    assert "3 MMAs, 0.01 GFLOP" in str(mma)


# -- what a commit publishes -----------------------------------------------------------


@tp.kernel()
def scaled(ctx: tp.Context, a: Any, b: Any, scales: Any, c: Any, *, knows: bool) -> None:
    """C = scales · (A · Bᵀ): the epilogue reads scales that TMA brought, having waited for the MMA
    only; `knows`: whose issuer had waited for them.
    """
    a_tile, b_tile = (
        ctx.smem((128, 16), a.dtype, name="a_tile")[0],
        ctx.smem((32, 16), b.dtype, name="b_tile")[0],
    )
    s_tile = ctx.smem((1, 128), "float32", name="s_tile")[0]
    full, other = (tp.SharedMemBarrier.allocate(ctx, 1, name) for name in ("full", "other"))
    h = Handover(ctx, 32)

    @ctx.role("mma", warps=1)
    def mma() -> None:
        h.allocate()
        with ctx.elect_one():
            full.expect_bytes(a_tile.nbytes + b_tile.nbytes)
            ctx.tma_load(a, (0, 0), a_tile, full)
            ctx.tma_load(b, (0, 0), b_tile, full)
            other.expect_bytes(s_tile.nbytes)
            ctx.tma_load(scales, (0, 0), s_tile, other)  # <scales>
        full.wait(0)
        if knows:
            other.wait(0)
        with ctx.elect_one():
            ctx.mma(h.tmem.tensor((128, 32)), a_tile, b_tile, accumulate=False)
            ctx.mma_commit(h.done)
        if not knows:
            other.wait(0)
        h.over.complete_dealloc(h.tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        h.find()
        h.wait()
        scale = ctx.fragment(shape=(128, 1), layout="tmem")
        scale.load(s_tile)  # <read>
        x = h.tmem.tensor((128, 32)).load()
        ctx.tmem_wait_load()
        h.over.signal_complete()
        ctx.store_global(c, (0, 0), x * scale)


def bind_scaled(knows: bool) -> tuple[tp.Program, Array, Array]:
    a, b, c = matrix(128, 16, 1), matrix(32, 16, 2), zeros(128, 32)
    scales = np.arange(1, 129, dtype=np.float32).reshape(1, 128)
    maps = (
        tp.tensor_map(a, box=(128, 16)),
        tp.tensor_map(b, box=(32, 16)),
        tp.tensor_map(scales, box=(1, 128)),
    )
    return (
        scaled.bind(*maps, c, knows=knows),
        c,
        scales.T * (a.astype(np.float32) @ b.astype(np.float32).T),
    )


@pytest.mark.slow
def test_a_commit_publishes_what_its_thread_knew() -> None:
    program, c, reference = bind_scaled(True)
    for _ in clean(program, range(6)):
        assert (c == reference).all()


def test_a_commit_publishes_nothing_that_its_thread_did_not_know() -> None:
    faults(
        bind_scaled(False)[0],
        tp.RaceError,
        "race on s_tile",
        where("scales"),
        where("read"),
        "in flight until the phase",
        seeds=(0, 1, 2),
    )


# -- A in tensor memory ----------------------------------------------------------------


@tp.kernel(grid=1)
def halves(ctx: tp.Context, b: Any, where: Any, c: Any, *, of_acc: int, of_a: int | None) -> None:
    """An MMA of 64 rows with its accumulator in half `of_acc` of each 32 lanes, and A in half
    `of_a`; None: in half `where`.
    """
    b_tile = ctx.smem(b.box, b.dtype, name="b_tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
    there = tp.SharedMemBarrier.allocate(ctx, count=128, name="there")
    h = Handover(ctx, 256)

    @ctx.role("mma", warps=1)
    def mma() -> None:
        h.allocate()
        with ctx.elect_one():
            full.expect_bytes(b_tile.nbytes)
            ctx.tma_load(b, (0, 0), b_tile, full)
        full.wait(0)
        there.wait(0)
        ctx.tcgen05_fence_after()
        with ctx.elect_one():
            col = 128 + (where << 20 if of_a is None else of_a << 20)
            acc, a = (
                h.tmem.tensor((64, 32), col=of_acc << 20),
                h.tmem.tensor((64, 16), b.dtype, col=col),
            )
            ctx.mma(acc, a, b_tile, accumulate=False)  # <halves>
            ctx.mma_commit(h.done)
        h.over.complete_dealloc(h.tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        h.find()
        ones = ctx.fragment(shape=(64, 16), dtype=b.dtype)
        ones.fill(1)
        for half in (0, 1):
            h.tmem.tensor((64, 16), b.dtype, col=128 + (half << 20)).store(ones)
        ctx.tmem_wait_store()
        ctx.tcgen05_fence_before()
        there.arrive()
        h.wait()
        h.store(c, 64, 32, col=of_acc << 20)


def bind_halves(where: int, **static: Any) -> tuple[tp.Program, Array, Array]:
    b, c = matrix(32, 16, 1), zeros(64, 32)
    return (
        halves.bind(tp.tensor_map(b, box=(32, 16)), where, c, **static),
        c,
        np.ones((64, 16)) @ b.astype(np.float64).T,
    )


@pytest.mark.parametrize("half", [0, 1])
def test_a_and_the_accumulator_share_a_half_of_the_lanes(half: int) -> None:
    """With m = 64 the tensor core uses 16 of each 32 lanes (PTX ISA, data path layout F)."""
    for of_a in (half, None):
        program, c, reference = bind_halves(half, of_acc=half, of_a=of_a)
        for _ in clean(program, range(2)):
            assert (c == reference).all()
    said = (
        f"A of 64 rows begins at lane {16 - 16 * half} of tensor memory, the accumulator at "
        f"lane {16 * half}"
    )
    with pytest.raises(tp.TraceError, match=said) as error:
        bind_halves(0, of_acc=half, of_a=1 - half)
    assert ("add 16 << 16 to" if half else "take 16 << 16 off") in str(error.value)
    faults(
        bind_halves(1 - half, of_acc=half, of_a=None)[0],
        SimFault,
        said,
        "data path layout F",
        where("halves"),
        seeds=(0,),
    )
