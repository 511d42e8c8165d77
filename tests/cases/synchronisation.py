"""Barriers of every kind, and clusters, as small kernels with what NumPy says of them, for the
simulator, for NVRTC, and for a GPU. The numbers depend on the order that the barriers make.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng

# -- barriers --------------------------------------------------------------------------


@tp.kernel()
def polled(ctx: tp.Context, a: Any, out: Any) -> None:
    """out[i] = a[i] + 1 through a ring of two slots; both sides test before they wait."""
    ring = tp.ProducerConsumerPipeline.allocate(
        ctx, 2, producer_arrivals=32, consumer_arrivals=32, name="ring"
    )
    words = ctx.smem((1, 32), "float32", count=2, swizzle=0, name="words")

    @ctx.role("fill", warps=1)
    def fill() -> None:
        for i in ctx.range(a.shape[0]):
            ready = ring.try_wait_consumer()
            x = ctx.load(a[i, ctx.lane])
            ring.wait_consumer_if_needed(ready)
            stage = ring.producer_stage()
            ctx.store(words[stage][0, ctx.lane], x)
            ring.producer_mbar(stage).arrive()
            ring.producer_step()

    @ctx.role("use", warps=1)
    def use() -> None:
        for i in ctx.range(a.shape[0]):
            ready = ring.try_wait_producer()
            ring.wait_producer_if_needed(ready)
            stage = ring.consumer_stage()
            ctx.store(out[i, 31 - ctx.lane], ctx.load(words[stage][0, 31 - ctx.lane]) + 1)
            ring.consumer_mbar(stage).arrive()
            ring.consumer_step()


def polling(rng: Rng) -> Made:
    a = rng.integers(-9, 9, (37, 32)).astype(np.float32)
    out = np.zeros_like(a)
    return polled.bind(a, out), out, a + 1, 0


@tp.kernel()
def reborn(ctx: tp.Context, out: Any) -> None:
    """A barrier ends its life and is initialised with another count; bytes are announced and
    credited without a copy.
    """
    bar = tp.SharedMemBarrier.allocate(ctx, 1, "bar")
    word = ctx.smem((1, 32), "int32", swizzle=0, name="word")[0]

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            bar.expect_bytes_only(64)
            bar.complete_transaction(None, 48)
            bar.expect_bytes(16)
            bar.complete_transaction(None, 32)
        bar.wait(0)
        ctx.syncwarp()
        with ctx.elect_one():
            bar.inval()
            bar.init(33)
            ctx.fence_barrier_init()
        ctx.syncwarp()
        for i in ctx.range(3):
            ctx.store(word[0, ctx.lane], i * 100 + ctx.lane)
            bar.arrive()
            with ctx.elect_one():
                bar.arrive()
            bar.wait(i)
            ctx.store(out[i, ctx.lane], ctx.load(word[0, 31 - ctx.lane]))
            ctx.syncwarp()


def rebirth(rng: Rng) -> Made:
    del rng
    out = np.zeros((3, 32), np.int32)
    return reborn.bind(out), out, 100 * np.arange(3)[:, None] + 31 - np.arange(32), 0


@tp.kernel()
def meetings(ctx: tp.Context, out: Any, *, rounds: int) -> None:
    """Named barriers: of a warpgroup, of a role, and between roles, one of which only arrives."""
    words = ctx.smem((2, 128), "int32", swizzle=0, name="words")[0]
    sums = ctx.smem((1, 32), "int32", swizzle=0, name="sums")[0]
    written, read = ctx.named_barrier(256 + 32, "written"), ctx.named_barrier(256 + 32, "read")

    @ctx.role("write", warpgroups=2)
    def write() -> None:
        group, mine = ctx.warpgroup_rank, ctx.thread % 128
        for i in ctx.range(rounds):
            with ctx.when(i > 0):
                read.sync()
            ctx.store(words[group, mine], mine + i)
            ctx.sync_warpgroup()
            other = ctx.load(words[group, 127 - mine])
            ctx.sync_role()
            across = ctx.load(words[1 - group, mine])
            ctx.sync_role()
            ctx.store(words[group, mine], other + across * 1000)
            ctx.sync_role()
            written.arrive()

    @ctx.role("add", warps=1)
    def add() -> None:
        total = ctx.var(ctx.lane * 0)
        for i in ctx.range(rounds):
            written.sync()
            for j in ctx.range(4):
                total += ctx.load(words[0, ctx.lane + 32 * j])
            with ctx.when(i < rounds - 1):
                read.arrive()
        ctx.store(sums[0, ctx.lane], total.get())
        ctx.syncwarp()
        ctx.store(out[ctx.lane], ctx.load(sums[0, 31 - ctx.lane]))


def meeting(rng: Rng) -> Made:
    del rng
    out, want, mine = np.zeros(32, np.int32), np.zeros(32, np.int64), np.arange(128)
    for i in range(5):
        want += ((127 - mine + i) + (mine + i) * 1000).reshape(4, 32).sum(axis=0)
    return meetings.bind(out, rounds=5), out, want[::-1], 0


# -- clusters --------------------------------------------------------------------------


@tp.kernel(grid=lambda size: 2 * size, cluster=lambda size: size)
def passed_round(ctx: tp.Context, out: Any, *, size: int, rounds: int) -> None:
    """Each CTA writes to the next one of its cluster and arrives there; the reader frees the writer
    with a count of 3.
    """
    box = ctx.smem((1, 32), "int32", swizzle=0, name="box")[0]
    got, read = (
        tp.SharedMemBarrier.allocate(ctx, 32, "got"),
        tp.SharedMemBarrier.allocate(ctx, 3, "read"),
    )

    @ctx.role("one", warps=1)
    def one() -> None:
        after, before = (ctx.cta_rank + 1) % size, (ctx.cta_rank + size - 1) % size
        mine = ctx.var(ctx.block_id * 100 + ctx.lane)
        for i in ctx.range(rounds):
            ctx.store(box.on(after)[0, ctx.lane], mine.get())
            got.arrive_cluster(after)
            got.wait(i)
            mine.set(ctx.load(box[0, 31 - ctx.lane]) + 1)
            ctx.syncwarp()
            with ctx.elect_one():
                read.arrive_cluster(before, 3)
            read.wait(i)
        ctx.store(out[ctx.block_id, ctx.lane], mine.get())


def passing(size: int, rounds: int = 7) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        del rng
        out = np.zeros((2 * size, 32), np.int32)
        held = 100 * np.arange(2 * size)[:, None] + np.arange(32)
        for _ in range(rounds):
            held = np.roll(held.reshape(2, size, 32), 1, axis=1).reshape(2 * size, 32)[:, ::-1] + 1
        return passed_round.bind(out, size=size, rounds=rounds), out, held, 0

    return make


@tp.kernel(grid=lambda size: size, cluster=lambda size: size)
def everybody(ctx: tp.Context, out: Any, *, size: int) -> None:
    """Each CTA reads and writes the memory of all others, between cluster barriers; bytes are
    credited from afar.
    """
    box = ctx.smem((8, 32), "int32", swizzle=0, name="box")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("one", warps=1)
    def one() -> None:
        for peer in range(size):
            ctx.store(box.on(peer)[ctx.cta_rank, ctx.lane], ctx.cta_rank * 10 + peer + 1)
        ctx.cluster_arrive()
        ctx.cluster_wait()
        total = ctx.var(ctx.lane * 0)
        for peer in range(size):
            total += ctx.load(box[peer, ctx.lane])
            total += ctx.load(box.on(peer)[ctx.cta_rank, ctx.lane]) * 1000
        with ctx.elect_one():
            after = (ctx.cta_rank + 1) % size
            full.arrive_and_expect_bytes(48, after)
            full.complete_transaction(after, 48)
        full.wait(0)
        ctx.store(out[ctx.block_id, ctx.lane], total.get())
        ctx.cluster_arrive()
        ctx.cluster_wait()


def together(size: int) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        del rng
        out, ranks = np.zeros((size, 32), np.int32), np.arange(size)
        near = 10 * ranks.sum() + size * (ranks + 1)
        far = (10 * ranks * size + ranks.sum() + size) * 1000
        return everybody.bind(out, size=size), out, np.repeat((near + far)[:, None], 32, axis=1), 0

    return make


CASES = [
    Case(name, make)
    for name, make in {
        "polled": polling,
        "reborn": rebirth,
        "meetings": meeting,
        **{f"passed_round_{size}": passing(size) for size in (1, 2, 4, 8)},
        **{f"everybody_{size}": together(size) for size in (1, 2, 4, 8)},
    }.items()
]
