"""Fragments of layout "rows:T" in global memory: who touches what, and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp


def shifted(threads: int, by: tuple[int, int], sync: bool) -> None:
    """Stores to a tensor what is loaded from another place of it."""

    @tp.kernel(grid=1)
    def k(ctx: tp.Context, a: Any) -> None:
        @ctx.role("move", warpgroups=1)
        def move() -> None:
            shape, layout = (128 // threads, 8 * threads), f"rows:{threads}"
            x = ctx.load_global(a, (0, 0), shape, layout=layout)
            if sync:
                ctx.sync_warpgroup()
            ctx.store_global(a, by, x)

    a = np.zeros((256, 2048), np.float32)
    k.bind(a).run()


@pytest.mark.parametrize("threads", [1, 8, 32, 64])
def test_an_element_that_another_thread_has_loaded(threads: int) -> None:
    for by in ((1, 0), (0, 8)):
        if threads == 1 and by[1]:
            continue  # the columns of a thread, and no other's
        with pytest.raises(tp.RaceError):
            shifted(threads, by, sync=False)
        shifted(threads, by, sync=True)
    shifted(threads, (0, 0), sync=False)


def test_columns_of_one_row_that_another_warp_has_loaded() -> None:
    with pytest.raises(tp.RaceError):
        shifted(128, (0, 256), sync=False)
    shifted(128, (0, 256), sync=True)
    shifted(128, (0, 0), sync=False)


def test_rows_that_two_warpgroups_write() -> None:
    @tp.kernel(grid=1)
    def k(ctx: tp.Context, a: Any, step: Any) -> None:
        @ctx.role("write", warpgroups=2)
        def write() -> None:
            x = ctx.fragment(shape=(4, 256), layout="rows:32")
            x.fill(1)
            ctx.store_global(a, (ctx.warpgroup_rank * step, 0), x)

    a = np.zeros((8, 256), np.float32)
    k.bind(a, 4).run()
    assert a.all()
    with pytest.raises(tp.RaceError):
        k.bind(a, 3).run()


def test_one_value_a_row_is_written_by_one_thread_of_it() -> None:
    """So another thread may not read it before a barrier."""

    def run(sync: bool) -> None:
        @tp.kernel(grid=1)
        def k(ctx: tp.Context, sums: Any) -> None:
            @ctx.role("write", warpgroups=1)
            def write() -> None:
                x = ctx.fragment(shape=(4, 256), layout="rows:32")
                x.fill(1)
                ctx.store_global(sums, (0,), x.sum())
                if sync:
                    ctx.sync_warpgroup()
                y = ctx.load_global(sums, (0,), (4, 1), layout="rows:32")
                ctx.store_global(sums, (4,), y)

        sums = np.zeros(8, np.float32)
        k.bind(sums).run()
        assert (sums == 256).all()

    run(sync=True)
    with pytest.raises(tp.RaceError):
        run(sync=False)


@pytest.mark.parametrize("threads", [8, 32, 128])
def test_one_value_a_row_in_shared_memory(threads: int) -> None:
    """The first thread of a row writes it, and all read it, after a barrier; so does a peer."""

    def run(sync: bool, cta: int) -> None:
        rows = 2 * 128 // threads

        @tp.kernel(grid=2, cluster=2)
        def k(ctx: tp.Context, out: Any) -> None:
            tile = ctx.smem((rows, 1), "float32", swizzle=0)[0]

            @ctx.role("all", warpgroups=1)
            def body() -> None:
                layout = f"rows:{threads}"
                x = ctx.fragment(shape=(rows, 1), layout=layout)
                x.set((ctx.row_index(rows, layout=layout) + ctx.cta_rank).to("float32"))
                ctx.store(tile.on((ctx.cta_rank + cta) % 2), x)
                if sync:
                    ctx.cluster_arrive()
                    ctx.cluster_wait()
                y = ctx.fragment(shape=(rows, 1), layout=layout)
                y.load(tile)
                ctx.store_global(out, (ctx.cta_rank, 0), y)

        out = np.zeros((2, rows), np.float32)
        k.bind(out).run()
        assert (out == np.arange(rows) + (np.arange(2)[:, None] + cta) % 2).all()

    for cta in (0, 1):
        run(sync=True, cta=cta)
        with pytest.raises(tp.RaceError):
            run(sync=False, cta=cta)
