"""Which lanes an arrive speaks for, and the fences between the generic and the async proxy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.build import LANE, THREAD, Builder, binary
from tilepipe.errors import BarrierError, RaceError, SimFault
from tilepipe.ir import dtypes, ops

SEEDS = range(5)


def lanes_write(sync: bool, elected: bool = True) -> tuple[Builder, dict[str, np.ndarray]]:
    """32 lanes write, then one elected lane (or all of them) arrives; another role reads."""
    b = Builder()
    out, row = b.tensor("out", dtypes.int32, rank=1), b.smem("row", 1, 32, dtype=dtypes.int32)
    full = b.barriers("full", count=1 if elected else 32)
    b.setup_done()
    with b.role("writer", warps=1):
        b.store(b.element(b.tile(row), 0, LANE), binary("mul", LANE, LANE))
        if sync:
            b.do(ops.SyncWarp)
        if elected:
            with b.elect():
                b.arrive(b.bar(full))
        else:
            b.arrive(b.bar(full))
    with b.role("reader", warps=1):
        b.wait(b.bar(full), 0)
        b.store(b.element(out, LANE), b.load(b.element(b.tile(row), 0, LANE)))
    return b, {"out": np.zeros(32, np.int32)}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("sync", "elected"), [(True, True), (False, False), (True, False)])
def test_lanes_that_speak_for_themselves_or_have_met(seed: int, sync: bool, elected: bool) -> None:
    b, arrays = lanes_write(sync, elected)
    b.run(seed=seed, **arrays)
    assert arrays["out"].tolist() == [i * i for i in range(32)]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_elected_lane_does_not_speak_for_the_warp(seed: int) -> None:
    b, arrays = lanes_write(False)
    with pytest.raises(
        RaceError,
        match=r"race on row(.|\n)*role 'writer'(.|\n)*role 'reader'(.|\n)*ctx.syncwarp\(\)",
    ):
        b.run(seed=seed, **arrays)


def test_other_lanes_of_the_same_warp_need_a_syncwarp() -> None:
    for synced in (False, True):
        b = Builder()
        out, row = b.tensor("out", dtypes.int32, rank=1), b.smem("row", 1, 32, dtype=dtypes.int32)
        b.setup_done()
        with b.role("one", warps=1):
            b.store(b.element(b.tile(row), 0, LANE), LANE)
            # the same lane: program order
            b.store(b.element(b.tile(row), 0, LANE), binary("add", LANE, 1))
            if synced:
                b.do(ops.SyncWarp)
            x = b.load(b.element(b.tile(row), 0, binary("xor", LANE, 1)))
            b.store(b.element(out, LANE), x)
        arrays = {"out": np.zeros(32, np.int32)}
        if synced:
            b.run(**arrays)
            assert arrays["out"].tolist() == [(i ^ 1) + 1 for i in range(32)]
        else:
            with pytest.raises(RaceError, match="race on row"):
                b.run(**arrays)


def warpgroup_stores(named: bool, fence: str = "writers") -> tuple[Builder, dict[str, np.ndarray]]:
    """A warpgroup writes a fragment to a tile; one lane of it stores the tile by TMA."""
    b = Builder()
    out, tile = b.tensor("out", box=(64, 32)), b.smem("tile", 64, 32)
    meet = b.named("meet", 128)
    b.setup_done()
    with b.role("epilogue", warpgroups=1):
        f = b.fragment("f", 64, 32)
        b.do(ops.FragmentSet, f, binary("mul", 1.5, 2.0))
        b.do(ops.FragmentStore, b.tile(tile), b.value(f))
        if fence == "writers":
            b.do(ops.FenceProxyAsync)
        if named:
            b.do(ops.NamedSync, meet)
        else:
            b.do(ops.SyncWarp)
        with b.elect("warpgroup"):
            if fence == "reader":
                b.do(ops.FenceProxyAsync)
            b.store_tile(out, (0, 0), b.tile(tile))
            b.do(ops.TmaStoreCommit)
            b.do(ops.TmaStoreWait, 0, False)
    return b, {"out": np.zeros((64, 32), dtypes.bfloat16.numpy)}


@pytest.mark.parametrize("seed", SEEDS)
def test_four_warps_write_and_one_lane_stores(seed: int) -> None:
    b, arrays = warpgroup_stores(named=True)
    assert b.run(seed=seed, **arrays).advice == []
    assert (arrays["out"] == 3).all()
    b, arrays = warpgroup_stores(named=False)
    with pytest.raises(RaceError, match=r"race on tile: nothing orders(.|\n)*named barrier"):
        b.run(seed=seed, **arrays)


def test_proxy_fence_on_either_side() -> None:
    b, arrays = warpgroup_stores(named=True, fence="none")
    with pytest.raises(RaceError, match=r"race between proxies on tile(.|\n)*no fence.proxy.async"):
        b.run(**arrays)
    b, arrays = warpgroup_stores(named=True, fence="reader")
    run = b.run(**arrays)
    assert len(run.advice) == 1
    assert "reader's side" in run.advice[0]
    b, arrays = warpgroup_stores(named=True, fence="reader")
    with pytest.raises(RaceError, match="strict rules, reader-side fence: "):
        b.run(rules="strict", **arrays)


def two_roles(fence: str) -> tuple[Builder, dict[str, np.ndarray]]:
    """G24: one role writes by ordinary stores, another stores by TMA."""
    b = Builder()
    out, row, full = (
        b.tensor("out", dtypes.int32, box=(1, 32)),
        b.smem("row", 1, 32, dtype=dtypes.int32),
        b.barriers("full", count=32),
    )
    b.setup_done()
    with b.role("writer", warps=1):
        b.store(b.element(b.tile(row), 0, LANE), LANE)
        if fence == "before the arrive":
            b.do(ops.FenceProxyAsync)
        b.arrive(b.bar(full))
        if fence == "after the arrive":
            b.do(ops.FenceProxyAsync)
    with b.role("store", warps=1), b.elect():
        b.wait(b.bar(full), 0)
        if fence == "reader":
            b.do(ops.FenceProxyAsync)
        b.store_tile(out, (0, 0), b.tile(row))
        b.do(ops.TmaStoreCommit)
        b.do(ops.TmaStoreWait, 0, False)
    return b, {"out": np.zeros((1, 32), np.int32)}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fence", ["none", "after the arrive", "before the arrive", "reader"])
def test_g24_where_the_proxy_fence_stands(seed: int, fence: str) -> None:
    b, arrays = two_roles(fence)
    if fence in ("none", "after the arrive"):
        with pytest.raises(RaceError, match="race between proxies on row"):
            b.run(seed=seed, **arrays)
        return
    run = b.run(seed=seed, **arrays)
    assert arrays["out"].tolist() == [list(range(32))]
    assert bool(run.advice) == (fence == "reader")


def test_a_lane_condition_counts_its_lanes() -> None:
    b = Builder()
    full = b.barriers("full", count=5)
    b.setup_done()
    with b.role("some", warps=1):
        with b.when(binary("lt", LANE, 5)):
            b.arrive(b.bar(full))
        b.wait(b.bar(full), 0)
    assert b.run().completions == {"full": [[1]]}


@pytest.mark.parametrize(
    ("scope", "groups", "count"), [("warp", 2, 8), ("warpgroup", 2, 2), ("role", 2, 1)]
)
def test_elect_scopes(scope: str, groups: int, count: int) -> None:
    b = Builder()
    full = b.barriers("full", count=count)
    b.setup_done()
    with b.role("groups", warpgroups=groups):
        with b.elect(scope):
            b.arrive(b.bar(full))
        b.wait(b.bar(full), 0)
    assert b.run().completions == {"full": [[1]]}


def test_elect_scopes_of_plain_warps() -> None:
    b = Builder()
    full = b.barriers("full", 3, None, init=False)
    with b.elect("role"):
        for i, n in enumerate((8, 2, 1)):
            b.do(ops.MbarInit, b.bar(full, i), binary("add", n, 0))
    b.setup_done()
    with b.role("warps", warps=8):
        for i, scope in enumerate(("warp", "warpgroup", "role")):
            with b.elect(scope):
                b.arrive(b.bar(full, i))
            b.wait(b.bar(full, i), 0)
    assert b.run().completions == {"full": [[1, 1, 1]]}


def test_a_copy_by_several_lanes_is_a_fault() -> None:
    b = Builder()
    src, tile, full = b.tensor("src", box=(8, 32)), b.smem("tile", 8, 32), b.barriers("full")
    b.setup_done()
    with b.role("load", warps=1):
        b.load_tile(src, (0, 0), b.tile(tile), b.bar(full))
    with pytest.raises(SimFault, match="32 threads of role 'load' issue it"):
        b.run(src=np.zeros((8, 32), dtypes.bfloat16.numpy))


def test_named_barrier_rules() -> None:
    def kernel(threads: int, again: bool, third: bool = False) -> Builder:
        b = Builder()
        meet = b.named("meet", threads)
        b.setup_done()
        with b.role("left", warps=1):
            b.do(ops.NamedArrive, meet)
            if again:
                b.do(ops.NamedArrive, meet)
        with b.role("right", warps=1):
            b.do(ops.NamedSync, meet)
        with b.role("third", warps=1):
            if third:
                b.do(ops.NamedSync, meet)
        return b

    assert kernel(64, False).run().steps
    assert kernel(96, True).run().steps  # a warp is counted each time that it arrives
    with pytest.raises(BarrierError, match="named barrier 'meet' again before it was reset"):
        kernel(96, True, third=True).run()
    with pytest.raises(BarrierError, match=r"is for 32 threads|meet"):
        kernel(48, False).run()


def test_per_warp_values() -> None:
    """Warp numbers, thread numbers and lane conditions inside per_warp are those of the warp at
    hand.
    """
    b = Builder()
    out = b.tensor("out", dtypes.int32, rank=1)
    b.setup_done()
    with b.role("group", warpgroups=1):
        outer = b.let(binary("mul", THREAD, 2))
        total = b.var(0, vary=outer.vary)
        with b.per_warp() as w:
            b.do(ops.Assign, total, binary("add", outer, w))
            with b.when(binary("lt", LANE, 8)):
                b.do(ops.Assign, total, binary("add", b.read(total), 1000))
        b.store(b.element(out, THREAD), b.read(total))
    arrays = {"out": np.zeros(128, np.int32)}
    b.run(**arrays)
    assert arrays["out"].tolist() == [
        2 * t + t // 32 + (1000 if t % 32 < 8 else 0) for t in range(128)
    ]
