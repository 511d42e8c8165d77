"""Accumulators in tensor memory, handed between the MMA warp and the epilogue: every part of the
handover left out in turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults, matrix, zeros

M, N, K = 128, 32, 16


def where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel()
def turns(ctx: tp.Context, a: Any, b: Any, c: Any, *, fault: str) -> None:
    """Two products, one after the other, in the same columns; `fault`: what is wrong."""
    a_tile, b_tile = (
        ctx.smem((M, K), a.dtype, name="a_tile")[0],
        ctx.smem((N, K), b.dtype, name="b_tile")[0],
    )
    full, done, free, placed = (
        tp.SharedMemBarrier.allocate(ctx, count, name) for name, count in counts(fault).items()
    )
    tmem = tp.TmemAllocation(ctx, 32)
    over = tp.TmemDeallocBarrier(ctx)

    @ctx.role("mma", warps=1)
    def mma() -> None:
        tmem.allocate()  # <allocate>
        placed.arrive()
        with ctx.elect_one():
            full.expect_bytes(a_tile.nbytes + b_tile.nbytes)
            ctx.tma_load(a, (0, 0), a_tile, full)
            ctx.tma_load(b, (0, 0), b_tile, full)
        full.wait(0)
        acc = tmem.tensor((M, N))
        for i in range(2):
            if i and fault != "mma does not wait":
                free.wait(0)
                if fault != "no after in mma":
                    ctx.tcgen05_fence_after()
            with ctx.when(ctx.lane == 0):
                ctx.mma(acc, a_tile, b_tile, accumulate=fault == "adds to nothing")  # <mma>
            with ctx.when(ctx.lane == (1 if fault == "another lane commits" else 0)):
                ctx.mma_commit(done)  # <commit>
        over.complete_dealloc(tmem)  # <free>

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        if fault != "address not awaited":
            placed.wait(0)
        tmem.from_shared()  # <address>
        acc = tmem.tensor((M, N))
        for i in range(2):
            done.wait(i)
            if fault != "no after in epilogue":
                ctx.tcgen05_fence_after()
            x = acc.load()  # <load>
            if fault == "fence before the wait":
                ctx.tcgen05_fence_before()
            if fault not in ("read before the wait", "arrive before the wait"):
                ctx.tmem_wait_load()
            if fault not in ("no before", "fence before the wait", "fence by one lane"):
                ctx.tcgen05_fence_before()
            if fault == "fence by one lane":
                ctx.sync_warpgroup()
                with ctx.elect_one("warpgroup"):
                    ctx.tcgen05_fence_before()
                    free.arrive()
            elif fault == "relaxed":
                tp.umma_arrive_leader_cta(free)
            elif fault != "read before the wait":
                free.arrive()
            if fault == "arrive before the wait":
                ctx.tmem_wait_load()
            ctx.store_global(c, (M * i, 0), x)  # <use>
            if fault == "read before the wait":
                ctx.tmem_wait_load()
                free.arrive()
        over.signal_complete()


def counts(fault: str) -> dict[str, int]:
    return {"full": 1, "done": 1, "free": 1 if fault == "fence by one lane" else 128, "placed": 32}


def bind(fault: str) -> tuple[tp.Program, Any, Any]:
    a, b, c = matrix(M, K, 1), matrix(N, K, 2), zeros(2 * M, N)
    program = turns.bind(tp.tensor_map(a, box=(M, K)), tp.tensor_map(b, box=(N, K)), c, fault=fault)
    return program, c, np.tile(a.astype(np.float32) @ b.astype(np.float32).T, (2, 1))


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["none", "relaxed"])
def test_the_handover(fault: str) -> None:
    program, c, reference = bind(fault)
    for run in clean(program, range(8)):
        assert run.completions["done"] == [[2]]
        assert run.completions["free"] == [[2]]
        assert (c == reference).all()


BEFORE, AFTER = "no tcgen05.fence::before_thread_sync", "no tcgen05.fence::after_thread_sync"
MMA, LOAD = "tcgen05_mma tmem[", "tmem_load tmem["
FAULTS = {
    "mma does not wait": ("race on tensor memory", MMA, LOAD),
    "no after in mma": (
        AFTER,
        LOAD,
        "role 'mma' must execute ctx.tcgen05_fence_after()",
        where("load"),
        where("mma"),
    ),
    "no after in epilogue": (
        AFTER,
        MMA,
        "role 'epilogue' must execute",
        where("mma"),
        where("load"),
    ),
    "no before": (
        BEFORE,
        LOAD,
        "reads lanes 0..31, columns 0..31",
        "writes lanes 0..127, columns 0..31",
        "ctx.tcgen05_fence_before() before it arrives",
        where("load"),
        where("mma"),
    ),
    "fence before the wait": (BEFORE, "after its wait (ctx.tmem_wait_load())", where("mma")),
    "fence by one lane": (BEFORE, "every thread of role 'epilogue' that made the access"),
    "read before the wait": (
        "reads fragment",
        "a load from tensor memory",
        "ctx.tmem_wait_load()",
        where("use"),
    ),
    "arrive before the wait": (
        "race on tensor memory",
        "is over when its warp has executed ctx.tmem_wait_load()",
        where("load"),
    ),
    "address not awaited": (
        "race on tmem_address",
        "role 'mma'",
        "role 'epilogue'",
        where("address"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_handover_lacks(fault: str) -> None:
    # seeds that run the other role first see other faults
    if fault in ("arrive before the wait", "address not awaited"):
        faults(bind(fault)[0], tp.RaceError, *FAULTS[fault], seeds=(0,))
        faults(bind(fault)[0], tp.SimFault)
        return
    words = FAULTS[fault]
    if words[0] not in (BEFORE, AFTER):
        faults(bind(fault)[0], tp.RaceError, *words)
        return
    faults(bind(fault)[0], tp.RaceError, "strict rules, tcgen05 fences", *words, rules="strict")
    program, c, reference = bind(fault)
    # what compilers print: the barriers acquire and release
    for run in (program.run(seed=seed) for seed in range(4)):
        assert any(words[0] in line for line in run.advice)
        assert all(
            line.startswith('tcgen05 fences (a fault with rules="strict")') for line in run.advice
        )
        assert (c == reference).all()
    assert program.check().ok


def test_a_commit_by_another_lane_covers_nothing() -> None:
    words = (
        "was issued by lane 0 of role 'mma'",
        "committed by lane 1 of role 'mma'",
        "a commit covers only",
    )
    faults(bind("another lane commits")[0], tp.RaceError, *words, where("commit"))


def test_the_first_mma_adds_to_what_nothing_has_written() -> None:
    words = (
        "role 'mma' reads tensor memory",
        "4096 of 4096 elements were never written",
        "accumulate=False",
        "`k > 0`",
        where("mma"),
    )
    faults(bind("adds to nothing")[0], tp.PoisonError, *words)
