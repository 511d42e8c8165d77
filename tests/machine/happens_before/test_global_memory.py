"""Happens-before on tensors that the kernel writes: by element, by lane, however many accesses lie
between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.build import BLOCK, LANE, THREAD, Builder, binary
from tilepipe.errors import RaceError
from tilepipe.ir import dtypes, ops
from tilepipe.machine.happens_before import global_history, global_memory as global_order
from tilepipe.machine.happens_before.events import SWEEP, GlobalOrder
from tilepipe.machine.machine import Machine

SEEDS = range(4)


def ints(n: int) -> np.ndarray:
    return np.zeros(n, np.int32)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("stores", [0, 10, 100, 300])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_write_is_remembered_until_everybody_knows_of_it(
    stores: int, ordered: bool, seed: int
) -> None:
    b = Builder()
    g, o, full = (
        b.tensor("g", dtypes.int32, rank=1),
        b.tensor("o", dtypes.int32, rank=1),
        b.barriers("full"),
    )
    side = b.barriers("side", count=1)
    b.setup_done()
    with b.role("writer", warps=1), b.elect():
        b.store(b.element(g, 0), 7)
        with b.loop(stores) as i:
            b.store(b.element(g, binary("add", i, 1)), 1)
            b.arrive(b.bar(side))  # a release each time, so that no two stores are one event
        b.arrive(b.bar(full))
    with b.role("reader", warps=1), b.elect():
        if ordered:
            b.wait(b.bar(full), 0)
        b.store(b.element(o, 0), b.load(b.element(g, 0)))
    arrays = {"g": ints(512), "o": ints(1)}
    if ordered:
        assert b.run(seed=seed, **arrays).advice == []
        assert arrays["o"].tolist() == [7]
    else:
        with pytest.raises(
            RaceError,
            match=r"race on tensor 'g'(.|\n)*role '(reader|writer)'(.|\n)*must arrive on a barrier",
        ):
            b.run(seed=seed, **arrays)


@pytest.mark.parametrize("synced", [False, True])
def test_other_lanes_of_the_warp_need_a_syncwarp(synced: bool) -> None:
    b = Builder()
    g, o = b.tensor("g", dtypes.int32, rank=1), b.tensor("o", dtypes.int32, rank=1)
    b.setup_done()
    with b.role("one", warps=1):
        b.store(b.element(g, LANE), binary("mul", LANE, 10))
        if synced:
            b.do(ops.SyncWarp)
        b.store(b.element(o, LANE), b.load(b.element(g, binary("sub", 31, LANE))))
    arrays = {"g": ints(32), "o": ints(32)}
    if synced:
        b.run(**arrays)
        assert arrays["o"].tolist() == [10 * (31 - i) for i in range(32)]
    else:
        with pytest.raises(RaceError, match=r"race on tensor 'g'(.|\n)*ctx.syncwarp"):
            b.run(**arrays)


def test_one_warp_of_a_group_does_not_speak_for_the_others() -> None:
    b = Builder()
    g, o, full = (
        b.tensor("g", dtypes.int32, rank=1),
        b.tensor("o", dtypes.int32, rank=1),
        b.barriers("full"),
    )
    b.setup_done()
    with b.role("group", warpgroups=1):
        b.store(b.element(g, THREAD), THREAD)
        b.do(ops.SyncWarp)
        with b.elect("warpgroup"):
            b.arrive(b.bar(full))
    with b.role("reader", warps=1):
        b.wait(b.bar(full), 0)
        b.store(b.element(o, LANE), b.load(b.element(g, LANE)))
        x = b.load(b.element(g, binary("add", LANE, 32)))
        b.store(b.element(o, LANE), x)
    with pytest.raises(
        RaceError, match=r"race on tensor 'g'(.|\n)*role 'group'(.|\n)*role 'reader'"
    ):
        b.run(g=ints(128), o=ints(32))


@pytest.mark.parametrize("second", ["same lane", "all known", "nobody waits"])
def test_a_write_comes_after_every_read(second: str) -> None:
    """Two roles read an element; a third overwrites it and has heard from one of them, or from
    both.
    """
    b = Builder()
    g, o = b.tensor("g", dtypes.int32, rank=1), b.tensor("o", dtypes.int32, rank=1)
    done = b.barriers("done", count=1 if second == "nobody waits" else 2)
    b.setup_done()
    for i, name in enumerate(("left", "right")):
        with b.role(name, warps=1), b.elect():
            b.store(b.element(o, i), b.load(b.element(g, 0)))
            if second != "nobody waits" or name == "right":
                b.arrive(b.bar(done))
    with b.role("writer", warps=1), b.elect():
        b.wait(b.bar(done), 0)
        b.store(b.element(g, 0), 5)
        if second == "same lane":
            b.store(b.element(g, 0), 6)
    arrays = {"g": ints(1), "o": ints(2)}
    if second == "nobody waits":
        with pytest.raises(
            RaceError, match=r"role 'left' reads: load g\[0\](.|\n)*role 'writer' writes"
        ):
            b.run(**arrays)
    else:
        b.run(**arrays)
        assert arrays["g"].tolist() == [6 if second == "same lane" else 5]


def test_neighbouring_elements_do_not_conflict() -> None:
    b = Builder()
    g = b.tensor("g", dtypes.int32, rank=1)
    b.setup_done()
    for i, name in enumerate(("even", "odd")):
        with b.role(name, warps=1):
            b.store(b.element(g, binary("add", binary("mul", LANE, 2), i)), i + 1)
    arrays = {"g": ints(64)}
    b.run(**arrays)
    assert arrays["g"].tolist() == [1, 2] * 32


def copies_out(rows_apart: int, wait: bool) -> Builder:
    """A TMA store to rows 0..7, then ordinary loads from a row."""
    b = Builder()
    g, o = b.tensor("g", dtypes.int32, box=(8, 8)), b.tensor("o", dtypes.int32, rank=1)
    tile = b.smem("tile", 8, 8, dtype=dtypes.int32)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        with b.loop(8) as r, b.loop(8) as c:
            b.store(b.element(b.tile(tile), r, c), 3)
        b.do(ops.FenceProxyAsync)
        b.store_tile(g, (0, 0), b.tile(tile))
        b.do(ops.TmaStoreCommit)
        b.do(ops.TmaStoreWait, 0, not wait)
        b.store(b.element(o, 0), b.load(b.element(g, rows_apart, 0)))
    return b


@pytest.mark.parametrize(
    ("row", "wait", "fault"), [(7, False, True), (8, False, False), (7, True, False)]
)
def test_a_copy_out_and_ordinary_loads(row: int, wait: bool, fault: bool) -> None:
    b = copies_out(row, wait)
    arrays = {"g": np.zeros((16, 8), np.int32), "o": ints(1)}
    if fault:
        with pytest.raises(RaceError, match=r"race on tensor 'g'(.|\n)*ctx.tma_store_wait\(0\)"):
            b.run(**arrays)
    else:
        b.run(**arrays)
        assert arrays["o"].tolist() == [3 if row < 8 else 0]


def live_after(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[Builder], None]
) -> tuple[int, list[str]]:
    """The most events that were live at once, and the advice."""
    most = [0]
    record = global_history.record

    def watched(m: Machine, order: GlobalOrder, *args: Any) -> None:
        record(m, order, *args)
        most[0] = max(most[0], len(order.present.live))

    monkeypatch.setattr(global_order, "record", watched)
    b = Builder()
    build(b)
    advice = b.run(g=ints(2048)).advice
    return most[0], advice


def test_stores_between_two_releases_are_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(b: Builder) -> None:
        g = b.tensor("g", dtypes.int32, rank=1)
        b.setup_done()
        for name, at in (("left", 0), ("right", 1000)):
            with b.role(name, warps=1), b.elect(), b.loop(1000) as i:
                b.store(b.element(g, binary("add", i, at)), 1)

    assert live_after(monkeypatch, build) == (2, [])


def test_what_everybody_knows_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(b: Builder) -> None:
        g, turn = b.tensor("g", dtypes.int32, rank=1), b.named("turn", 64)
        b.setup_done()
        for name, at in (("left", 0), ("right", 1000)):
            with b.role(name, warps=1), b.loop(500) as i:
                with b.elect():
                    b.store(b.element(g, binary("add", i, at)), 1)
                b.do(ops.NamedSync, turn)

    most, advice = live_after(monkeypatch, build)
    assert most <= 2 * SWEEP
    assert advice == []


def test_where_a_bound_is_reached_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_history, "LIMIT", 100)

    def build(b: Builder) -> None:
        g, side = b.tensor("g", dtypes.int32, rank=1), b.barriers("side")
        b.setup_done()
        with b.role("left", warps=1), b.elect(), b.loop(500) as i:
            b.store(b.element(g, i), 1)
            b.arrive(b.bar(side))
        with b.role("right", warps=1):
            b.do(ops.SyncWarp)
            with b.loop(1000):
                b.do(ops.SyncWarp)

    most, advice = live_after(monkeypatch, build)
    assert most <= 101
    # seed 0 runs `left` to its end first, so that `right` has not returned
    assert len(advice) == 1
    assert "tensor 'g': a cluster has more than 100 accesses" in advice[0]
    assert "A smaller problem has fewer" in advice[0]


def test_other_clusters_are_never_ordered() -> None:
    b = Builder()
    g = b.tensor("g", dtypes.int32, rank=1)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.store(b.element(g, binary("floordiv", BLOCK, 2)), 1)
    with pytest.raises(
        RaceError,
        match=r"role 'one' of CTA 0 writes: store(.|\n)*role 'one' of CTA 1 writes: store(.|\n)*"
        r"CTAs of different clusters",
    ):
        b.run(grid=2, g=ints(2))
