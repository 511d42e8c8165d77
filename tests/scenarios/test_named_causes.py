"""Planted bugs whose consequence stands elsewhere: the message names the cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, faults, matrix, refuted, zeros
from tests.support import staged_kernels as staged
from tests.support.staged_kernels import (
    HOPPER,
    Rings,
    bind,
    hopper,
    load_tile,
    multiply_k,
    multiply_v,
)

Ring = tp.ProducerConsumerPipeline


def where(mark: str) -> str:
    return at(__file__, mark)


# -- staged rings ----------------------------------------------------------------------


def attend_twice_released(r: Rings, o: Any, q: Any, tiles: Any) -> None:
    ctx, cfg = r.ctx, r.cfg
    s, p = ctx.accumulator((64, cfg.BN)), ctx.fragment(shape=(64, cfg.BN), dtype=cfg.qkv_dtype)
    for _ in ctx.range(tiles):
        multiply_k(r, s, q)
        ctx.wgmma_wait(0)
        p.set(s.to(cfg.qkv_dtype))
        multiply_v(r, o, p)
        r.vc.release_v()  # <second release>
        ctx.wgmma_wait(0)


def load_with_two_steps(r: Rings, k: Any, v: Any, tiles: Any) -> None:
    for n in r.ctx.range(tiles):
        load_tile(r, k, v, n)
        r.k.commit_step()
    r.k.drain()
    r.v.drain()


@pytest.mark.slow
def test_a_staged_ring_is_released_twice() -> None:
    """The second release frees the stage after, which nobody has read: told at the load that was
    let in, or at its lapped wait.
    """
    program = bind(hopper(use=attend_twice_released), HOPPER, *staged.operands(HOPPER, 5)[:4])
    words = (
        "v.empty[1]",
        "role 'mma' warpgroup",
        "One release for each wait that passed on v.full[1]",
        "a second release",
    )
    faults(program, tp.SimFault, *words, where("second release"), seeds=range(8))


def test_a_staged_ring_is_stepped_twice() -> None:
    program = bind(hopper(load=load_with_two_steps), HOPPER, *staged.operands(HOPPER, 5)[:4])
    words = (
        "deadlock",
        "k.full[0] has completed",
        "k.full[2] none",
        "whoever fills them passes some over",
        "a second step or release",
    )
    faults(program, tp.DeadlockError, *words)


# -- plain rings -----------------------------------------------------------------------


def ring_of(producer: Callable[..., None], consumer: Callable[..., None]) -> tp.Program:
    """Six items through two slots of 32 words, by roles that do everything by hand."""

    @tp.kernel()
    def by_hand(ctx: tp.Context, out: Any) -> None:
        ring = Ring.allocate(ctx, 2, producer_arrivals=32, consumer_arrivals=32, name="ring")
        words = ctx.smem((1, 32), "int32", count=2, swizzle=0, name="words")

        @ctx.role("producer", warps=1)
        def _() -> None:
            for i in ctx.range(6):
                producer(ctx, ring, words, i)

        @ctx.role("consumer", warps=1)
        def _() -> None:
            for i in ctx.range(6):
                consumer(ctx, ring, words, out, i)

    return by_hand.bind(np.zeros((6, 32), np.int32))


def fill(ctx: tp.Context, ring: Ring, words: Any, i: Any) -> None:
    ring.wait_consumer()
    fill_at_once(ctx, ring, words, i)


def fill_at_once(ctx: tp.Context, ring: Ring, words: Any, i: Any) -> None:
    ctx.store(words[ring.producer_stage()][0, ctx.lane], i)
    ring.producer_mbar(ring.producer_stage()).arrive()  # <fills>
    ring.producer_step()


def taker(steps: int = 1, arrivals: int = 1) -> Callable[..., None]:
    def take(ctx: tp.Context, ring: Ring, words: Any, out: Any, i: Any) -> None:
        ring.wait_producer()
        stage = ring.consumer_stage()
        ctx.store(out[i, ctx.lane], ctx.load(words[stage][0, ctx.lane]))
        for _ in range(arrivals):
            ring.consumer_mbar(stage).arrive()  # <frees>
        for _ in range(steps):
            ring.consumer_step()

    return take


def test_the_consumer_steps_twice() -> None:
    program = ring_of(fill, taker(steps=2))
    faults(
        program,
        tp.DeadlockError,
        "ring.empty[0] has completed 2 phases, ring.empty[1] none",
        "whoever releases them passes some over",
    )


def test_the_consumer_frees_a_stage_twice() -> None:
    program = ring_of(fill, taker(arrivals=2))
    words = (
        "Released out of turn: the arrival in phase 1 of ring.empty[",
        "is release number 2 of that stage",
        "has been filled once",
    )
    faults(program, tp.BarrierError, *words, where("frees"), seeds=[0, 1, 2])


def test_the_producer_fills_without_waiting() -> None:
    program = ring_of(fill_at_once, taker())
    words = (
        "Filled out of turn: the arrival in phase",
        "of ring.full[",
        "of that stage",
        "Wait for ring.empty[",
        where("fills"),
    )
    faults(program, tp.SimFault, *words, seeds=[0])


# -- MMAs in no group ------------------------------------------------------------------


@tp.kernel()
def uncommitted(ctx: tp.Context, a: Any, b: Any, out: Any, *, again: bool) -> None:
    """One product, whose group is never closed; `again`: its tiles are loaded a second time."""
    a_tile, b_tile = (
        ctx.smem((64, 16), a.dtype, name="a_tile")[0],
        ctx.smem((8, 16), b.dtype, name="b_tile")[0],
    )
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((64, 8))
        acc.fill(0)
        for i in range(2 if again else 1):
            with ctx.elect_one("warpgroup"):
                full.expect_bytes(72 * 32)
                ctx.tma_load(a, (0, 0), a_tile, full)  # <reloads>
                ctx.tma_load(b, (0, 0), b_tile, full)
            full.wait(i)
            ctx.mma(acc, a_tile, b_tile)  # <mma>
            ctx.wgmma_wait(0)
            ctx.sync_warpgroup()
        ctx.store_global(out, (0, 0), acc)  # <stores>


def bind_uncommitted(again: bool) -> tp.Program:
    maps = (tp.tensor_map(matrix(64, 16), box=(64, 16)), tp.tensor_map(matrix(8, 16), box=(8, 16)))
    return uncommitted.bind(*maps, zeros(64, 8), again=again)


def test_the_sum_of_an_mma_in_no_group_is_read() -> None:
    words = (
        "reads fragment 'acc'",
        "while 1 wgmma that writes it is in flight. The one at",
        "is in no committed group",
        "ctx.wgmma_commit()",
        where("mma"),
        where("stores"),
    )
    faults(bind_uncommitted(again=False), tp.RaceError, *words)


def test_the_tiles_of_an_mma_in_no_group_are_overwritten() -> None:
    words = (
        "race on a_tile",
        "A wgmma reads its tiles",
        "It is in no committed group: commit it first",
        where("mma"),
        where("reloads"),
    )
    faults(bind_uncommitted(again=True), tp.RaceError, *words)


# -- an agent that runs ahead ----------------------------------------------------------


@tp.kernel()
def hurried(ctx: tp.Context, out: Any) -> None:
    """Two warps write two words each and arrive after each, on one barrier of count 2."""
    words = ctx.smem((1, 32), "int32", count=2, swizzle=0, name="words")
    full = tp.SharedMemBarrier.allocate(ctx, 2, "full")

    @ctx.role("writer", warps=2)
    def writer() -> None:
        for i in range(2):
            with ctx.elect_one():
                ctx.store(words[i][0, ctx.warp], i)
                full.arrive()  # <arrives again>

    @ctx.role("reader", warps=1)
    def reader() -> None:
        full.wait(0)
        with ctx.elect_one():
            for warp in range(2):
                ctx.store(out[warp], ctx.load(words[0][0, warp]))  # <reads the first>


def test_two_arrivals_of_one_warp_complete_a_phase() -> None:
    words = (
        "race on words[0]",
        "of full was completed by two arrivals of role 'writer' warp",
        "in the place of that of role 'writer' warp",
    )
    for seed in (1, 2, 3):
        with pytest.raises(tp.RaceError) as caught:
            hurried.bind(np.zeros(2, np.int32)).run(seed=seed)
        assert all(word in str(caught.value) for word in (*words, where("arrives again"))), (
            caught.value
        )
    refuted(
        hurried.bind(np.zeros(2, np.int32)),
        tp.SimFault,
        "role 'reader'",
        *words[1:],
        where("arrives again"),
    )
