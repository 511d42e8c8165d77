"""Faults whose first symptom stands far from their cause: the message names the cause.

The kernels use barriers by hand, whose counts nothing derives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults


def where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel(grid=2, cluster=2)
def shared_b(ctx: tp.Context, b: Any, *, mask: int | None, twice: bool) -> None:
    """CTA 0 loads every tile for both CTAs, into a ring of two; both consumers must free a stage in
    both.
    """
    steps = 6
    tiles = tp.SMemTileArray2D(ctx, b.dtype, 16, 16, 2, name="tiles")
    full = tp.SMemArray.stack_allocation(ctx, tp.SharedMemBarrier, 2, name="filled")
    empty = tp.SMemArray.stack_allocation(ctx, tp.SharedMemBarrier, 2, name="freed")
    for i in range(2):
        full[i].init(1)
        empty[i].init(2)

    @ctx.role("load", warps=1)
    def load() -> None:
        state = tp.PipelineState(ctx, 2, phase=1)
        for k in ctx.range(steps):
            stage = state.index()
            empty[stage].wait(state.phase())
            with ctx.elect_one():
                full[stage].expect_bytes(512)  # <announced>
            with ctx.when(ctx.cta_rank == 0), ctx.elect_one():
                tile, barrier = tiles[stage], full[stage]
                ctx.tma_load(b, (0, 16 * k), tile, barrier, multicast=3)  # <copied to both>
            state.step()
        for _ in range(2):
            empty[state.index()].wait(state.phase())
            state.step()

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((64, 16))
        acc.fill(0)
        a = ctx.fragment(shape=(64, 16), dtype="bfloat16")
        a.fill(1)
        state = tp.PipelineState(ctx, 2)
        for _ in ctx.range(steps):
            full[state.index()].wait(state.phase())  # <consumer waits>
            ctx.mma(acc, a, tiles[state.index()])
            ctx.mma_commit(empty[state.index()], mask=mask)  # <commit>
            if twice:
                with ctx.when(ctx.cta_rank == 0), ctx.elect_one("warpgroup"):
                    empty[state.index()].arrive_cluster(1)  # <again>
            ctx.wgmma_wait(0)
            state.step()


def bind_shared_b(mask: int | None = 3, twice: bool = False) -> tp.Program:
    b = np.ones((16, 96), tp.bfloat16.numpy)
    return shared_b.bind(tp.tensor_map(b, box=(16, 16)), mask=mask, twice=twice)


@pytest.mark.slow
def test_a_commit_to_both_ctas() -> None:
    for run in clean(bind_shared_b()):
        assert run.completions == {"filled": [[3, 3]] * 2, "freed": [[3, 3]] * 2}


@pytest.mark.parametrize(("mask", "reached", "got"), [(None, 1, 1), (1, 0, 0)])
def test_a_commit_without_its_peers_is_blamed_and_not_the_bytes(
    mask: int | None, reached: int, got: int
) -> None:
    faults(
        bind_shared_b(mask),
        tp.DeadlockError,
        f"what to look at: freed[0] of CTA {1 - reached} gets {got} of the 2 arrivals of a phase",
        f"at {where('commit')} reaches only the copy in CTA rank {reached}",
        "mask= (0b11: all of this cluster)",
    )


def test_two_arrivals_of_one_cta_in_a_phase_are_blamed() -> None:
    """Whatever fault the second arrival leads to first: over-arrival, a lapped wait, an exit that
    is too early.
    """
    kinds = set()
    for seed in range(8):
        with pytest.raises(tp.SimFault) as caught:
            bind_shared_b(twice=True).run(seed=seed)
        assert "was completed by two arrivals of role 'mma' of CTA 0" in str(caught.value)
        kinds.add(type(caught.value))
    assert kinds == {tp.BarrierError, tp.ExitError}


@tp.kernel()
def ring_by_hand(ctx: tp.Context, src: Any, out: Any, *, flip: bool, commit_full: bool) -> None:
    """Six tiles through a ring of one, with parities as Python numbers in a loop that is
    unrolled.
    """
    tile = tp.SMemTileArray2D(ctx, src.dtype, 8, 16, 1, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, name="filled")
    empty = tp.SharedMemBarrier.allocate(ctx, name="freed")

    @ctx.role("load", warps=1)
    def load() -> None:
        for k in range(6):
            empty.wait((k + 1) % 2 if flip else 1)  # <load waits>
            with ctx.elect_one():
                full.expect_bytes(256)
                ctx.tma_load(src, (0, 16 * k), tile, full)

    @ctx.role("read", warps=1)
    def read() -> None:
        for k in range(6):
            full.wait(k % 2)
            with ctx.when(ctx.lane < 16):
                ctx.store(out[k, ctx.lane], ctx.load(tile[0, ctx.lane]))
            ctx.syncwarp()
            with ctx.elect_one():
                if commit_full:
                    full.arrive()  # <one more>
                empty.arrive()


def bind_by_hand(flip: bool = True, commit_full: bool = False) -> tp.Program:
    src = np.ones((8, 96), tp.bfloat16.numpy)
    out = np.zeros((6, 16), np.float32)
    return ring_by_hand.bind(
        tp.tensor_map(src, box=(8, 16)), out, flip=flip, commit_full=commit_full
    )


def test_a_ring_by_hand() -> None:
    clean(bind_by_hand())


def test_a_wait_that_passed_on_an_old_phase_is_blamed() -> None:
    """Its barrier is complete for that parity, so the producer overruns the ring: told as
    over-arrival, or as lapped.
    """
    words = (
        f"role 'load' did not wait at {where('load waits')}: in round 2 on freed it gave parity 1",
        "again, that of the phase before the first, which was already complete",
        "passed at once and ran ahead",
        "comes with phase 0 of freed: wait with parity 0, and flip the parity in each round",
    )
    faults(bind_by_hand(flip=False), tp.SimFault, *words)


def test_an_arrival_on_a_barrier_that_bytes_complete_is_blamed() -> None:
    words = (
        "the bytes of the TMA copies at",
        "complete the phases of filled",
        f"the arrival of role 'read' at {where('one more')} is one more than its count of 1",
    )
    faults(bind_by_hand(commit_full=True), tp.SimFault, *words)
