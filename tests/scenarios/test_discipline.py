"""Discipline of barriers and fences, after the interpreter tests of JAX' Mosaic GPU (J1-J3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults, refuted, zeros


def where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel()
def explicit_ring(ctx: tp.Context, out: Any, n: int, *, slots: int, consumed: bool) -> None:
    """J1: a ring with explicit produced and consumed barriers; without `consumed`, the producer
    does not wait for its slot.
    """
    ring = ctx.smem((1, 32), "int32", count=slots, swizzle=0, name="slots")
    produced = tp.SMemArray(ctx, tp.SharedMemBarrier, slots, "produced")
    freed = tp.SMemArray(ctx, tp.SharedMemBarrier, slots, "consumed")
    for i in range(slots):
        produced[i].init(32)
        freed[i].init(32)
    head, tail = (
        tp.PipelineState(ctx, slots, phase=1, name="head"),
        tp.PipelineState(ctx, slots, name="tail"),
    )

    @ctx.role("producer", warps=1)
    def producer() -> None:
        for i in ctx.range(n):
            slot = head.index()
            if consumed:
                freed[slot].wait(head.phase())
            ctx.store(ring[slot][0, ctx.lane], i * 32 + ctx.lane)  # <fill>
            produced[slot].arrive()
            head.step()

    @ctx.role("consumer", warps=1)
    def consumer() -> None:
        for i in ctx.range(n):
            slot = tail.index()
            produced[slot].wait(tail.phase())  # <await item>
            ctx.store(out[i, ctx.lane], ctx.load(ring[slot][0, ctx.lane]))  # <take>
            freed[slot].arrive()
            tail.step()


@pytest.mark.sampled(7, suite=100, classes=lambda slots, n: [("slots", slots), ("n", n)])
@pytest.mark.parametrize("n", [1, 2, 5, 16, 37, 128])
@pytest.mark.parametrize("slots", [2, 4, 8, 16])
def test_j1_ring_with_produced_and_consumed_barriers(slots: int, n: int) -> None:
    out = np.full((n, 32), -1, np.int32)
    for run in clean(explicit_ring.bind(out, n, slots=slots, consumed=True), seeds=(0, 1, 2)):
        per_slot = [len(range(s, n, slots)) for s in range(slots)]
        assert run.completions == {"produced": [per_slot], "consumed": [per_slot]}
        np.testing.assert_array_equal(out, np.arange(32 * n).reshape(n, 32))
        out[:] = -1


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "n"), [(2, 3), (2, 9), (4, 5), (8, 17), (16, 40)])
def test_j1_the_producer_does_not_wait_for_consumed(slots: int, n: int) -> None:
    program = explicit_ring.bind(np.zeros((n, 32), np.int32), n, slots=slots, consumed=False)
    racing = ("race on slots[", "role 'producer'", "role 'consumer'", where("fill"))
    lapped = ("role 'consumer'", "produced[", "phase 0", "lapped", where("await item"))
    for seed in range(8):
        with pytest.raises((tp.RaceError, tp.BarrierError)) as caught:
            program.run(seed=seed)
        words = racing if isinstance(caught.value, tp.RaceError) else lapped
        assert all(w in str(caught.value) for w in words), f"seed {seed}: {caught.value}"
    refuted(program, tp.SimFault, "role 'consumer'")


@pytest.mark.parametrize("n", [1, 4])
def test_j1_a_ring_that_is_never_reused_needs_no_consumed_barrier(n: int) -> None:
    out = np.zeros((n, 32), np.int32)
    for run in clean(explicit_ring.bind(out, n, slots=4, consumed=False)):
        assert sum(run.completions["produced"][0]) == n
        np.testing.assert_array_equal(out, np.arange(32 * n).reshape(n, 32))


def test_j2_a_completion_that_nobody_observed() -> None:
    @tp.kernel()
    def unobserved(ctx: tp.Context) -> None:
        tick = tp.SharedMemBarrier.allocate(ctx, 1, "tick")
        go = tp.SharedMemBarrier.allocate(ctx, 1, "go")

        @ctx.role("ticker", warps=1)
        def ticker() -> None:
            with ctx.elect_one():
                tick.arrive()
                tick.arrive()
                go.arrive()

        @ctx.role("observer", warps=1)
        def observer() -> None:
            go.wait(0)
            tick.wait(0)  # <too late>

    words = (
        "tick",
        "role 'observer'",
        "waits for phase 0",
        "phases up to 1 are complete",
        "after it has seen phase 0",
        where("too late"),
    )
    faults(unobserved.bind(), tp.BarrierError, *words)


def test_j2_a_wait_left_over_at_the_end() -> None:
    @tp.kernel()
    def leftover(ctx: tp.Context) -> None:
        tick = tp.SharedMemBarrier.allocate(ctx, 1, "tick")

        @ctx.role("ticker", warps=1)
        def ticker() -> None:
            with ctx.elect_one():
                tick.arrive()  # <only tick>

        @ctx.role("observer", warps=1)
        def observer() -> None:
            tick.wait(0)
            tick.wait(1)  # <one wait more>

    words = (
        "1 of 2 agents",
        "role 'observer'",
        "tick",
        "1 of 1 arrivals",
        "role 'ticker' has returned",
    )
    faults(leftover.bind(), tp.DeadlockError, *words, where("one wait more"), where("only tick"))


@pytest.mark.slow
@pytest.mark.parametrize("arrivers", range(1, 8))
@pytest.mark.parametrize("observers", range(1, 8))
def test_j2_any_number_of_arrivers_and_observers(arrivers: int, observers: int) -> None:
    out = np.zeros((observers, 3), np.int32)

    @tp.kernel()
    def meeting(ctx: tp.Context, out: Any) -> None:
        there = tp.SharedMemBarrier.allocate(ctx, arrivers, "there")
        back = tp.SharedMemBarrier.allocate(ctx, observers, "back")
        words = tp.SMemArray(ctx, "int32", arrivers, name="words")

        @ctx.role("arrive", warps=arrivers)
        def arrive() -> None:
            for i in ctx.range(3):
                with ctx.elect_one():
                    ctx.store(words[ctx.warp], 10 * i + ctx.warp)
                    there.arrive()
                back.wait(i % 2)

        @ctx.role("observe", warps=observers)
        def observe() -> None:
            for i in ctx.range(3):
                there.wait(i % 2)
                with ctx.elect_one():
                    ctx.store(out[ctx.warp, i], sum(ctx.load(words[j]) for j in range(arrivers)))
                    back.arrive()

    want = [10 * i * arrivers + arrivers * (arrivers - 1) // 2 for i in range(3)]
    for run in clean(meeting.bind(out), seeds=(0, 1)):
        assert run.completions == {"there": [[3]], "back": [[3]]}
        np.testing.assert_array_equal(out, np.broadcast_to(want, out.shape))
        out[:] = 0


@tp.kernel()
def one_role_stores(ctx: tp.Context, c: Any, *, fence: bool) -> None:
    tile = ctx.smem((8, 16), c.dtype, name="tile")

    @ctx.role("store", warps=1)
    def store() -> None:
        with ctx.when(ctx.lane < 16):
            for row in range(8):
                ctx.store(tile[0][row, ctx.lane], 16 * row + ctx.lane)  # <write alone>
        if fence:
            ctx.fence_proxy_async()
        ctx.syncwarp()
        with ctx.elect_one():
            ctx.tma_store(c, (0, 0), tile[0])  # <store alone>
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


@pytest.mark.parametrize("fence", [False, True])
def test_j3_generic_write_then_tma_store_by_one_role(fence: bool) -> None:
    c = zeros(8, 16)
    program = one_role_stores.bind(tp.tensor_map(c, box=(8, 16)), fence=fence)
    if not fence:
        words = (
            "between proxies on tile",
            "role 'store'",
            "fence_proxy_async",
            where("write alone"),
            where("store alone"),
        )
        faults(program, tp.RaceError, *words)
        return
    for _ in clean(program):
        np.testing.assert_array_equal(c, np.arange(128).reshape(8, 16))
        c[:] = 0


@tp.kernel()
def handed_over(
    ctx: tp.Context, c: Any, *, before: bool, after: bool, reader: bool, late: bool
) -> None:
    """The write is handed to a second role, which issues the store; a fence at any subset of four
    places.
    """
    tile = ctx.smem((8, 16), c.dtype, name="tile")
    ready = tp.SharedMemBarrier.allocate(ctx, 32, "ready")

    @ctx.role("writer", warps=1)
    def writer() -> None:
        with ctx.when(ctx.lane < 16):
            for row in range(8):
                ctx.store(tile[0][row, ctx.lane], 16 * row + ctx.lane)  # <write>
        if before:
            ctx.fence_proxy_async()
        ready.arrive()
        if after:
            ctx.fence_proxy_async()

    @ctx.role("store", warps=1)
    def store() -> None:
        ready.wait(0)
        if reader:
            ctx.fence_proxy_async()
        with ctx.elect_one():
            ctx.tma_store(c, (0, 0), tile[0])  # <store>
            if late:
                ctx.fence_proxy_async()
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


@pytest.mark.parametrize("places", range(16), ids=lambda p: f"{p:04b}")
def test_j3_hand_off_truth_table(places: int) -> None:
    before, after, reader, late = (bool(places >> bit & 1) for bit in range(4))
    c = zeros(8, 16)
    program = handed_over.bind(
        tp.tensor_map(c, box=(8, 16)), before=before, after=after, reader=reader, late=late
    )
    if not (before or reader):
        words = (
            "between proxies on tile",
            "role 'writer'",
            "role 'store'",
            where("write"),
            where("store"),
        )
        faults(program, tp.RaceError, *words, seeds=(0, 1))
        return
    for seed in (0, 1):
        run = program.run(seed=seed)
        np.testing.assert_array_equal(c, np.arange(128).reshape(8, 16))
        c[:] = 0
        assert bool(run.advice) == (not before), run.advice
        assert before or "reader's side" in run.advice[0]
    verdict = program.check()
    assert verdict.ok
    assert verdict.advice == run.advice
    if not before:
        refuted(
            program,
            tp.RaceError,
            "strict rules, reader-side fence",
            where("write"),
            where("store"),
            rules="strict",
        )


@tp.kernel()
def two_stores(ctx: tp.Context, c: Any, *, pending: int, reuse: int) -> None:
    """Two stores outstanding, a wait that leaves `pending`, then the first `reuse` tiles are
    written again.
    """
    tiles = ctx.smem((8, 16), c.dtype, count=2, name="tiles")

    @ctx.role("store", warps=1)
    def store() -> None:
        def fill(slot: int, value: int) -> None:
            with ctx.when(ctx.lane < 16):
                for row in range(8):
                    ctx.store(tiles[slot][row, ctx.lane], value)  # <fill slot>

        for slot in range(2):
            fill(slot, slot + 1)
        ctx.fence_proxy_async()
        ctx.syncwarp()
        with ctx.elect_one():
            for slot in range(2):
                ctx.tma_store(c, (8 * slot, 0), tiles[slot])  # <store slot>
                ctx.tma_store_commit()
            ctx.tma_store_wait(pending, read=True)
        ctx.syncwarp()
        for slot in range(reuse):
            fill(slot, 9)
        with ctx.elect_one():
            ctx.tma_store_wait(0)


@pytest.mark.parametrize("reuse", [0, 1, 2])
@pytest.mark.parametrize("pending", [0, 1, 2])
def test_j3_wait_for_some_of_two_stores_then_reuse(pending: int, reuse: int) -> None:
    c = zeros(16, 16)
    program = two_stores.bind(tp.tensor_map(c, box=(8, 16)), pending=pending, reuse=reuse)
    if reuse > 2 - pending:
        words = (
            f"tiles[{2 - pending}]",
            "role 'store'",
            "tma_store_wait",
            where("store slot"),
            where("fill slot"),
        )
        faults(program, tp.RaceError, *words)
        return
    for _ in clean(program):
        np.testing.assert_array_equal(c, np.repeat([1.0, 2.0], 8)[:, None] * np.ones((1, 16)))
        c[:] = 0


def test_j3_a_store_that_nobody_waits_for_before_the_kernel_ends() -> None:
    @tp.kernel()
    def abandoned(ctx: tp.Context, c: Any) -> None:
        tile = ctx.smem((8, 16), c.dtype, name="tile")

        @ctx.role("store", warps=1)
        def store() -> None:
            with ctx.when(ctx.lane < 16):
                for row in range(8):
                    ctx.store(tile[0][row, ctx.lane], 1)
            ctx.fence_proxy_async()
            ctx.syncwarp()
            with ctx.elect_one():
                ctx.tma_store(c, (0, 0), tile[0])  # <abandoned store>
                ctx.tma_store_commit()

    words = (
        "exits while a TMA store may still read tile",
        "role 'store'",
        "tma_store_wait(0)",
        where("abandoned store"),
    )
    faults(abandoned.bind(tp.tensor_map(zeros(8, 16), box=(8, 16))), tp.ExitError, *words)
