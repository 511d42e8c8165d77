"""Small kernels that use every member of the barriers and of ProducerConsumerPipeline, with what
NumPy says of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng

# -- barriers, arrays in shared memory, places in a ring -------------------------------


@tp.kernel(grid=2, cluster=2)
def barriers(ctx: tp.Context, out: Any) -> None:
    """Two CTAs exchange numbers by way of every method of a barrier; each wait is followed by what
    only it makes right.
    """
    near, far = (
        tp.SMemArray.stack_allocation(ctx, tp.SharedMemBarrier, 2, name) for name in ("near", "far")
    )
    for array in (near, far):
        assert array.storage_size == 8 * len(array)
        for i in range(2):
            array[i].init(1)
    words = tp.SMemArray(ctx, tp.int32, 32, "words")
    boxes = tp.SMemTileArray2DRowMajor(ctx, tp.int32, 8, 32, 2, name="boxes")
    tiles = tp.SMemTileArray2D(ctx, tp.int32, 8, 32, 2, name="tiles")
    place = tp.PipelineState(ctx, 3)

    @ctx.role("one", warps=1)
    def one() -> None:
        peer = 1 - ctx.cta_rank
        mine = ctx.block_id * 100 + ctx.lane
        box: Any = boxes.tile(1)
        ctx.store(words[ctx.lane], mine)
        with ctx.elect_one():
            near[0].unsafe_ptr().arrive()
        near[0].wait(0)
        with ctx.elect_one():
            near[0].expect_bytes(16)
            near[0].complete_transaction(None, 16)
        near[0].wait_acquire(1)
        with ctx.elect_one():
            near[0].expect_bytes_relaxed(32)
            near[0].complete_transaction(None, 32)
        near[0].wait_relaxed(2)
        ctx.syncwarp()
        ctx.store(box.on(peer)[0, ctx.lane], ctx.load(words[31 - ctx.lane]))
        ctx.syncwarp()
        with ctx.elect_one():
            far[0].arrive_cluster(peer)
        far[0].wait(0)
        ctx.store(out[4 * ctx.block_id, ctx.lane], ctx.load(box[0, ctx.lane]))
        ctx.store(box.on(peer)[1, ctx.lane], mine + 1000)
        ctx.syncwarp()
        far[1].arrive_and_expect_bytes(48, peer, ctx.lane == 3)
        with ctx.elect_one():
            far[1].complete_transaction(peer, 48)
        far[1].wait(0)
        ctx.store(tiles.tile(1)[2, ctx.lane], ctx.load(box[1, 31 - ctx.lane]))
        ctx.store(out[4 * ctx.block_id + 1, ctx.lane], ctx.load(tiles.tile(1)[2, ctx.lane]))
        passed, running = near[0].try_wait(2), near[0].try_wait(3)
        ctx.store(
            out[4 * ctx.block_id + 2, ctx.lane],
            ctx.select(passed, 1, 0) + ctx.select(running, 10, 0),
        )
        for _ in ctx.range(4):
            place.step()
        before = place.index() * 10 + place.phase()
        ctx.store(
            out[4 * ctx.block_id + 3, ctx.lane],
            before * 100 + place.next().index() * 10 + place.phase(),
        )
        ctx.cluster_arrive()
        ctx.cluster_wait()


def made_barriers(rng: Rng) -> Made:
    del rng
    lanes, out = np.arange(32), np.zeros((8, 32), np.int32)
    want = np.zeros((8, 32), np.int64)
    for cta in range(2):
        peer = 100 * (1 - cta) + 31 - lanes
        want[4 * cta : 4 * cta + 4] = peer, peer + 1000, np.ones(32), np.full(32, 1121)
    return barriers.bind(out), out, want, 0


# -- ProducerConsumerPipeline ----------------------------------------------------------


@tp.kernel()
def flat_ring(ctx: tp.Context, a: Any, out: Any) -> None:
    """out[i] = 2 a[i] through a ring of three, by waits, tries, barriers and steps."""
    storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 6, "ring")
    ring = tp.ProducerConsumerPipeline(storage, 3, name="ring")
    assert ring.smem_bytes() == storage.storage_size
    ring.init_mbars(32, 32)
    words = ctx.smem((3, 32), a.dtype, swizzle=0, name="words")[0]

    @ctx.role("fill", warps=1)
    def fill() -> None:
        for i in ctx.range(0, a.shape[0], 2):
            for j in range(2):
                if j:
                    ring.wait_consumer_if_needed(ring.try_wait_consumer())
                else:
                    ring.wait_consumer()
                stage = ring.producer_stage()
                ctx.store(words[stage, ctx.lane], ctx.load(a[i + j, ctx.lane]))
                (ring.full[stage] if j else ring.producer_mbar(stage)).arrive()
                ring.producer_step()

    @ctx.role("use", warps=1)
    def use() -> None:
        other = ring.copy()  # another reader, which keeps the pace
        for i in ctx.range(0, a.shape[0], 2):
            for j in range(2):
                if j:
                    ring.wait_producer_if_needed(ring.try_wait_producer())
                else:
                    ring.wait_producer()
                stage = ring.consumer_stage()
                ctx.store(out[i + j, ctx.lane], 2 * ctx.load(words[stage, 31 - ctx.lane]))
                ring.consumer_step()
                (
                    ring.empty[other.consumer_stage()]
                    if j
                    else ring.consumer_mbar(other.consumer_stage())
                ).arrive()
                other.consumer_step()


@tp.kernel()
def stages(ctx: tp.Context, a: Any, out: Any) -> None:
    """out[i] = 2 a[i] through a ring of three, by each kind of handle and context in turn."""
    ring = tp.ProducerConsumerPipeline.allocate(ctx, 3, name="ring")
    words = ctx.smem((3, 32), a.dtype, swizzle=0, name="words")[0]

    def write(stage: Any, i: Any) -> None:
        ctx.store(words[stage.index(), ctx.lane], ctx.load(a[i, ctx.lane]))
        stage.mbar().arrive()

    def read(stage: Any, i: Any) -> None:
        ctx.store(out[i, ctx.lane], 2 * ctx.load(words[stage.index(), 31 - ctx.lane]))

    @ctx.role("fill", warps=1)
    def fill() -> None:
        for i in ctx.range(0, a.shape[0], 2):
            with ring.produce() as entered:
                write(entered, i)
            held = ring.acquire_producer()
            write(held, i + 1)
            held.release()

    @ctx.role("use", warps=1)
    def use() -> None:
        for i in ctx.range(0, a.shape[0], 4):
            with ring.consume() as entered:
                read(entered, i)
            with ring.consume_explicit() as explicit:
                read(explicit, i + 1)
                explicit.arrive()
            held = ring.acquire_consumer()
            read(held, i + 2)
            held.release()
            last = ring.acquire_consumer()
            read(last, i + 3)
            last.mbar().arrive()
            last.release_without_signal()


@tp.kernel()
def signals(ctx: tp.Context, a: Any, out: Any) -> None:
    """out[i] = 2 a[i]: rows of their own in shared memory, and a ring that says how many there
    are.
    """
    ring = tp.ProducerConsumerPipeline.allocate(
        ctx, 3, producer_arrivals=32, consumer_arrivals=32, name="ring"
    )
    words = ctx.smem((64, 32), a.dtype, swizzle=0, name="words")[0]

    @ctx.role("fill", warps=1)
    def fill() -> None:
        for i in ctx.range(a.shape[0]):
            ctx.store(words[i, ctx.lane], ctx.load(a[i, ctx.lane]))
            ring.producer_signal_and_step()

    @ctx.role("use", warps=1)
    def use() -> None:
        for i in ctx.range(a.shape[0]):
            ring.consumer_signal_and_step()
            ctx.store(out[i, ctx.lane], 2 * ctx.load(words[i, 31 - ctx.lane]))


def doubled(kernel: tp.KernelFunction, rows: int = 44) -> Any:
    def make(rng: Rng) -> Made:
        a = rng.integers(1, 100, (rows, 32)).astype(np.float32)
        out = np.zeros_like(a)
        return kernel.bind(a, out), out, 2 * a[:, ::-1], 0

    return make


# for the checker, since each test doubles what there is to look at
SHORT = {"flat_ring": doubled(flat_ring, 4)}
CASES = [
    Case("barriers", made_barriers),
    *(Case(kernel.name, doubled(kernel)) for kernel in (flat_ring, stages, signals)),
]
