"""Hazards between roles and proxies on shared memory (G16-G28)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults, matrix, refuted, verified, zeros
from tilepipe.machine.rules import Rules


def where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel()
def overwritten(ctx: tp.Context, a: Any, b: Any, *, waits: bool) -> None:
    """A consumer multiplies from a tile and hands it back, with or without waiting for the MMA; the
    producer loads it again.
    """
    a_tile, b_tile = (
        ctx.smem((64, 16), a.dtype, name="a_tile"),
        ctx.smem((8, 16), b.dtype, name="b_tile"),
    )
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")
    empty = tp.SharedMemBarrier.allocate(ctx, 1, "empty")

    @ctx.role("load", warps=1)
    def load() -> None:
        for i in range(2):
            if i:
                empty.wait(0)
            with ctx.elect_one():
                full.expect_bytes(72 * 32)
                ctx.tma_load(a, (0, 0), a_tile[0], full)  # <refill>
                ctx.tma_load(b, (0, 0), b_tile[0], full)
        empty.wait(1)

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((64, 8))
        acc.fill(0)
        for i in range(2):
            full.wait(i)
            ctx.mma(acc, a_tile[0], b_tile[0])  # <reading mma>
            ctx.wgmma_commit()
            ctx.wgmma_wait(0 if waits else 1)
            with ctx.elect_one("warpgroup"):
                empty.arrive()
        ctx.wgmma_wait(0)


def bind_overwritten(waits: bool) -> tp.Program:
    return overwritten.bind(
        tp.tensor_map(matrix(64, 16), box=(64, 16)),
        tp.tensor_map(matrix(8, 16), box=(8, 16)),
        waits=waits,
    )


def test_g16_a_slot_is_overwritten_while_wgmma_reads_it() -> None:
    words = (
        "race on a_tile",
        "role 'mma'",
        "role 'load'",
        "group has been waited for",
        where("reading mma"),
        where("refill"),
    )
    faults(bind_overwritten(False), tp.RaceError, *words)


def test_g16_the_right_wait_group() -> None:
    for run in clean(bind_overwritten(True)):
        assert run.completions == {"full": [[2]], "empty": [[2]]}


@tp.kernel()
def reused(ctx: tp.Context, c: Any, *, wait: str) -> None:
    """Stores a tile, waits for the store to have read it (or not), writes the tile again, stores
    again.
    """
    tile = ctx.smem((8, 16), c.dtype, name="tile")

    @ctx.role("store", warps=1)
    def store() -> None:
        for i in range(2):
            with ctx.when(ctx.lane < 16):
                for row in range(8):
                    ctx.store(tile[0][row, ctx.lane], i + 1)  # <overwrite>
            ctx.fence_proxy_async()
            ctx.syncwarp()
            with ctx.elect_one():
                ctx.tma_store(c, (8 * i, 0), tile[0])  # <tma store>
                ctx.tma_store_commit()
                if wait == "read":
                    ctx.tma_store_wait(0, read=True)
                elif wait == "one pending":
                    ctx.tma_store_wait(1, read=True)
            if wait != "no converge":
                ctx.syncwarp()
        with ctx.elect_one():
            ctx.tma_store_wait(0)


@pytest.mark.parametrize("wait", ["none", "one pending"])
def test_g17_shared_memory_is_reused_before_the_store_has_read_it(wait: str) -> None:
    words = (
        "race on tile",
        "role 'store'",
        "tma_store_wait",
        where("tma store"),
        where("overwrite"),
    )
    faults(reused.bind(tp.tensor_map(zeros(16, 16), box=(8, 16)), wait=wait), tp.RaceError, *words)


def test_g17_reuse_after_the_store_has_read_it() -> None:
    c = zeros(16, 16)
    for _ in clean(reused.bind(tp.tensor_map(c, box=(8, 16)), wait="read")):
        np.testing.assert_array_equal(c, np.repeat([1.0, 2.0], 8)[:, None] * np.ones((1, 16)))
        c[:] = 0


@tp.kernel()
def passing(ctx: tp.Context, out: Any, n: int, *, forward: bool, back: bool) -> None:
    """One writes a word of shared memory, the other reads it, n times; `forward`: the reader waits
    (G18), `back`: the writer does (G19).
    """
    word = ctx.smem((1, 4), "int32", name="word")
    written = tp.SharedMemBarrier.allocate(ctx, 1, "written")
    taken = tp.SharedMemBarrier.allocate(ctx, 1, "taken")

    @ctx.role("writer", warps=1)
    def writer() -> None:
        for i in ctx.range(n):
            with ctx.elect_one():
                ctx.store(word[0][0, 0], i * i)  # <write word>
                written.arrive()
            if back:
                taken.wait(i % 2)

    @ctx.role("reader", warps=1)
    def reader() -> None:
        for i in ctx.range(n):
            if forward:
                written.wait(i % 2)
            with ctx.elect_one():
                ctx.store(out[i], ctx.load(word[0][0, 0]))  # <read word>
                taken.arrive()


@pytest.mark.parametrize("n", [1, 2, 7])
def test_g18_g19_store_wait_load_and_back(n: int) -> None:
    out = np.zeros(n, np.int32)
    for run in clean(passing.bind(out, n, forward=True, back=True)):
        assert run.completions == {"written": [[n]], "taken": [[n]]}
        assert out.tolist() == [i * i for i in range(n)]
        out[:] = 0


def test_g18_the_readers_wait_is_removed() -> None:
    words = ("word", "role 'reader'", where("read word"))
    program = passing.bind(np.zeros(1, np.int32), 1, forward=False, back=True)
    faults(program, tp.SimFault, *words, seeds=range(8))
    faults(program, tp.RaceError, "role 'writer'", where("write word"), *words, seeds=[0])


def test_g19_the_writers_wait_is_removed() -> None:
    words = (
        "race on word",
        "role 'reader'",
        "role 'writer'",
        where("read word"),
        where("write word"),
    )
    program = passing.bind(np.zeros(2, np.int32), 2, forward=True, back=False)
    lapped = ("written", "role 'reader'", "phase 0", "lapped")
    for seed in range(12):
        with pytest.raises(tp.SimFault) as caught:
            program.run(seed=seed)
        expected = lapped if isinstance(caught.value, tp.BarrierError) else words
        assert all(w in str(caught.value) for w in expected), f"seed {seed}: {caught.value}"
    refuted(program, tp.SimFault, "role 'reader'")


@tp.kernel()
def two_slots(ctx: tp.Context, out: Any, *, waited: int) -> None:
    slots = ctx.smem((1, 32), "int32", count=2, swizzle=0, name="slots")
    bars = tp.SMemArray(ctx, tp.SharedMemBarrier, 2, "full")
    for i in range(2):
        bars[i].init(32)

    @ctx.role("producer", warps=1)
    def producer() -> None:
        for i in range(2):
            ctx.store(slots[i][0, ctx.lane], 10 * i + ctx.lane)  # <fill slots>
            bars[i].arrive()

    @ctx.role("consumer", warps=1)
    def consumer() -> None:
        bars[waited].wait(0)
        ctx.store(out[ctx.lane], ctx.load(slots[1][0, ctx.lane]))  # <read slot 1>


def test_g21_the_consumer_waits_for_slot_0_and_reads_slot_1() -> None:
    words = ("slots[1]", "role 'consumer'", where("read slot 1"))
    program = two_slots.bind(np.zeros(32, np.int32), waited=0)
    faults(program, tp.SimFault, *words, seeds=range(8))
    faults(
        program,
        tp.RaceError,
        *words,
        "race on slots[1]",
        "role 'producer'",
        where("fill slots"),
        seeds=[0],
    )


def test_g21_the_consumer_waits_for_the_slot_it_reads() -> None:
    out = np.zeros(32, np.int32)
    for _ in clean(two_slots.bind(out, waited=1)):
        assert out.tolist() == [10 + lane for lane in range(32)]
        out[:] = 0


def sizes_kernel(
    producers: int, consumers: int, warps: tuple[int, int], stages: int, elected: bool
) -> tp.KernelFunction:
    """`producers` and `consumers` roles on one ring; every role writes, or reads, its own words of
    a stage.
    """
    lanes = 1 if elected else 32

    @tp.kernel()
    def ring(ctx: tp.Context, out: Any, n: int) -> None:
        width = producers * warps[0] * 32
        slots = ctx.smem((1, width), "int32", count=stages, swizzle=0, name="slots")
        pipe = tp.ProducerConsumerPipeline.allocate(
            ctx,
            stages,
            producer_arrivals=producers * warps[0] * lanes,
            consumer_arrivals=consumers * warps[1] * lanes,
            name="ring",
        )

        def producer(rank: int) -> None:
            @ctx.role(f"producer{rank}", warps=warps[0])
            def _() -> None:
                for i in ctx.range(n):
                    with pipe.produce() as stage:
                        word = (rank * warps[0] + ctx.warp) * 32 + ctx.lane
                        ctx.store(slots[stage.index()][0, word], i * width + word)
                        if elected:
                            ctx.syncwarp()
                            with ctx.elect_one():
                                stage.mbar().arrive()
                        else:
                            stage.mbar().arrive()

        def consumer(rank: int) -> None:
            @ctx.role(f"consumer{rank}", warps=warps[1])
            def _() -> None:
                sums = ctx.var(ctx.lane * 0)
                for _i in ctx.range(n):
                    with pipe.consume_explicit() as stage:
                        for j in range(width // 32):
                            sums.set(
                                sums.get() + ctx.load(slots[stage.index()][0, j * 32 + ctx.lane])
                            )
                        if elected:
                            ctx.syncwarp()
                            with ctx.elect_one():
                                stage.mbar().arrive()
                        else:
                            stage.mbar().arrive()
                with ctx.when(ctx.warp == 0):
                    ctx.store(out[rank, ctx.lane], sums.get())

        for rank in range(producers):
            producer(rank)
        for rank in range(consumers):
            consumer(rank)

    return ring


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("producers", "consumers", "warps", "elected"),
    [
        (2, 2, (1, 1), True),
        (2, 2, (1, 1), False),
        (1, 1, (1, 4), True),
        (1, 1, (3, 2), False),
        (1, 3, (2, 1), True),
        (3, 1, (1, 8), True),
    ],
)
def test_g22_g23_several_producers_and_consumers_of_any_size(
    producers: int, consumers: int, warps: tuple[int, int], elected: bool
) -> None:
    n, stages = 5, 2
    out = np.zeros((consumers, 32), np.int32)
    width = producers * warps[0] * 32
    want = np.arange(n * width).reshape(-1, 32).sum(axis=0)
    for run in clean(sizes_kernel(producers, consumers, warps, stages, elected).bind(out, n)):
        assert run.completions == {"ring.full": [[3, 2]], "ring.empty": [[3, 2]]}
        np.testing.assert_array_equal(out, np.broadcast_to(want, out.shape))
        out[:] = 0


@tp.kernel()
def crossing(ctx: tp.Context, c: Any, *, fence: str) -> None:
    """A warp writes a tile with ordinary stores; another issues a TMA store of it. `fence`: where
    the proxy fence stands.
    """
    tile = ctx.smem((8, 16), c.dtype, name="tile")
    ready = tp.SharedMemBarrier.allocate(ctx, 32, "ready")

    @ctx.role("writer", warps=1)
    def writer() -> None:
        for row in range(8):
            with ctx.when(ctx.lane < 16):
                ctx.store(tile[0][row, ctx.lane], 16 * row + ctx.lane)  # <generic write>
        if fence == "before arrive":
            ctx.fence_proxy_async()
        ready.arrive()
        if fence == "after arrive":
            ctx.fence_proxy_async()

    @ctx.role("store", warps=1)
    def store() -> None:
        ready.wait(0)
        if fence == "reader":
            ctx.fence_proxy_async()
        with ctx.elect_one():
            ctx.tma_store(c, (0, 0), tile[0])  # <async read>
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


@pytest.mark.parametrize("fence", ["none", "after arrive"])
def test_g24_no_proxy_fence_on_the_path(fence: str) -> None:
    words = ("race between proxies on tile", "role 'writer'", "role 'store'", "fence_proxy_async")
    program = crossing.bind(tp.tensor_map(zeros(8, 16), box=(8, 16)), fence=fence)
    faults(program, tp.RaceError, *words, where("generic write"), where("async read"))


@pytest.mark.parametrize("rules", ["practice", "strict"])
def test_g24_the_writer_fences_before_it_arrives(rules: Rules) -> None:
    c = zeros(8, 16)
    program = crossing.bind(tp.tensor_map(c, box=(8, 16)), fence="before arrive")
    run = program.run(rules=rules)
    assert run.advice == []
    verified(program, rules=rules)
    np.testing.assert_array_equal(c, np.arange(128).reshape(8, 16))


def test_g24_the_reader_fences_after_its_wait() -> None:
    c = zeros(8, 16)
    program = crossing.bind(tp.tensor_map(c, box=(8, 16)), fence="reader")
    for seed in range(4):
        run = program.run(seed=seed)
        np.testing.assert_array_equal(c, np.arange(128).reshape(8, 16))
        c[:] = 0
        assert run.advice, "the fence on the reader's side deserves advice"
        for word in (
            "reader's side",
            "every writing thread",
            where("generic write"),
            where("async read"),
        ):
            assert word in run.advice[0]
    verdict = program.check()
    assert verdict.ok
    assert verdict.advice == run.advice
    faults(
        program,
        tp.RaceError,
        "strict rules, reader-side fence",
        "role 'writer'",
        where("generic write"),
        where("async read"),
        rules="strict",
    )


@tp.kernel()
def views(ctx: tp.Context, *, second: tuple[int, int, int, int], barrier: bool) -> None:
    """Two roles write rectangles of one allocation."""
    tile = ctx.smem((16, 32), "int32", name="tile")
    done = tp.SharedMemBarrier.allocate(ctx, 1, "done")

    def write(row: int, col: int, rows: int, cols: int) -> None:
        part = tile[0].part(row, col, rows, cols)
        for r in range(rows):
            with ctx.when(ctx.lane < cols):
                ctx.store(part[r, ctx.lane], r)  # <write view>

    @ctx.role("upper", warps=1)
    def upper() -> None:
        write(0, 0, 4, 16)
        ctx.syncwarp()
        with ctx.elect_one():
            done.arrive()

    @ctx.role("lower", warps=1)
    def lower() -> None:
        if barrier:
            done.wait(0)
        write(*second)


@pytest.mark.parametrize("second", [(3, 0, 4, 16), (0, 15, 4, 8), (3, 15, 1, 1), (0, 0, 16, 32)])
def test_g28_overlapping_views_without_a_barrier(second: tuple[int, int, int, int]) -> None:
    words = ("race on tile", "role 'upper'", "role 'lower'", where("write view"))
    faults(views.bind(second=second, barrier=False), tp.RaceError, *words)


@pytest.mark.parametrize(
    ("second", "barrier"),
    [((4, 0, 4, 16), False), ((0, 16, 4, 8), False), ((3, 0, 4, 16), True), ((0, 0, 16, 32), True)],
)
def test_g28_disjoint_views_or_a_barrier(second: tuple[int, int, int, int], barrier: bool) -> None:
    for run in clean(views.bind(second=second, barrier=barrier)):
        assert run.completions == {"done": [[1]]}
