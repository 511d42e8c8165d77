"""Proxy fences order accesses to the memory that their printed form names: this CTA's shared
memory, the cluster's, global memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults, refuses, refuted, verified, zeros
from tilepipe.machine.barriers import rendezvous
from tilepipe.machine.happens_before.events import GlobalOrder


def where(mark: str) -> str:
    return at(__file__, mark)


def everything_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts back the hole that a fence of one space orders accesses to all of them."""
    monkeypatch.setattr(rendezvous, "covered", lambda space, rank: lambda access: True)


def no_rule_for_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts back the hole that global memory has no proxies."""
    monkeypatch.setattr(
        GlobalOrder, "mixed", property(lambda self: False, lambda self, value: None), raising=True
    )


# -- global memory ---------------------------------------------------------------------


@tp.kernel()
def written_then_copied(
    ctx: tp.Context, x: Any, y: Any, *, by: str, fence: str, space: str, then: str
) -> None:
    """Row 0 of x is written by ordinary accesses; the same role, or another, then loads it by TMA,
    or stores over it.
    """
    tile = ctx.smem((8, 32), "int32", swizzle=0, name="tile")[0]
    full, ready = (
        tp.SharedMemBarrier.allocate(ctx, 1, "full"),
        tp.SharedMemBarrier.allocate(ctx, 32, "ready"),
    )

    @ctx.role("writer", warps=1)
    def writer() -> None:
        if by == "store":
            ctx.store(x[0, ctx.lane], ctx.lane + 1)  # <store>
        else:
            with ctx.when(ctx.lane == 0):
                ctx.atomic_add(x[0, 0], 5)  # <atomic>
        if fence == "writer":
            ctx.fence_proxy_async(space)
        ready.arrive()

    @ctx.role("copies", warps=1)
    def copies() -> None:
        if then == "store":
            for row in range(8):
                ctx.store(tile[row, ctx.lane], 7)
            ctx.fence_proxy_async()
            ctx.syncwarp()
        ready.wait(0)
        if fence == "reader":
            ctx.fence_proxy_async(space)
        with ctx.elect_one():
            if then == "store":
                ctx.tma_store(x, (0, 0), tile)  # <tma store>
                ctx.tma_store_commit()
                ctx.tma_store_wait(0)
            else:
                full.expect_bytes(tile.nbytes)
                ctx.tma_load(x, (0, 0), tile, full)  # <tma load>
        if then == "load":
            full.wait(0)
            ctx.store(y[ctx.lane], ctx.load(tile[0, ctx.lane]))


def program(
    by: str = "store", fence: str = "none", space: str = "global", then: str = "load"
) -> tuple[tp.Program, np.ndarray, np.ndarray]:
    x, y = np.zeros((8, 32), np.int32), np.zeros(32, np.int32)
    return (
        written_then_copied.bind(
            tp.tensor_map(x, box=(8, 32), swizzle=0), y, by=by, fence=fence, space=space, then=then
        ),
        x,
        y,
    )


@pytest.mark.parametrize("then", ["load", "store"])
@pytest.mark.parametrize("by", ["store", "atomic"])
def test_an_ordinary_write_to_a_tensor_before_tma(by: str, then: str) -> None:
    """Without the mend (see `no_rule_for_tensors`) it is verified."""
    words = (
        "race between proxies on tensor 'x'",
        "no fence.proxy.async of that memory stands",
        "role 'writer'",
        "role 'copies'",
        'ctx.fence_proxy_async("global")',
        where(by),
        where(f"tma {then}"),
    )
    faults(program(by, then=then)[0], tp.RaceError, *words)


@pytest.mark.parametrize("space", ["shared", "cluster"])
def test_a_fence_of_shared_memory_does_not_order_a_tensor(space: str) -> None:
    faults(
        program(fence="writer", space=space)[0],
        tp.RaceError,
        "race between proxies on tensor 'x'",
        where("store"),
        where("tma load"),
    )


@pytest.mark.parametrize("rules", ["practice", "strict"])
@pytest.mark.parametrize("space", ["global", "all"])
def test_the_writer_fences_the_tensor(space: str, rules: str) -> None:
    found, _, y = program(fence="writer", space=space)
    verified(found, rules=rules)
    for run in clean(found):
        assert run.advice == []
        np.testing.assert_array_equal(y, np.arange(1, 33))
        y[:] = 0
    found, x, _ = program(fence="writer", space=space, then="store")
    verified(found, rules=rules)
    found.run(rules=rules)  # type: ignore[arg-type]
    assert (x == 7).all()


def test_the_thread_that_copies_fences_the_tensor() -> None:
    found, _, y = program(fence="reader")
    run = found.run()
    np.testing.assert_array_equal(y, np.arange(1, 33))
    (advice,) = run.advice
    for word in (
        "reader-side fence",
        "tensor 'x'",
        'ctx.fence_proxy_async("global")',
        where("store"),
        where("tma load"),
    ):
        assert word in advice
    verdict = found.check()
    assert verdict.ok
    assert verdict.advice == run.advice
    refuted(
        found,
        tp.RaceError,
        "strict rules, reader-side fence",
        "tensor 'x'",
        where("store"),
        where("tma load"),
        rules="strict",
    )


def test_the_holes_are_seen_by_these_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    no_rule_for_tensors(monkeypatch)
    assert program()[0].check().ok
    monkeypatch.undo()
    everything_covered(monkeypatch)
    assert program(fence="writer", space="shared")[0].check().ok


@tp.kernel()
def by_one_thread(ctx: tp.Context, x: Any, *, fence: bool, again: bool) -> None:
    """One lane writes an element, and itself loads the box; `again`: it writes once more behind its
    fence.
    """
    tile = ctx.smem((8, 32), "int32", swizzle=0, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            for i in ctx.range(2 if again else 1):
                ctx.store(x[0, i], 3)  # <own store>
                with ctx.when(i == 0):
                    if fence:
                        ctx.fence_proxy_async("global")
            full.expect_bytes(tile.nbytes)
            ctx.tma_load(x, (0, 0), tile, full)  # <own load>
        full.wait(0)


@pytest.mark.parametrize(("fence", "again"), [(False, False), (True, False), (True, True)])
def test_one_thread_writes_and_copies(fence: bool, again: bool) -> None:
    """A fence does not cover what is written behind it, though both writes are made by one line."""
    found = by_one_thread.bind(
        tp.tensor_map(np.zeros((8, 32), np.int32), box=(8, 32), swizzle=0), fence=fence, again=again
    )
    if fence and not again:
        verified(found)
    else:
        faults(
            found,
            tp.RaceError,
            "race between proxies on tensor 'x'",
            where("own store"),
            where("own load"),
        )


@tp.kernel(grid=2, cluster=2)
def over_a_cluster_barrier(ctx: tp.Context, x: Any, *, fence: bool) -> None:
    """CTA 0 writes the tensor as a fragment, both meet, CTA 1 loads it by TMA."""
    tile = ctx.smem((64, 32), "float32", swizzle=0, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        with ctx.when(ctx.cta_rank == 0):
            f = ctx.fragment(shape=(64, 32))
            f.fill(2)
            ctx.store_global(x, (0, 0), f)  # <fragment store>
            if fence:
                ctx.fence_proxy_async("global")
        ctx.cluster_arrive()
        ctx.cluster_wait()
        with ctx.when(ctx.cta_rank == 1):
            with ctx.elect_one("role"):
                full.expect_bytes(tile.nbytes)
                ctx.tma_load(x, (0, 0), tile, full)  # <peer's load>
            full.wait(0)


@pytest.mark.parametrize("fence", [False, True])
def test_a_peer_copies_what_was_written_before_a_cluster_barrier(fence: bool) -> None:
    found = over_a_cluster_barrier.bind(
        tp.tensor_map(zeros(64, 32), box=(64, 32), swizzle=0), fence=fence
    )
    if fence:
        verified(found)
    else:
        faults(
            found,
            tp.RaceError,
            "race between proxies on tensor 'x'",
            where("fragment store"),
            where("peer's load"),
        )


@tp.kernel()
def there_and_back(ctx: tp.Context, x: Any, y: Any, *, wait: str) -> None:
    """A TMA store; then ordinary loads of the same elements, and a TMA load of them."""
    tile = ctx.smem((8, 32), "int32", swizzle=0, count=2, name="tile")
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("one", warps=1)
    def one() -> None:
        for row in range(8):
            ctx.store(tile[0][row, ctx.lane], row + 1)
        ctx.fence_proxy_async()
        ctx.syncwarp()
        with ctx.elect_one():
            ctx.tma_store(x, (0, 0), tile[0])  # <out>
            ctx.tma_store_commit()
            ctx.tma_store_wait(0, read=wait == "read")
            full.expect_bytes(tile[1].nbytes)
            ctx.tma_load(x, (0, 0), tile[1], full)  # <in>
        ctx.syncwarp()
        full.wait(0)
        ctx.store(y[ctx.lane], ctx.load(x[0, ctx.lane]) + ctx.load(tile[1][1, ctx.lane]))


def test_completed_tma_stores_need_no_fence() -> None:
    """PTX ISA, Async Proxy: the completion of a bulk copy is followed by an implicit proxy
    fence.
    """
    x, y = np.zeros((8, 32), np.int32), np.zeros(32, np.int32)
    x_map = tp.tensor_map(x, box=(8, 32), swizzle=0)
    found = there_and_back.bind(x_map, y, wait="all")
    verified(found)
    found.run()
    assert (y == 3).all()
    faults(
        there_and_back.bind(x_map, y, wait="read"),
        tp.RaceError,
        "race on tensor 'x'",
        where("out"),
        where("in"),
        "ctx.tma_store_wait(0)",
    )


# -- a peer's shared memory ------------------------------------------------------------


@tp.kernel(grid=2, cluster=2)
def into_a_peer(ctx: tp.Context, c: Any, *, writer: str, reader: str) -> None:
    """CTA 1 writes a tile of CTA 0, which stores it by TMA; each side may fence."""
    tile = ctx.smem((8, 32), "int32", swizzle=0, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 32, "full")

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.when(ctx.cta_rank == 1):
            for row in range(8):
                ctx.store(tile.on(0)[row, ctx.lane], row)  # <remote store>
            if writer:
                ctx.fence_proxy_async(writer)
            full.arrive_cluster(0)
        with ctx.when(ctx.cta_rank == 0):
            full.wait(0)
            if reader:
                ctx.fence_proxy_async(reader)
            with ctx.elect_one():
                ctx.tma_store(c, (0, 0), tile)  # <peer's store>
                ctx.tma_store_commit()
                ctx.tma_store_wait(0)
        ctx.cluster_arrive()
        ctx.cluster_wait()


def exchanged(writer: str = "", reader: str = "") -> tuple[tp.Program, np.ndarray]:
    c = np.zeros((8, 32), np.int32)
    return into_a_peer.bind(
        tp.tensor_map(c, box=(8, 32), swizzle=0), writer=writer, reader=reader
    ), c


@pytest.mark.parametrize("writer", ["", "shared", "global"])
def test_a_fence_of_this_cta_does_not_cover_a_peer(writer: str) -> None:
    """`.shared::cta` leaves a peer's memory out. Without the mend (see `everything_covered`)
    "shared" is verified.
    """
    words = (
        "race between proxies on tile of CTA 0",
        'ctx.fence_proxy_async("cluster")',
        where("remote store"),
        where("peer's store"),
    )
    faults(exchanged(writer)[0], tp.RaceError, *words)


@pytest.mark.parametrize("writer", ["cluster", "all"])
def test_a_fence_of_the_cluster_covers_a_peer(writer: str) -> None:
    found, c = exchanged(writer)
    verified(found)
    found.run()
    np.testing.assert_array_equal(c, np.arange(8)[:, None] * np.ones((1, 32), np.int32))


def test_the_peer_itself_fences() -> None:
    found, _ = exchanged(reader="shared")
    (advice,) = found.run().advice
    assert "the proxy fence stands on the reader's side" in advice
    assert 'ctx.fence_proxy_async("cluster")' in advice
    refuted(
        found,
        tp.RaceError,
        "strict rules, reader-side fence",
        where("remote store"),
        rules="strict",
    )


def test_the_hole_of_the_peer_is_seen_by_these_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    everything_covered(monkeypatch)
    assert exchanged("shared")[0].check().ok


# -- words -----------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["shared::cta", "", None, 3, "Global"])
def test_a_space_is_named(space: Any) -> None:
    @tp.kernel()
    def bad(ctx: tp.Context) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.fence_proxy_async(space)

    words = (
        (
            "fence_proxy_async takes the memory whose accesses it orders, one of 'shared', "
            "'cluster', 'global', 'all'"
        ),
        repr(space),
    )
    refuses(bad.bind, tp.TraceError, *words)


# -- a relaxed arrive ------------------------------------------------------------------


@tp.kernel(grid=2, cluster=2)
def read_and_handed_back(ctx: tp.Context, y: Any, *, fence: str, relaxed: bool) -> None:
    """CTA 0 reads a tile and arrives in CTA 1, which overwrites it."""
    tile = ctx.smem((8, 32), "int32", swizzle=0, name="tile")[0]
    empty = tp.SharedMemBarrier.allocate(ctx, 32, "empty")

    @ctx.role("one", warps=1)
    def one() -> None:
        ctx.store(tile[0, ctx.lane], 1)
        ctx.cluster_arrive()
        ctx.cluster_wait()
        with ctx.when(ctx.cta_rank == 0):
            ctx.store(y[ctx.lane], ctx.load(tile[0, ctx.lane]))  # <reads>
            if fence:
                ctx.fence_proxy_async(fence)
            empty.arrive_cluster(1, relaxed=relaxed)
        with ctx.when(ctx.cta_rank == 1):
            empty.wait(0)
            ctx.store(tile.on(0)[0, ctx.lane], 2)  # <overwrites>
        ctx.cluster_arrive()
        ctx.cluster_wait()


def handed_back(fence: str, relaxed: bool) -> tp.Program:
    return read_and_handed_back.bind(np.zeros(32, np.int32), fence=fence, relaxed=relaxed)


@pytest.mark.parametrize("rules", ["practice", "strict"])
@pytest.mark.parametrize("fence", ["", "shared", "cluster", "all"])
def test_a_relaxed_arrive_hands_over_no_ordinary_access(fence: str, rules: Any) -> None:
    """A proxy fence before it changes nothing of that: only a response that was read is handed back
    so (`ir.ops.MbarArrive`).
    """
    faults(
        handed_back(fence, relaxed=True),
        tp.RaceError,
        "race on tile of CTA 0",
        where("overwrites"),
        rules=rules,
    )
    verified(handed_back(fence, relaxed=False), rules=rules)
