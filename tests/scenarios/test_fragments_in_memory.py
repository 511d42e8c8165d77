"""Fragments in the memory of a peer and in global memory: what orders them, and the faults where
nothing does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults, zeros

Body = Callable[[Any, Any, Any, Any], None]


def where(mark: str) -> str:
    return at(__file__, mark)


def in_pair(body: Body, wait_last: bool = True) -> tp.Program:
    """Two CTAs with a tile and a barrier each; rank 0 runs `body(ctx, tile, full, f)`, f a
    fragment; then both meet, if they do.
    """

    @tp.kernel(grid=2, cluster=2)
    def pair(ctx: tp.Context) -> None:
        tile = ctx.smem((64, 32), "float32", name="tile")[0]
        full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            f = ctx.fragment(shape=(64, 32))
            f.fill(1)
            body(ctx, tile, full, f)
            if wait_last:
                ctx.cluster_arrive()
                ctx.cluster_wait()

    return pair.bind()


def send(ctx: Any, full: Any) -> None:
    """Publishes what this warpgroup has done, to the peer."""
    ctx.sync_warpgroup()
    with ctx.elect_one("role"):
        full.arrive_cluster(1 - ctx.cta_rank)


def pushed(ctx: Any, tile: Any, full: Any, f: Any) -> None:
    ctx.store(tile.on(1 - ctx.cta_rank), f)
    send(ctx, full)
    full.wait(0)
    f.load(tile)


def pushed_by_the_cluster_barrier(ctx: Any, tile: Any, full: Any, f: Any) -> None:
    ctx.store(tile.on(1 - ctx.cta_rank), f)
    ctx.cluster_arrive()
    ctx.cluster_wait()
    f.load(tile)


def fetched(ctx: Any, tile: Any, full: Any, f: Any) -> None:
    ctx.store(tile, f)
    send(ctx, full)
    full.wait(0)
    f.load(tile.on(1 - ctx.cta_rank))


@pytest.mark.parametrize("body", [pushed, pushed_by_the_cluster_barrier, fetched])
def test_published(body: Body) -> None:
    assert len(list(clean(in_pair(body)))) == 4


def not_waited_for(ctx: Any, tile: Any, full: Any, f: Any) -> None:
    ctx.store(tile.on(1 - ctx.cta_rank), f)  # <pushes>
    send(ctx, full)
    f.load(tile)


def not_met(ctx: Any, tile: Any, full: Any, f: Any) -> None:
    ctx.store(tile.on(1 - ctx.cta_rank), f)  # <pushes without meeting>
    with ctx.elect_one("role"):
        full.arrive_cluster(1 - ctx.cta_rank)
    full.wait(0)
    f.load(tile)


def pushed_again(ctx: Any, tile: Any, full: Any, f: Any) -> None:
    pushed(ctx, tile, full, f)
    ctx.store(tile.on(1 - ctx.cta_rank), f)  # <pushes again>


def fetched_then_overwritten(ctx: Any, tile: Any, full: Any, f: Any) -> None:
    fetched(ctx, tile, full, f)
    ctx.store(tile, f)  # <overwrites>


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            not_waited_for,
            ("race on tile of CTA", "fragment_store -> tile[0] @cta", where("pushes")),
        ),
        (
            not_met,
            (
                "race on tile of CTA",
                "fragment_store -> tile[0] @cta",
                where("pushes without meeting"),
            ),
        ),
        (pushed_again, ("race on tile of CTA", "fragment_load tile", where("pushes again"))),
        (
            fetched_then_overwritten,
            ("race on tile of CTA", "fragment_load tile[0] @cta", where("overwrites")),
        ),
    ],
)
def test_nothing_orders_them(body: Body, words: tuple[str, ...]) -> None:
    faults(in_pair(body), tp.RaceError, *words)


def test_a_peer_leaves_before_a_store_to_it_has_landed() -> None:
    def body(ctx: Any, tile: Any, full: Any, f: Any) -> None:
        with ctx.when(ctx.cta_rank == 0):
            ctx.store(tile.on(1), f)  # <late push>

    words = (
        "CTA 1 exits while role 'one' of CTA 0 can still access its tile",
        "fragment_store",
        where("late push"),
    )
    faults(in_pair(body, wait_last=False), tp.ExitError, *words)


def test_a_rank_outside_the_cluster() -> None:
    def body(ctx: Any, tile: Any, full: Any, f: Any) -> None:
        ctx.store(tile.on(ctx.cta_rank + 1), f)  # <rank 2>

    faults(
        in_pair(body),
        tp.SimFault,
        "no CTA of rank 2: the cluster has 2 CTAs (ranks 0..1)",
        where("rank 2"),
        seeds=[0, 1],
    )


# -- global memory ---------------------------------------------------------------------


def on_array(
    body: Callable[[Any, Any, Any], None], warpgroups: int = 1, grid: int = 1
) -> tp.Program:
    @tp.kernel(grid=grid)
    def k(ctx: tp.Context, c: Any) -> None:
        staged = ctx.smem((64, 32), "float32", name="staged")[0]

        @ctx.role("one", warpgroups=warpgroups)
        def one() -> None:
            body(ctx, c, staged)

    return k.bind(tp.tensor_map(zeros(128, 64), box=(64, 32)))


def test_elements_of_ones_own_are_read_and_written_in_place() -> None:
    """The lane that stores an element is the one that loaded it, in tiles at any multiple of 64
    rows and 8 columns.
    """

    def body(ctx: Any, c: Any, staged: Any) -> None:
        first = 64 * ctx.warpgroup_rank
        whole = ctx.load_global(c, (first, 0), (64, 64))
        ctx.store_global(c, (first, 8), ctx.fragment(whole.cols(0, 32) * 2))
        ctx.store_global(c, (first, 0), ctx.load_global(c, (first, 0), (64, 64)) + 1)

    program = on_array(body, warpgroups=2)
    for _ in clean(program):
        pass


def other_lanes(ctx: Any, c: Any, staged: Any) -> None:
    ctx.store_global(c, (0, 0), ctx.load_global(c, (0, 2), (64, 32)))  # <two columns on>


def other_warpgroups(ctx: Any, c: Any, staged: Any) -> None:
    nought = ctx.fragment(ctx.load_global(c, (64, 32), (64, 32)) * 0)
    ctx.store_global(c, (32 * ctx.warpgroup_rank, 0), nought)  # <overlap>


def stored_by_tma(ctx: Any, c: Any, staged: Any) -> None:
    f = ctx.load_global(c, (0, 0), (64, 32))  # <reads what TMA writes>
    ctx.store(staged, f * 2)
    ctx.fence_proxy_async()
    with ctx.elect_one("role"):
        ctx.tma_store(c, (0, 0), staged)
        ctx.tma_store_commit()
        ctx.tma_store_wait(0)


def value_a_column(ctx: Any, c: Any, staged: Any) -> None:
    f = ctx.load_global(c, (0, 0), (1, 32))  # <reads a row>
    ctx.store_global(c, (0, 0), f + 1)


@pytest.mark.parametrize(
    ("body", "warpgroups", "words"),
    [
        (
            other_lanes,
            1,
            (
                "race on tensor 'c'",
                "fragment_load_global c -> c_part",
                "fragment_store_global -> c",
                where("two columns on"),
            ),
        ),
        (
            other_warpgroups,
            2,
            ("race on tensor 'c'", "writes: fragment_store_global -> c", where("overlap")),
        ),
        (
            value_a_column,
            1,
            ("race on tensor 'c'", "they must meet between the two accesses", where("reads a row")),
        ),
    ],
)
def test_nothing_orders_accesses_to_a_tensor(
    body: Callable[[Any, Any, Any], None], warpgroups: int, words: tuple[str, ...]
) -> None:
    faults(on_array(body, warpgroups), tp.RaceError, *words)


def test_a_tma_store_waits_for_the_threads_that_read() -> None:
    faults(on_array(stored_by_tma), tp.RaceError, "race on")

    def synchronised(ctx: Any, c: Any, staged: Any) -> None:
        f = ctx.load_global(c, (0, 0), (64, 32))
        ctx.store(staged, f * 2)
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("role"):
            ctx.tma_store(c, (0, 0), staged)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)

    assert len(list(clean(on_array(synchronised)))) == 4


def test_two_ctas_write_one_tile() -> None:
    def body(ctx: Any, c: Any, staged: Any) -> None:
        f = ctx.fragment(shape=(64, 32))
        f.fill(0)
        ctx.store_global(c, (40 * ctx.block_id, 0), f)  # <both CTAs>

    words = ("race on tensor 'c'", "orders CTAs of different clusters", where("both CTAs"))
    faults(on_array(body, grid=2), tp.RaceError, *words)


def test_tiles_beside_each_other_are_no_race() -> None:
    def body(ctx: Any, c: Any, staged: Any) -> None:
        f = ctx.load_global(c, (64 * ctx.block_id, 8), (64, 56))
        ctx.store_global(c, (64 * ctx.block_id, 8), f.maximum(0))

    program = on_array(body, grid=3)  # the third lies outside
    for run in clean(program):
        assert run.advice == []
    assert np.array_equal(np.unique(program.launch_args.args["c"].array[:, 8:]), [0])  # type: ignore[union-attr]
