"""Kernels that hang, each for one planted reason; the simulator reports a deadlock for every one of
them.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tests.examples.ladder import plant
from tests.scenarios.support import at
from tests.support.ring_kernels import ring


def _where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel()
def missing_arrive(ctx: tp.Context, out: Any) -> None:
    """Two arrivals are needed, one is made."""
    ready = tp.SharedMemBarrier.allocate(ctx, count=2, name="ready")

    @ctx.role("signal", warps=1)
    def signal() -> None:
        with ctx.elect_one():
            ready.arrive()

    @ctx.role("wait", warps=2)
    def wait() -> None:
        ready.wait(0)  # <missing arrive>
        ctx.store(out[ctx.thread], 1.0)


@tp.kernel()
def bytes_off(ctx: tp.Context, a: Any, out: Any) -> None:
    """The role expects 16 bytes more than the copy delivers."""
    tile = ctx.smem((32, 32), a.dtype, swizzle=0, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")

    @ctx.role("load", warps=1)
    def load() -> None:
        with ctx.elect_one():
            full.expect_bytes(tile.nbytes + 16)
            ctx.tma_load(a, (0, 0), tile, full)

    @ctx.role("use", warps=1)
    def use() -> None:
        full.wait(0)  # <bytes off>
        ctx.store(out[ctx.lane], ctx.load(tile[0, ctx.lane]))


@tp.kernel()
def never_released(ctx: tp.Context, out: Any) -> None:
    """A ring of one slot, whose consumer does not free it."""
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
    empty = tp.SharedMemBarrier.allocate(ctx, count=1, name="empty")

    @ctx.role("fill", warps=1)
    def fill() -> None:
        for i in ctx.range(3):
            empty.wait(i + 1)  # <never released>
            with ctx.elect_one():
                full.arrive()

    @ctx.role("drain", warps=1)
    def drain() -> None:
        for i in ctx.range(3):
            full.wait(i)
        with ctx.when(ctx.thread < 0), ctx.elect_one():
            empty.arrive()
        ctx.store(out[ctx.lane], 1.0)


@tp.kernel()
def wrong_phase(ctx: tp.Context, out: Any) -> None:
    """Phase 0 has completed, and the role waits for phase 1."""
    ready = tp.SharedMemBarrier.allocate(ctx, count=1, name="ready")

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            ready.arrive()
        ctx.syncwarp()
        ready.wait(1)  # <wrong phase>
        ctx.store(out[ctx.lane], 1.0)


@tp.kernel(grid=4, cluster=2)
def silent_peer(ctx: tp.Context, out: Any) -> None:
    """CTA 0 of a cluster signals itself, and not its peer."""
    go = tp.SharedMemBarrier.allocate(ctx, count=1, name="go")

    @ctx.role("tell", warps=1)
    def tell() -> None:
        with ctx.when(ctx.cta_rank == 0), ctx.elect_one():
            go.arrive_cluster(0)

    @ctx.role("wait", warps=1)
    def wait() -> None:
        go.wait(0)  # <silent peer>
        ctx.store(out[ctx.lane], 1.0)


@tp.kernel(grid=2, cluster=2)
def cluster_barrier(ctx: tp.Context, out: Any) -> None:
    """A role of CTA 1 never reaches the cluster barrier: it waits for a later arrival."""
    go = tp.SharedMemBarrier.allocate(ctx, count=1, name="go")

    @ctx.role("meet", warps=1)
    def meet() -> None:
        ctx.cluster_arrive()
        ctx.cluster_wait()  # <cluster barrier>
        with ctx.elect_one():
            go.arrive()

    @ctx.role("late", warps=1)
    def late() -> None:
        with ctx.when(ctx.cta_rank == 1):
            go.wait(0)
        ctx.cluster_arrive()
        ctx.cluster_wait()
        ctx.store(out[ctx.lane], 1.0)


@tp.kernel()
def short_of_threads(ctx: tp.Context, out: Any) -> None:
    """A named barrier of 96 threads that 64 reach."""
    meet = ctx.named_barrier(96, "meet")

    @ctx.role("pair", warps=2)
    def pair() -> None:
        meet.sync()  # <short of threads>
        ctx.store(out[ctx.thread], 1.0)


def _out() -> Any:
    return np.zeros(64, np.float32)


def _short_consumer(ctx: tp.Context, pipe: Any, slots: Any, out: Any, n: Any) -> None:
    for i in ctx.range(n - 4):
        with pipe.consume() as stage, ctx.elect_one():
            ctx.store(out[i], ctx.load(slots[stage.index()]))


@tp.kernel(grid=2)
def lazy_throttle(ctx: tp.Context, counter: Any) -> None:
    """The load warp signals the start of a tile only once, so the scheduler asks for no further
    one.
    """
    work = tp.AtomicScheduler(ctx, counter, (20, 1))

    @ctx.role("schedule", warps=1)
    def schedule() -> None:
        work.schedule()  # <lazy throttle>

    @ctx.role("load", warps=1)
    def load() -> None:
        for tile in work:
            with ctx.when(tile.m < 2):
                work.throttle_signal()


# name -> (program, words of the HangError)
HANGS: dict[str, tuple[Callable[[], tp.Program], tuple[str, ...]]] = {
    "missing arrive": (
        lambda: missing_arrive.bind(_out()),
        (
            "role 'wait', warps 0-1, of CTA 0",
            "phase parity 0 of ready",
            "2 arrivals a phase",
            "role 'signal'",
            "missing arrive",
        ),
    ),
    "bytes off by 16": (
        lambda: bytes_off.bind(
            tp.tensor_map(np.ones((32, 32), np.float32), box=(32, 32), swizzle=0), _out()
        ),
        (
            "role 'use', warp 0, of CTA 0",
            "phase parity 0 of full",
            "mbar_expect, role 'load'",
            "tma_load, role 'load'",
            "bytes off",
        ),
    ),
    "never released": (
        lambda: never_released.bind(_out()),
        (
            "role 'fill', warp 0",
            "parity 0 of empty",
            "role 'drain', warp 0",
            "parity 1 of full",
            "never released",
        ),
    ),
    "wrong phase": (
        lambda: wrong_phase.bind(_out()),
        ("role 'one', warp 0", "phase parity 1 of ready", "wrong phase"),
    ),
    "silent peer": (
        lambda: silent_peer.bind(_out()),
        (
            "role 'wait', warp 0, of CTA ",
            "(rank 1 of cluster ",
            "phase parity 0 of go",
            "silent peer",
        ),
    ),
    "cluster barrier": (
        lambda: cluster_barrier.bind(_out()),
        (
            "role 'meet', warp 0, of CTA 0 (rank 0 of cluster 0)",
            "cluster barrier, at which 3 of 4 warps have arrived",
            "parity 0 of go",
        ),
    ),
    "short of threads": (
        lambda: short_of_threads.bind(_out()),
        (
            "role 'pair', warps 0-1, of CTA 0",
            "named barrier meet, at which 64 of 96 threads have arrived",
            "short of threads",
        ),
    ),
    "lazy throttle": (
        lambda: lazy_throttle.bind(np.zeros(1, np.int32)),
        (
            "role 'schedule', warp 0, of CTA ",
            "of work_throttle.full[",
            "role 'load', warp 0, of CTA ",
            "of work.full[",
        ),
    ),
    "unequal trip counts": (
        lambda: ring(consumer=_short_consumer)[0],
        (
            "role 'producer', warp 0, of CTA 0 waits for phase parity",
            "pipe.empty[",
            "32 arrivals a phase",
            "role 'consumer'",
        ),
    ),
}


def line(name: str) -> str:
    """`hangs.py:31`, where the wait of a kernel of this file is, or the name of the file of
    another.
    """
    marked = "unequal trip counts"
    return (
        "ring_kernels.py:"
        if name == marked
        else _where({"bytes off by 16": "bytes off"}.get(name, name))
    )


def gemm(folder: Path) -> tp.Program:
    """The GEMM in clusters of the examples, whose MMAs stop one K step early: copies and multicasts
    are in flight when it hangs.
    """
    path = plant(
        "07_cluster_multicast",
        "                for _ in ctx.range(k_steps):",
        "                for _ in ctx.range(k_steps - 1):",
        folder,
    )
    a, b = np.ones((1024, 1024), ml_dtypes.bfloat16), np.ones((1024, 1024), ml_dtypes.bfloat16)
    kernel = runpy.run_path(str(path))["gemm"]
    c = np.zeros((1024, 1024), ml_dtypes.bfloat16)
    program: tp.Program = kernel.bind(
        tp.tensor_map(a, box=(128, 64)),
        tp.tensor_map(b, box=(64, 64)),
        tp.tensor_map(c, box=(64, 64)),
    )
    return program


ROUNDS = 20


@tp.kernel(grid=8, cluster=2)
def rounds(ctx: tp.Context, out: Any) -> None:
    """No mistake: CTAs write to each other and synchronise at the cluster barrier; two roles
    synchronise at a named barrier, which takes arrivals, too.
    """
    box = ctx.smem((1, 32), "int32", swizzle=0, name="box")[0]
    words = ctx.smem((1, 32), "int32", swizzle=0, name="words")[0]
    written, read = ctx.named_barrier(64, "written"), ctx.named_barrier(64, "read")

    @ctx.role("talk", warps=1)
    def talk() -> None:
        total = ctx.var(ctx.lane * 0)
        for i in ctx.range(ROUNDS):
            ctx.store(box.on(1 - ctx.cta_rank)[0, ctx.lane], i * 3 + ctx.cta_rank)
            ctx.cluster_arrive()
            ctx.cluster_wait()
            total += ctx.load(box[0, ctx.lane])
            with ctx.when(i > 0):
                read.sync()
            ctx.store(words[0, ctx.lane], total.get())
            written.arrive()
            ctx.cluster_arrive()
            ctx.cluster_wait()

    @ctx.role("sum", warps=1)
    def sum_() -> None:
        total = ctx.var(ctx.lane * 0)
        for i in ctx.range(ROUNDS):
            ctx.cluster_arrive()
            ctx.cluster_wait()
            written.sync()
            total += ctx.load(words[0, ctx.lane])
            with ctx.when(i < ROUNDS - 1):
                read.arrive()
            ctx.cluster_arrive()
            ctx.cluster_wait()
        ctx.store(out[ctx.block_id * 32 + ctx.lane], total.get())


def rounds_expected() -> Any:
    """What `rounds` writes: Σ over rounds of the running sum of 3 i + rank of the peer."""
    ranks = 1 - np.arange(8) % 2
    running = np.cumsum(3 * np.arange(ROUNDS)[None, :] + ranks[:, None], axis=1).sum(axis=1)
    return np.repeat(running, 32).astype(np.int32)
