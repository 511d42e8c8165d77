"""Clusters of two: multicast, remote arrives, cluster barriers, distributed shared memory, and when
a CTA may exit.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.support.build import RANK, Builder, binary
from tilepipe.errors import BarrierError, DeadlockError, ExitError, RaceError
from tilepipe.ir import dtypes, ops

SEEDS = range(6)


def multicast(
    steps: int = 5,
    drain: bool = True,
    empty_count: int = 2,
    remote: bool = True,
    mask: Any = 3,
    setup: bool = True,
) -> tuple[Builder, dict[str, Any]]:
    """Each CTA loads half a tile for both; consumers of both release each slot on both CTAs."""
    b = Builder(cluster=2)
    src, dst = b.tensor("src", box=(4, 32)), b.tensor("dst", box=(8, 32))
    tiles, stages = b.smem("tiles", 8, 32, 2), 2
    full, empty = b.barriers("full", stages, 1), b.barriers("empty", stages, empty_count)
    if setup:
        b.setup_done()
    with b.role("load", warps=1):
        cursor = b.cursor(stages, -1)
        with b.loop(steps) as k:
            stage, phase = b.at(cursor)
            b.wait(b.bar(empty, stage), phase)
            with b.elect():
                b.expect(b.bar(full, stage), 8 * 32 * 2)
                half = binary("mul", RANK, 4)
                b.load_tile(
                    src,
                    (binary("add", binary("mul", k, 8), half), 0),
                    b.tile(tiles, stage, half, 0, 4, 32),
                    b.bar(full, stage),
                    mask,
                )
            b.step(cursor)
        if drain:
            with b.loop(stages):
                stage, phase = b.at(cursor)
                b.wait(b.bar(empty, stage), phase)
                b.step(cursor)
    with b.role("store", warps=1):
        cursor = b.cursor(stages, 0)
        with b.loop(steps) as k:
            stage, phase = b.at(cursor)
            b.wait(b.bar(full, stage), phase)
            with b.elect():
                row = binary("add", binary("mul", k, 8), binary("mul", RANK, 8 * steps))
                b.store_tile(dst, (row, 0), b.tile(tiles, stage))
                b.do(ops.TmaStoreCommit)
                b.do(ops.TmaStoreWait, 0, True)
                for cta in range(2) if remote else ():
                    b.arrive(b.bar(empty, stage, cta))
            b.step(cursor)
    values = np.arange(8 * steps * 32).reshape(8 * steps, 32) % 251
    return b, {
        "src": values.astype(dtypes.bfloat16.numpy),
        "dst": np.zeros((16 * steps, 32), dtypes.bfloat16.numpy),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_multicast_and_remote_release(seed: int) -> None:
    b, arrays = multicast()
    run = b.run(grid=2, seed=seed, **arrays)
    assert np.array_equal(arrays["dst"], np.concatenate([arrays["src"]] * 2))
    assert run.completions["full"] == [[3, 2], [3, 2]] == run.completions["empty"]


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_drain_a_peer_may_arrive_on_memory_that_is_gone(seed: int) -> None:
    b, arrays = multicast(drain=False)
    with pytest.raises(ExitError) as caught:
        b.run(grid=2, seed=seed, **arrays)
    text = str(caught.value)
    assert "exits while role 'store' of CTA" in text
    assert "can still arrive on empty[" in text
    assert re.search(
        r"Let a role of this CTA wait for phase \d of empty\[\d\], the last that "
        r"completes, before it ends",
        text,
    ), text
    assert "drain()" not in text, "no ring of the pipelines has an array 'empty'"


def test_an_arrival_in_a_phase_that_never_completes() -> None:
    b = Builder(cluster=2)
    flag = b.barriers("flag", 1, 2)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.arrive(b.bar(flag, 0, binary("xor", RANK, 1)))
    with pytest.raises(
        ExitError,
        match="wait for phase 0 of flag before it ends; that phase has 1 of 2 arrivals: leave "
        "this one out",
    ):
        b.run(grid=2)


@pytest.mark.parametrize(
    ("mask", "brought", "told"),
    [
        (
            1,
            "512 bytes in phase 0 and its copies brought 0",
            "this CTA, which is bit 1: 0b01 of role 'load' of CTA 0 (test_clusters.py:",
        ),
        (
            2,
            "512 bytes in phase 0 and its copies brought 0",
            "this CTA, which is bit 0: 0b10 of role 'load' of CTA 0 (test_clusters.py:",
        ),
        (
            binary("shl", 1, RANK),
            "brought 256",
            "this CTA, which is bit 0: 0b10 of role 'load' of CTA 1 (test_clusters.py:",
        ),
    ],
    ids=["0b01", "0b10", "its own"],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_multicast_mask_that_leaves_a_cta_out(
    mask: Any, brought: str, told: str, seed: int
) -> None:
    b, arrays = multicast(mask=mask)
    with pytest.raises(DeadlockError) as caught:
        b.run(grid=2, seed=seed, **arrays)
    text = str(caught.value)
    for words in (
        brought,
        "copies that signal full are multicast to masks without",
        told,
        "CTA that expects their bytes (0b11)",
    ):
        assert words in text, text
    assert "too large" not in text


@pytest.mark.parametrize("seed", SEEDS)
def test_releasing_only_ones_own_slot(seed: int) -> None:
    b, arrays = multicast(empty_count=2, remote=False)
    with pytest.raises(DeadlockError, match=r"2 of 2 arrivals|nothing in the kernel arrives"):
        b.run(grid=2, seed=seed, **arrays)


@pytest.mark.parametrize("mask", [0, 4, 7])
def test_a_mask_that_names_a_cta_outside(mask: int) -> None:
    b, arrays = multicast(mask=mask)
    with pytest.raises(BarrierError, match="it must name at least one, and no other"):
        b.run(grid=2, **arrays)


def test_a_multicast_before_the_peer_is_initialised() -> None:
    b, arrays = multicast(setup=False)
    with pytest.raises(
        BarrierError,
        match=r"before that CTA's initialisation of it has reached the cluster|before it was "
        r"initialised",
    ):
        b.run(grid=2, **arrays)


def peers(synced: bool, at_end: bool = True) -> tuple[Builder, dict[str, Any]]:
    """Each CTA writes a number into its peer's shared memory; the peer reads it after a cluster
    barrier.
    """
    b = Builder(cluster=2)
    out, cell = b.tensor("out", dtypes.int32, rank=1), b.smem("cell", 1, 4, dtype=dtypes.int32)
    b.setup_done()
    with b.role("one", warps=1):
        with b.elect():
            b.store(
                b.element(b.tile(cell, cta=binary("xor", RANK, 1)), 0, 0), binary("add", RANK, 10)
            )
        if synced:
            b.do(ops.ClusterArrive)
            b.do(ops.ClusterWait)
        with b.elect():
            b.store(b.element(out, RANK), b.load(b.element(b.tile(cell), 0, 0)))
    return b, {"out": np.zeros(2, np.int32)}


@pytest.mark.parametrize("seed", SEEDS)
def test_distributed_shared_memory(seed: int) -> None:
    b, arrays = peers(synced=True)
    b.run(grid=2, seed=seed, **arrays)
    assert arrays["out"].tolist() == [11, 10]
    b, arrays = peers(synced=False)
    with pytest.raises(RaceError, match="race on cell"):
        b.run(grid=2, seed=seed, **arrays)


def test_exit_while_a_peer_writes() -> None:
    b = Builder(cluster=2)
    cell = b.smem("cell", 1, 4, dtype=dtypes.int32)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.store(b.element(b.tile(cell, cta=binary("xor", RANK, 1)), 0, 0), 1)
    with pytest.raises(ExitError, match="can still access its cell"):
        b.run(grid=2)


@pytest.mark.parametrize("kind", ["load", "store", "mma"])
def test_exit_with_own_asynchronous_accesses_unfinished(kind: str) -> None:
    b = Builder()
    src, tile, full = b.tensor("src", box=(64, 64)), b.smem("tile", 64, 64), b.barriers("full")
    dst = b.tensor("dst", box=(64, 64))
    b.setup_done()
    with b.role("one", warpgroups=1):
        acc = b.fragment("acc", 64, 64)
        b.do(ops.FragmentSet, acc, binary("mul", 0.0, 1.0))
        with b.elect("warpgroup"):
            b.expect(b.bar(full), 64 * 64 * 2)
            b.load_tile(src, (0, 0), b.tile(tile), b.bar(full))
        if kind != "load":
            b.wait(b.bar(full), 0)
        if kind == "store":
            with b.elect("warpgroup"):
                b.store_tile(dst, (0, 0), b.tile(tile))
                b.do(ops.TmaStoreCommit)
        if kind == "mma":
            b.do(ops.WgmmaFence)
            b.do(ops.Wgmma, acc, b.tile(tile), b.tile(tile))
            b.do(ops.WgmmaCommit)
    said = {
        "load": "a copy into tile can still land",
        "store": "TMA store may still read tile",
        "mma": "tensor cores may still read tile",
    }
    zeros = np.zeros((64, 64), dtypes.bfloat16.numpy)
    with pytest.raises(ExitError, match=said[kind]):
        b.run(src=zeros, dst=zeros.copy())


@pytest.mark.parametrize("waits", [False, True])
def test_a_store_that_was_never_committed_is_told_to_commit(waits: bool) -> None:
    """A wait covers committed stores alone, so it must not be what the message asks for."""
    b = Builder()
    src, dst = b.tensor("src", box=(64, 64)), b.tensor("dst", box=(64, 64))
    tile, full = b.smem("tile", 64, 64), b.barriers("full")
    b.setup_done()
    with b.role("one", warpgroups=1), b.elect("warpgroup"):
        b.expect(b.bar(full), 64 * 64 * 2)
        b.load_tile(src, (0, 0), b.tile(tile), b.bar(full))
        b.wait(b.bar(full), 0)
        b.store_tile(dst, (0, 0), b.tile(tile))
        if waits:
            b.do(ops.TmaStoreWait, 0, False)
    zeros = np.zeros((64, 64), dtypes.bfloat16.numpy)
    with pytest.raises(ExitError, match=r"may still read tile: .* was never committed") as caught:
        b.run(src=zeros, dst=zeros.copy())
    assert "Call ctx.tma_store_commit() after it" in str(caught.value)
    assert "has not been waited for" not in str(caught.value)


def test_a_relaxed_arrive_publishes_no_ordinary_access() -> None:
    for sem in ("release", "relaxed"):
        b = Builder(cluster=2)
        cell, full = b.smem("cell", 1, 4, dtype=dtypes.int32), b.barriers("full")
        b.setup_done()
        with b.role("one", warps=1), b.elect():
            peer = binary("xor", RANK, 1)
            b.store(b.element(b.tile(cell, cta=peer), 0, 0), 1)
            b.arrive(b.bar(full, 0, peer), 1, sem)
            b.wait(b.bar(full), 0)
            b.load(b.element(b.tile(cell), 0, 0))
        if sem == "release":
            b.run(grid=2)
        else:
            with pytest.raises(RaceError, match="race on cell"):
                b.run(grid=2)
