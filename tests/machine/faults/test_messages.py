"""What a message says beside the fault: who did it, what it is called, and the advice that fits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.support.build import LANE, RANK, Builder, binary
from tilepipe.errors import BarrierError, DeadlockError, PoisonError, RaceError, TilepipeError
from tilepipe.ir import dtypes, ops, printer
from tilepipe.ir.expressions import const


def caught(b: Builder, kind: type[TilepipeError], **settings: Any) -> str:
    with pytest.raises(kind) as error:
        b.run(**settings)
    return str(error.value)


def test_a_lapped_wait_names_who_completed_the_later_phase() -> None:
    """The count is right: nothing is called an over-arrival, and the barrier has one name."""
    b = Builder()
    tick = b.barriers("tick")
    b.setup_done()
    with b.role("fast", warps=1), b.elect(), b.loop(2):
        b.arrive(b.bar(tick))
    with b.role("slow", warps=1):
        b.wait(b.bar(tick), 0)
    text = caught(b, BarrierError)
    assert re.search(
        r"Phase 1 was completed by:\n +1 by role 'fast', mbar_arrive tick, at "
        r"test_messages\.py:\d+\n",
        text,
    )
    assert "that role 'slow' arrives on after it has seen phase 0" in text
    assert "Over-arrival" not in text
    assert "tick[0]" not in text


def filled(first: int, arrives: bool = True) -> Builder:
    """A ring of one stage, filled three times, whose producer begins with a wait for phase
    `first`.
    """
    b = Builder()
    full, empty = b.barriers("ring.full"), b.barriers("ring.empty")
    b.setup_done()
    with b.role("fill", warps=1), b.elect(), b.loop(3) as i:
        b.wait(b.bar(empty), binary("add", i, first))
        if arrives:
            b.arrive(b.bar(full))
    with b.role("use", warps=1), b.elect(), b.loop(3) as i:
        b.wait(b.bar(full), i)
        b.arrive(b.bar(empty))
    return b


@pytest.mark.parametrize("seed", range(4))
def test_a_producer_that_starts_one_phase_late(seed: int) -> None:
    text = caught(filled(first=0), DeadlockError, seed=seed)
    assert (
        "what to look at: role 'fill' waits for phase 0 of ring.empty, the first release, before"
        " it has filled anything" in text
    )
    assert "its phases start one too late" in text
    assert "parity 1" in text
    assert "the cycle above" not in text
    filled(first=-1).run(seed=seed)
    assert "one too late" not in caught(
        filled(first=-1, arrives=False), DeadlockError, seed=seed
    ), "it has passed its first wait"


def announced(how: str) -> tuple[Builder, dict[str, np.ndarray]]:
    b = Builder()
    src, tile, out = (
        b.tensor("src", box=(8, 32)),
        b.smem("tile", 8, 32),
        b.tensor("out", dtypes.float32, rank=1),
    )
    full = b.barriers("full")
    b.setup_done()
    with b.role("load", warps=1), b.elect():
        if how == "only announced":
            b.expect(b.bar(full), 512, arrive=False)
        elif how == "announced late":
            b.arrive(b.bar(full))
            b.expect(b.bar(full), 512, arrive=False)
        elif how == "arrived before":
            b.arrive(b.bar(full))
        b.load_tile(src, (0, 0), b.tile(tile), b.bar(full))
        if how == "only arrived":
            b.arrive(b.bar(full))
    with b.role("use", warps=1), b.when(binary("lt", LANE, 8)):
        b.wait(b.bar(full), 0)
        b.store(b.element(out, LANE), b.load(b.element(b.tile(tile), LANE, 0)))
    return b, {"src": np.ones((8, 32), dtypes.bfloat16.numpy), "out": np.zeros(8, np.float32)}


@pytest.mark.parametrize("seed", range(4))
def test_bytes_announced_without_an_arrival(seed: int) -> None:
    b, arrays = announced("only announced")
    text = caught(b, DeadlockError, seed=seed, **arrays)
    assert re.search(
        r"expect_bytes_only \(test_messages\.py:\d+\) announces bytes but does not "
        r"arrive; use expect_bytes",
        text,
    )


@pytest.mark.parametrize("seed", range(4))
def test_an_arrival_without_announced_bytes(seed: int) -> None:
    b, arrays = announced("only arrived")
    text = caught(b, BarrierError, seed=seed, **arrays)
    assert "No expect_bytes was called on full in this phase" in text
    assert "Raise the number" not in text


@pytest.mark.parametrize("seed", range(6))
def test_bytes_announced_after_the_arrive(seed: int) -> None:
    b, arrays = announced("announced late")
    text = caught(b, RaceError, seed=seed, **arrays)
    assert re.search(
        r"The arrive by role 'load' at test_messages\.py:\d+ completed phase 0 of full "
        r"before expect_bytes_only",
        text,
    )
    assert "the bytes count for phase 1, which role 'use' has not waited for" in text


@pytest.mark.parametrize("seed", range(6))
def test_an_arrive_before_a_copy_whose_bytes_nobody_announces(seed: int) -> None:
    """`use` does wait for the phase, so advice to wait for it would lead nowhere."""
    b, arrays = announced("arrived before")
    text = caught(b, RaceError, seed=seed, **arrays)
    assert re.search(
        r"The arrive by role 'load' at test_messages\.py:\d+ completed phase 0 of full, for which"
        r" no bytes had been announced: the copy counts for phase 1, which role 'use' has not",
        text,
    )
    assert "In the place of that arrive, call expect_bytes: it announces the bytes" in text
    assert "must wait for that phase first" not in text


def test_a_role_that_waits_for_itself() -> None:
    b = Builder()
    done = b.barriers("done")
    b.setup_done()
    with b.role("alone", warps=1), b.elect():
        b.wait(b.bar(done), 0)
        b.arrive(b.bar(done))
    text = caught(b, DeadlockError)
    assert re.search(
        r"done: mbar_arrive at .* the same agent would have to arrive after its own wait", text
    )
    assert (
        "only role 'alone' arrives on done: the same agent would have to arrive after its own wait."
        in text
    )


def test_who_would_bring_it_is_told_for_each_cta() -> None:
    b = Builder(cluster=2)
    done = b.barriers("done")
    b.setup_done()
    with b.role("wait", warps=1):
        b.wait(b.bar(done), 0)
        b.do(ops.ClusterArrive)
        b.do(ops.ClusterWait)
    with b.role("arrive", warps=1), b.when(binary("eq", RANK, 5)), b.elect():
        b.arrive(b.bar(done))
    text = caught(b, DeadlockError, grid=2)
    for cta in (0, 1):
        assert re.search(
            rf"\n    done of CTA {cta}: mbar_arrive at .* role 'arrive' of CTA {cta} has returned",
            text,
        )


def test_poison_is_not_chained_to_what_it_explains() -> None:
    """Seed 0 goes on after the read of poison into a deadlock; only the read is reported."""
    b = Builder()
    tile, never = b.smem("tile", 1, 4, dtype=dtypes.int32), b.barriers("never")
    out = b.tensor("out", dtypes.int32, rank=1)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.store(b.element(out, 0), b.load(b.element(b.tile(tile), 0, 0)))
        b.wait(b.bar(never), 0)
    with pytest.raises(PoisonError) as error:
        b.run(out=np.zeros(1, np.int32))
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_a_tile_is_named_with_numbers() -> None:
    b = Builder()
    src, ring, full = (
        b.tensor("src", box=(8, 32)),
        b.smem("ring", 32, 32, count=3),
        b.barriers("full"),
    )
    n = b.scalar("n")
    b.setup_done()
    part = b.tile(ring, n, binary("mul", n, 8), 0, 8, 32)
    with b.role("load", warps=1), b.elect():
        b.expect(b.bar(full), 512)
        b.load_tile(src, (0, 0), part, b.bar(full))
    with b.role("use", warps=1), b.elect():
        b.store(b.element(part, 0, 0), const(1.0))
        b.wait(b.bar(full), 0)
    text = caught(b, RaceError, n=2, src=np.ones((8, 32), dtypes.bfloat16.numpy))
    assert (
        "role 'load' writes rows 16..23, columns 0..31 (async proxy): tma_load src -> ring[2]"
        " rows 16..23\n" in text
    )
    assert "store [0, 0] of ring[2] rows n * 8 .. +8" in text
    assert "rows n * 8 .. +8" in printer.text(b.kernel)


@pytest.mark.parametrize(("warps", "elect"), [(1, "ctx.elect_one()"), (4, 'ctx.elect_one("role")')])
def test_an_arrive_by_all_threads_on_a_count_of_one(warps: int, elect: str) -> None:
    b = Builder()
    ready = b.barriers("ready")
    b.setup_done()
    with b.role("all", warps=warps) if warps == 1 else b.role("all", warpgroups=1):
        b.arrive(b.bar(ready))
    text = caught(b, BarrierError)
    threads = 32 * warps
    advice = (
        "Arrived already: 0\n"
        f"  On hardware this is undefined. All {threads} threads execute it: let one of them"
        f" ({elect}), or give ready a count of {threads}."
    )
    assert advice in text


def test_an_arrive_on_the_barrier_of_the_other_side() -> None:
    """The reader hands the tile back on the barrier by which it got it; `free` gets nothing."""
    b = Builder()
    ready, free = b.barriers("ready"), b.barriers("free")
    b.setup_done()
    with b.role("load", warps=1):
        with b.elect():
            b.arrive(b.bar(ready))
        b.wait(b.bar(free), 0)
    with b.role("compute", warps=1):
        b.wait(b.bar(ready), 0)
        b.arrive(b.bar(ready))
    text = caught(b, BarrierError)
    assert "over-arrival on ready" in text
    assert "No op of the kernel arrives on free, on which role 'load' waits (" in text
    assert "): is that the barrier which was meant?" in text
    assert "let one of them" not in text


def stored(
    steps: tuple[str, ...], by_itself: bool = False
) -> tuple[Builder, dict[str, np.ndarray]]:
    """A tile is stored by TMA, with `steps` after that, and then written by another role, or by
    another lane of the role.
    """
    b = Builder()
    out, tile, free = (
        b.tensor("out", dtypes.float32, box=(8, 32)),
        b.smem("tile", 8, 32, dtype=dtypes.float32),
        b.barriers("free"),
    )
    whole = b.tile(tile)
    b.setup_done()
    with b.role("store", warps=1):
        with b.when(binary("eq", LANE, 0)):
            with b.loop(8) as row, b.loop(32) as col:
                b.store(b.element(whole, row, col), const(1.0))
            b.do(ops.FenceProxyAsync, "shared")
        b.do(ops.SyncWarp)
        with b.when(binary("eq", LANE, 0)):
            b.store_tile(out, (0, 0), whole)
            if "commit" in steps:
                b.do(ops.TmaStoreCommit)
            if "wait" in steps:
                b.do(ops.TmaStoreWait, 0, True)
            b.arrive(b.bar(free))
        if by_itself:
            with b.when(binary("eq", LANE, 1)):
                b.store(b.element(whole, 0, 0), const(2.0))
    with b.role("write", warps=1), b.elect():
        b.wait(b.bar(free), 0)
        if not by_itself:
            b.store(b.element(whole, 0, 0), const(2.0))
    return b, {"out": np.zeros((8, 32), np.float32)}


def test_a_store_in_no_committed_group() -> None:
    """The wait is there; what lacks is the commit before it."""
    b, arrays = stored(("wait",))
    text = caught(b, RaceError, **arrays)
    advice = (
        "The store reads the tile until the thread that issued it has waited for its group"
        " (ctx.tma_store_wait(..., read=True)). It is in no committed group: commit it"
        " (ctx.tma_store_commit()) before that wait. After that wait, role 'store' must arrive on a"
        " barrier that role 'write' waits on before its access."
    )
    assert advice in text


def test_a_store_that_is_not_waited_for() -> None:
    b, arrays = stored(("commit",))
    text = caught(b, RaceError, **arrays)
    assert "The store reads the tile until the thread that issued it has waited for" in text
    assert "no committed group" not in text
    assert "role 'store' must arrive on a barrier that role 'write' waits on" in text


def test_a_store_that_other_lanes_of_its_warp_do_not_know_to_be_over() -> None:
    b, arrays = stored(("commit", "wait"), by_itself=True)
    text = caught(b, RaceError, **arrays)
    assert "Between that wait and the second access put ctx.syncwarp()." in text
    stored(("commit", "wait"))[0].run(**arrays)


@pytest.mark.parametrize(
    ("warps", "writer", "fix", "elected"),
    [
        (1, 0, "put ctx.syncwarp() between the two.", True),
        (1, 31, "put ctx.syncwarp() between the two.", False),
        (4, 31, "put ctx.sync_warpgroup() between the two.", False),
    ],
)
def test_a_race_within_one_role(warps: int, writer: int, fix: str, elected: bool) -> None:
    """Lanes up to `writer` store an element each; then all read their neighbour's."""
    threads = 32 * warps
    b = Builder()
    tile, out = b.smem("tile", 1, 256, dtype=dtypes.int32), b.tensor("out", dtypes.int32, rank=1)
    whole = b.tile(tile)
    b.setup_done()
    with b.role("one", warps=1) if warps == 1 else b.role("one", warpgroups=1):
        with b.when(binary("le", LANE, writer)):
            b.store(b.element(whole, 0, LANE), LANE)
        if writer == 31:
            b.store(b.element(whole, 0, LANE), LANE)
        read = b.load(b.element(whole, 0, binary("xor", LANE, 1) if writer == 31 else 0))
        b.store(b.element(out, LANE), read)
    text = caught(b, RaceError, out=np.zeros(threads, np.int32))
    assert f"the threads that make them must meet: {fix}" in text
    assert ("one elected lane" in text) is elected
