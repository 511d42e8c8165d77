"""Tensor memory in pipelines: its life in the roles that share it, and the barrier before it is
freed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, faults
from tests.support.accumulators import Parts, gemm, mma, right, who_arrives
from tests.support.ring_kernels import counts_of
from tests.support.tracing import in_role, refused


def where(mark: str) -> str:
    return at(__file__, mark)


def broken(kind: type[tp.TilepipeError], *words: str, **settings: Any) -> None:
    """Every seed ends in that fault."""
    faults(gemm(**settings)[0], kind, *words)


def parts_of(p: Parts) -> tuple[tp.TmemDeallocBarrier, Any]:
    """The barrier before tensor memory is freed, and the one that announces its address."""
    assert p.outputs._lifetime is not None
    return p.outputs._lifetime


def fill_all(p: Parts) -> None:
    for _ in p.ctx.range(p.tiles):
        with p.outputs.producer() as stage:
            p.multiply(p.accumulator(stage))


def take_all(p: Parts) -> None:
    for tile in p.ctx.range(p.tiles):
        with p.outputs.consumer() as stage:
            part = p.accumulator(stage).load()
        p.ctx.store_global(p.out, (p.row(tile), 0), part)


# -- life ------------------------------------------------------------------------------


def by_hand(p: Parts) -> None:
    """What `mma_warp` does, step by step."""
    dealloc, published = parts_of(p)
    p.outputs.tmem.allocate()
    published.arrive()
    with p.ctx.when(tp.elect_one_cta(p.ctx)):
        fill_all(p)
    dealloc.complete_dealloc(p.outputs.tmem)


def taken_by_hand(p: Parts) -> None:
    """What `epilogue_warp` does, step by step."""
    dealloc, published = parts_of(p)
    published.sync()
    p.outputs.tmem.from_shared()
    take_all(p)
    dealloc.signal_complete()


@pytest.mark.parametrize("group", [1, 2])
def test_the_life_by_hand(group: int) -> None:
    right(mma=by_hand, epilogue=taken_by_hand, group=group)


def test_freed_step_by_step() -> None:
    """release_lock, wait, deallocate, in place of `complete_dealloc`."""

    def steps(p: Parts) -> None:
        dealloc, published = parts_of(p)
        p.outputs.tmem.allocate()
        p.outputs.tmem.release_lock()
        published.arrive()
        fill_all(p)
        dealloc._barrier.wait(0)
        p.ctx.tcgen05_fence_after()
        p.outputs.tmem.deallocate()

    right(mma=steps)


def never_freed(p: Parts) -> None:
    p.outputs.tmem.allocate()
    parts_of(p)[1].arrive()
    fill_all(p)


def freed_twice(p: Parts) -> None:
    mma(p)
    p.outputs.tmem.deallocate()


def freed_in_a_branch(p: Parts) -> None:
    p.outputs.tmem.allocate()
    with p.ctx.when(p.ctx.block_id == 0):
        p.outputs.tmem.deallocate()


def used_when_freed(p: Parts) -> None:
    mma(p)
    p.outputs.tmem.tensor((128, 16))


LIFE: list[tuple[Any, type[tp.TilepipeError], tuple[str, ...]]] = [
    (
        never_freed,
        tp.HandleError,
        (
            "tensor memory 'tmem' acquired at test_tensor_memory.py:",
            "still held",
            "deallocate()",
            "outputs.mma_warp()",
        ),
    ),
    (
        freed_twice,
        tp.HandleError,
        ("tensor memory 'tmem'", "released twice", "first at accumulators.py:"),
    ),
    (
        freed_in_a_branch,
        tp.HandleError,
        ("tensor memory 'tmem'", "released in a nested branch block"),
    ),
    (
        used_when_freed,
        tp.HandleError,
        ("tensor memory 'tmem'", "used after its release at accumulators.py:"),
    ),
    (
        lambda p: p.outputs.tmem.deallocate(),
        tp.TraceError,
        ("'tmem' is freed in role 'mma', which has not allocated it",),
    ),
    (
        lambda p: p.outputs.tmem.addr,
        tp.TraceError,
        ("role 'mma' does not know where 'tmem' is", "from_shared()", "epilogue_warp()"),
    ),
    (
        lambda p: p.outputs.tmem.tensor((128, 16)),
        tp.TraceError,
        ("role 'mma' does not know where 'tmem' is",),
    ),
    (
        lambda p: p.outputs.acquire_mma_linear().tmem_offset(),
        tp.TraceError,
        ("role 'mma' does not know where 'tmem' is",),
    ),
]


@pytest.mark.parametrize(("role", "kind", "words"), LIFE, ids=[words[-1] for *_, words in LIFE])
def test_allocated_used_and_freed_once(
    role: Any, kind: type[tp.TilepipeError], words: tuple[str, ...]
) -> None:
    with refused(kind, *words):
        gemm(mma=role)


def test_each_role_reads_the_address_itself() -> None:
    with refused(tp.TraceError, "role 'epilogue' does not know where 'tmem' is", "from_shared()"):
        gemm(epilogue=take_all)


@pytest.mark.parametrize("act", ["allocate", "release_lock", "deallocate"])
@pytest.mark.parametrize(
    ("size", "guard"),
    [({"warps": 2}, None), ({"warpgroups": 1}, None), ({"warps": 1}, 5), ({"warps": 2}, 33)],
)
def test_one_whole_warp(act: str, size: dict[str, int], guard: int | None) -> None:
    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        tmem = tp.TmemAllocation(ctx, 32, name="columns")

        @ctx.role("one", **size)
        def one() -> None:
            if guard is None:
                getattr(tmem, act)()
            else:
                with ctx.when(ctx.thread < guard):
                    getattr(tmem, act)()

    with refused(
        tp.TraceError,
        f"{act} of 'columns' is executed by one whole warp",
        "role 'one'",
        "ctx.when(ctx.warp == 0)",
    ):
        k.bind()


def test_one_warp_of_several() -> None:
    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        tmem = tp.TmemAllocation(ctx, 32)

        @ctx.role("one", warps=3)
        def one() -> None:
            with ctx.when(ctx.warp == 1):
                tmem.allocate()
                tmem.release_lock()
                tmem.deallocate()

    k.bind().run(seed=1)


@pytest.mark.parametrize("columns", [0, 16, 31, 48, 1024, -32, True, 64.0, "32"])
def test_columns(columns: Any) -> None:
    with refused(tp.TraceError, "a power of two from 32 to 512", repr(columns)):
        in_setup(lambda ctx: tp.TmemAllocation(ctx, columns))


def in_setup(act: Callable[[tp.Context], object]) -> tp.Program:
    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        act(ctx)

        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.syncwarp()

    return k.bind()


def test_made_in_set_up_code() -> None:
    with refused(tp.TraceError, "allocated in set-up code"):
        in_role(lambda ctx, out: tp.TmemAllocation(ctx, 32))
    with refused(tp.TraceError, "allocated in set-up code"):
        in_role(lambda ctx, out: tp.TmemDeallocBarrier(ctx))


# -- order between the roles -----------------------------------------------------------


def test_the_address_read_without_a_barrier() -> None:
    """No publish barrier: what the epilogue reads may be what was there before."""

    def hasty(p: Parts) -> None:
        p.outputs.tmem.from_shared()  # <address>
        take_all(p)
        parts_of(p)[0].signal_complete()

    def silent(p: Parts) -> None:
        p.outputs.tmem.allocate()
        fill_all(p)
        parts_of(p)[0].complete_dealloc(p.outputs.tmem)

    broken(
        tp.RaceError,
        "race on tmem_address",
        "role 'epilogue'",
        "role 'mma'",
        where("address"),
        mma=silent,
        epilogue=hasty,
    )


@pytest.mark.slow
def test_freed_while_the_epilogue_reads() -> None:
    def unasked(p: Parts) -> None:
        p.outputs.tmem.allocate()
        parts_of(p)[1].arrive()
        fill_all(p)
        p.outputs.tmem.release_lock()
        p.outputs.tmem.deallocate()  # <freed>

    cure = (
        "arrive on a barrier that role 'mma'",
        "tp.TmemDeallocBarrier does that: signal_complete() after the reads, complete_dealloc(",
    )
    broken(
        tp.RaceError,
        "race on tensor memory",
        "tmem_dealloc 64 columns",
        where("freed"),
        *cure,
        mma=unasked,
    )


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 2])
def test_done_is_said_too_early(group: int) -> None:
    def early(p: Parts) -> None:
        dealloc, published = parts_of(p)
        published.sync()
        p.outputs.tmem.from_shared()
        dealloc.signal_complete()
        take_all(p)

    if group == 1:
        broken(
            tp.RaceError,
            "race on tensor memory",
            "tmem_dealloc 64 columns",
            "role 'mma'",
            epilogue=early,
        )
    else:  # the odd CTA frees by itself, under an MMA of the even one, or before it
        broken(
            tp.SimFault,
            "tensor memory",
            "role 'mma' of CTA 0",
            "accumulators.py:",
            epilogue=early,
            group=group,
        )


def test_nobody_says_that_it_is_done() -> None:
    def silent(p: Parts) -> None:
        parts_of(p)[1].sync()
        p.outputs.tmem.from_shared()
        take_all(p)

    with refused(tp.CountError, "no role arrives on 'tmem_dealloc'", "would never pass"):
        gemm(epilogue=silent)


def test_allocated_after_the_right_was_given_up() -> None:
    def late(p: Parts) -> None:
        p.outputs.tmem.release_lock()  # <given up>
        mma(p)

    broken(
        tp.SimFault,
        "role 'mma' allocates 64 columns",
        "gave up the right",
        where("given up"),
        mma=late,
    )


# -- the barrier before it is freed ----------------------------------------------------


@pytest.mark.parametrize("group", [1, 2])
def test_every_epilogue_thread_of_the_pair_signals(group: int) -> None:
    program, out, want = gemm(group=group)
    assert counts_of(program)["tmem_dealloc"] == 128 * group
    arrivals = who_arrives(program, seed=1)
    assert np.array_equal(out, want)
    signals = {key: n for key, n in arrivals.items() if key[0] == "tmem_dealloc"}
    assert signals == {
        ("tmem_dealloc", to, "epilogue", source): 128
        for to in range(group)
        for source in range(group)
    }


def test_it_is_waited_for_before_the_columns_go() -> None:
    """And it counts whoever signals: here two warpgroups."""

    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        tmem, dealloc = tp.TmemAllocation(ctx, 32), tp.TmemDeallocBarrier(ctx, name="over")

        @ctx.role("mma", warps=1)
        def mma() -> None:
            tmem.allocate()
            dealloc.complete_dealloc(tmem)

        @ctx.role("epilogue", warpgroups=2)
        def epilogue() -> None:
            dealloc.signal_complete()

    program = k.bind()
    assert counts_of(program) == {"over": 256}
    assert program.run().completions == {"over": [[1]]}
