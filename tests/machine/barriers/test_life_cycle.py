"""The barrier life cycle and hazard scenarios, each as a small kernel in hand-built IR. Negatives
assert the message.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support.build import LANE, Builder, binary
from tilepipe.errors import BarrierError, DeadlockError, PoisonError, RaceError, TilepipeError
from tilepipe.ir import dtypes, ops
from tilepipe.sim import Run

SEEDS = range(6)


def message(build: Builder, error: type[TilepipeError], seed: int = 0, **args: object) -> str:
    with pytest.raises(error) as caught:
        build.run(seed=seed, **args)
    return str(caught.value)


@pytest.mark.parametrize("seed", SEEDS)
def test_g1_two_roles_wait_and_nobody_arrives(seed: int) -> None:
    b = Builder()
    x, y = b.barriers("b0"), b.barriers("b1")
    b.setup_done()
    with b.role("left", warps=1):
        b.wait(b.bar(x), 0)
    with b.role("right", warps=1):
        b.wait(b.bar(y), 0)
    text = message(b, DeadlockError, seed)
    assert "2 of 2 agents" in text
    assert "role 'left'" in text
    assert "role 'right'" in text
    assert "1 of 1 arrivals" in text
    assert "b0: nothing in the kernel arrives on it" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_g1_crossed_waits_are_a_cycle(seed: int) -> None:
    b = Builder()
    x, y = b.barriers("x"), b.barriers("y")
    b.setup_done()
    with b.role("left", warps=1), b.elect():
        b.wait(b.bar(x), 0)
        b.arrive(b.bar(y))
    with b.role("right", warps=1), b.elect():
        b.wait(b.bar(y), 0)
        b.arrive(b.bar(x))
    text = message(b, DeadlockError, seed)
    assert "cycle: role 'left' -> role 'right' -> role 'left'" in text
    assert "executed 0 times — role 'right' waits at test_life_cycle.py" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_g3_deadlock_after_another_role_has_returned(seed: int) -> None:
    b = Builder()
    x = b.barriers("done", count=2)
    b.setup_done()
    with b.role("helper", warps=1), b.elect():
        b.arrive(b.bar(x))
    with b.role("waiter", warps=1):
        b.wait(b.bar(x), 0)
    text = message(b, DeadlockError, seed)
    assert "1 of 2 agents" in text
    assert "1 of 2 arrivals" in text
    assert "role 'helper' has returned" in text
    assert "every role that arrives on done has returned" in text


def test_g4_arriving_twice_laps_the_waiter() -> None:
    b = Builder()
    x = b.barriers("ready")
    b.setup_done()
    with b.role("left", warps=1), b.elect():
        b.arrive(b.bar(x))
        b.arrive(b.bar(x))
    with b.role("right", warps=1):
        b.wait(b.bar(x), 0)
    text = message(b, BarrierError)
    assert re.search(
        r"Phase 1 was completed by:\n +1 by role 'left', mbar_arrive ready, at "
        r"test_life_cycle\.py:\d+\n",
        text,
    )
    assert "over-arrival" in text
    assert "phases up to 1 are complete" in text
    assert "count of 1" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_g5_under_arrival(seed: int) -> None:
    b = Builder()
    x, y = b.barriers("x", count=2), b.barriers("y", count=2)
    b.setup_done()
    for name, mine, other in (("left", x, y), ("right", y, x)):
        with b.role(name, warps=1):
            with b.elect():
                b.arrive(b.bar(other))
            b.wait(b.bar(mine), 0)
    text = message(b, DeadlockError, seed)
    assert text.count("1 of 2 arrivals") >= 2
    assert "got 1 of 2 arrivals: its count is too high" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_g6_a_wait_for_a_phase_that_completes(seed: int) -> None:
    b = Builder()
    x = b.barriers("ready")
    b.setup_done()
    with b.role("left", warps=1), b.elect():
        b.arrive(b.bar(x))
    with b.role("right", warps=1):
        b.wait(b.bar(x), 0)
    assert b.run(seed=seed).completions == {"ready": [[1]]}


def copy(b: Builder, delta: int = 0, wait: bool = True, copies: int = 1) -> dict[str, np.ndarray]:
    """One role copies `copies` boxes in by TMA, another copies them out by TMA."""
    src, dst = b.tensor("src", box=(8, 32)), b.tensor("dst", box=(8, 32))
    tiles, full = b.smem("tiles", 8, 32, copies), b.barriers("full")
    b.setup_done()
    with b.role("load", warps=1), b.elect():
        b.expect(b.bar(full), 512 * copies + delta)
        for i in range(copies):
            b.load_tile(src, (0, 32 * i), b.tile(tiles, i), b.bar(full))
    with b.role("store", warps=1):
        if wait:
            b.wait(b.bar(full), 0)
        with b.elect():
            for i in range(copies):
                b.store_tile(dst, (0, 32 * i), b.tile(tiles, i))
            b.do(ops.TmaStoreCommit)
            b.do(ops.TmaStoreWait, 0, False)
    shape = (8, 32 * copies)
    values = np.arange(8 * 32 * copies).reshape(shape)
    return {
        "src": values.astype(dtypes.bfloat16.numpy),
        "dst": np.zeros(shape, dtypes.bfloat16.numpy),
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("copies", [1, 2])
def test_g7_g12_copies_in_flight_signal(seed: int, copies: int) -> None:
    b = Builder()
    arrays = copy(b, copies=copies)
    run = b.run(seed=seed, **arrays)
    assert np.array_equal(arrays["src"], arrays["dst"])
    assert run.completions == {"full": [[1]]}
    assert run.roles[0].bytes_loaded == run.roles[1].bytes_stored == 512 * copies


@pytest.mark.parametrize("seed", SEEDS)
def test_g8_arriving_with_too_high_a_count(seed: int) -> None:
    b = Builder()
    x = b.barriers("ready")
    b.setup_done()
    with b.role("left", warps=1), b.elect():
        b.arrive(b.bar(x), 2)
    text = message(b, BarrierError, seed)
    assert (
        "over-arrival on ready: role 'left' arrives 2 time(s), but only 1 of 1 arrivals are"
        " pending in phase 0" in text
    )


def test_g9_init_twice() -> None:
    b = Builder()
    x = b.barriers("ready")
    with b.elect("role"):
        b.do(ops.MbarInit, b.bar(x), None)
    b.setup_done()
    with b.role("left", warps=1):
        pass
    assert "ready is initialised again without having been invalidated" in message(b, BarrierError)


@pytest.mark.parametrize("kind", ["wait", "arrive", "expect"])
@pytest.mark.parametrize("when", ["before it was initialised", "after it was invalidated"])
def test_g10_use_outside_the_life_of_a_barrier(kind: str, when: str) -> None:
    b = Builder()
    x = b.barriers("ready", init="invalidated" in when)
    b.setup_done()
    with b.role("left", warps=1), b.elect():
        if "invalidated" in when:
            b.do(ops.MbarInval, b.bar(x))
        if kind == "wait":
            b.wait(b.bar(x), 0)
        elif kind == "arrive":
            b.arrive(b.bar(x))
        else:
            b.expect(b.bar(x), 16)
    assert f"role 'left' uses ready {when}" in message(b, BarrierError)


@pytest.mark.parametrize("seed", SEEDS)
def test_g11_too_many_bytes_expected(seed: int) -> None:
    b = Builder()
    text = message(b, DeadlockError, seed, **copy(b, 16))
    assert "16 bytes (528 expected, 512 delivered)" in text
    assert "16 too large" in text


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("copies", "said"), [(1, "496 bytes expected"), (2, "1,008 bytes expected, 1,024 delivered")]
)
def test_g11_too_few_bytes_expected(seed: int, copies: int, said: str) -> None:
    b = Builder()
    text = message(b, BarrierError, seed, **copy(b, -16, copies=copies))
    assert said in text
    assert "Raise the number given to expect_bytes" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_g11_a_phase_that_completes_between_two_copies(seed: int) -> None:
    b = Builder()
    # a race where the second copy is issued after the first has landed
    with pytest.raises((BarrierError, RaceError)) as caught:
        b.run(seed=seed, **copy(b, -512, copies=2))
    text = str(caught.value)
    assert "512 bytes of its copies are still to come" in text or "race on tiles[1]" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_g13_reading_before_the_wait(seed: int) -> None:
    b = Builder()
    text = message(b, RaceError, seed, **copy(b, wait=False))
    assert "race on tiles" in text
    assert "role 'load'" in text
    assert "role 'store'" in text
    assert text.count("test_life_cycle.py") >= 2


def interleaved(wait_for: int) -> tuple[Builder, dict[str, np.ndarray]]:
    b = Builder()
    src, dst = b.tensor("src", box=(8, 32)), b.tensor("dst", box=(8, 32))
    tiles, full = b.smem("tiles", 8, 32, 2), b.barriers("full", 2)
    b.setup_done()
    with b.role("load", warps=1), b.elect():
        for i in range(2):
            b.expect(b.bar(full, i), 512)
            b.load_tile(src, (0, 32 * i), b.tile(tiles, i), b.bar(full, i))
    with b.role("store", warps=1), b.elect():
        b.wait(b.bar(full, wait_for), 0)
        b.store_tile(dst, (0, 0), b.tile(tiles, 1))
        b.do(ops.TmaStoreCommit)
        b.do(ops.TmaStoreWait, 0, False)
        b.wait(b.bar(full, 1 - wait_for), 0)
    values = np.arange(512).reshape(8, 64).astype(dtypes.bfloat16.numpy)
    return b, {"src": values, "dst": np.zeros((8, 32), dtypes.bfloat16.numpy)}


@pytest.mark.parametrize("seed", SEEDS)
def test_g14_g21_waiting_for_one_copy_and_reading_the_other(seed: int) -> None:
    b, arrays = interleaved(0)
    text = message(b, RaceError, seed, **arrays)
    assert "race on tiles[1]" in text
    assert "role 'load' writes all of it" in text
    assert "role 'store' reads all of it" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_g14_waiting_for_the_right_copy(seed: int) -> None:
    b, arrays = interleaved(1)
    b.run(seed=seed, **arrays)
    assert np.array_equal(arrays["dst"], arrays["src"][:, 32:])


def ring_of_mmas(slots: int, in_flight: int) -> tuple[Builder, dict[str, np.ndarray]]:
    """A warpgroup that fills slots itself and leaves `in_flight` MMA groups running before it
    refills the next slot.
    """
    b = Builder()
    src = b.tensor("src", box=(64, 64))
    tiles, full = b.smem("tiles", 64, 64, slots), b.barriers("full", slots)
    b.setup_done()
    with b.role("mma", warpgroups=1):
        acc = b.fragment("acc", 64, 64)
        b.do(ops.FragmentSet, acc, binary("mul", 0.0, 0.0))
        b.do(ops.WgmmaFence)
        for i in range(8):
            slot, lap = i % slots, i // slots
            with b.elect("warpgroup"):
                b.expect(b.bar(full, slot), 64 * 64 * 2)
                b.load_tile(src, (0, 0), b.tile(tiles, slot), b.bar(full, slot))
            b.wait(b.bar(full, slot), lap)
            b.do(ops.Wgmma, acc, b.tile(tiles, slot), b.tile(tiles, slot))
            b.do(ops.WgmmaCommit)
            b.do(ops.WgmmaWait, in_flight)
        b.do(ops.WgmmaWait, 0)
    return b, {"src": np.ones((64, 64), dtypes.bfloat16.numpy)}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slots", [2, 3])
def test_g15_two_slots_for_two_mmas_in_flight(seed: int, slots: int) -> None:
    b, arrays = ring_of_mmas(slots, 2)
    if slots == 3:
        b.run(seed=seed, **arrays)
        return
    text = message(b, RaceError, seed, **arrays)
    assert "wgmma acc +=" in text
    assert "A wgmma reads its tiles until its group has been waited for" in text


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("in_flight", [0, 1])
def test_g16_wgmma_reads_a_slot_that_is_overwritten(seed: int, in_flight: int) -> None:
    b, arrays = ring_of_mmas(1, in_flight)
    if in_flight == 0:
        b.run(seed=seed, **arrays)
    else:
        assert "race on tiles" in message(b, RaceError, seed, **arrays)


def store_then_reuse(pending: int | None, lane: int = 0) -> tuple[Builder, dict[str, np.ndarray]]:
    """Writes a tile, stores it by TMA, waits (by `lane`) until `pending` groups are left, writes
    the tile again.
    """
    b = Builder()
    dst = b.tensor("dst", dtypes.float32, box=(1, 32))
    tile = b.smem("tile", 1, 32, dtype=dtypes.float32)
    b.setup_done()
    with b.role("store", warps=1), b.loop(2) as i:
        b.store(b.element(b.tile(tile), 0, LANE), 1.0)
        b.do(ops.FenceProxyAsync)
        b.do(ops.SyncWarp)
        with b.elect():
            b.store_tile(dst, (i, 0), b.tile(tile))
            b.do(ops.TmaStoreCommit)
        if pending is not None:
            with b.when(binary("eq", LANE, lane)):
                b.do(ops.TmaStoreWait, pending, True)
        b.do(ops.SyncWarp)
    return b, {"dst": np.zeros((2, 32), np.float32)}


@pytest.mark.parametrize(
    ("pending", "lane", "seed"),
    [*((p, 0, seed) for p in (None, 1) for seed in SEEDS), (0, 1, 0), (0, 0, 0)],
)
def test_g17_reuse_before_the_store_has_read(seed: int, pending: int | None, lane: int) -> None:
    b, arrays = store_then_reuse(pending, lane)
    text = message(b, RaceError, seed, **arrays)
    assert "race on tile" in text
    assert "tma_store tile" in text
    assert "waited for its group" in text


def hand_over(stored: bool = True, read_back: bool = True) -> tuple[Builder, dict[str, np.ndarray]]:
    """G18, G19: a writer and a reader of one element with a full and an empty barrier; each wait
    can be left out.
    """
    b = Builder()
    out = b.tensor("out", dtypes.int32, rank=1)
    cell = b.smem("cell", 1, 4, dtype=dtypes.int32)
    full, empty = b.barriers("full"), b.barriers("empty")
    b.setup_done()
    with b.role("writer", warps=1), b.elect(), b.loop(3) as i:
        if read_back:
            phase = binary("sub", i, 1, dtypes.phase)
            b.wait(b.bar(empty), phase)
        b.store(b.element(b.tile(cell), 0, 0), i)
        b.arrive(b.bar(full))
    with b.role("reader", warps=1), b.elect(), b.loop(3) as i:
        if stored:
            b.wait(b.bar(full), binary("add", i, 0, dtypes.phase))
        x = b.load(b.element(b.tile(cell), 0, 0))
        b.store(b.element(out, i), x)
        b.arrive(b.bar(empty))
    return b, {"out": np.zeros(3, np.int32)}


@pytest.mark.parametrize("seed", SEEDS)
def test_g18_g19_store_wait_load(seed: int) -> None:
    b, arrays = hand_over()
    run: Run = b.run(seed=seed, **arrays)
    assert arrays["out"].tolist() == [0, 1, 2]
    assert run.completions == {"full": [[3]], "empty": [[3]]}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("left_out", ["stored", "read_back"])
def test_g18_g19_each_wait_removed(seed: int, left_out: str) -> None:
    b, arrays = hand_over(**{left_out: False})
    with pytest.raises((RaceError, BarrierError, PoisonError)) as caught:
        b.run(seed=seed, **arrays)
    assert "cell" in str(caught.value) or "full" in str(caught.value)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("synced", [True, False])
def test_g28_overlapping_views(seed: int, synced: bool) -> None:
    b = Builder()
    buffer, ready = b.smem("buffer", 8, 8, dtype=dtypes.int32), b.barriers("ready")
    b.setup_done()
    with b.role("left", warps=1), b.elect():
        b.store(b.element(b.tile(buffer, 0, 0, 0, 4, 8), 3, 7), 1)
        b.arrive(b.bar(ready))
    with b.role("right", warps=1), b.elect():
        if synced:
            b.wait(b.bar(ready), 0)
        b.store(b.element(b.tile(buffer, 0, 2, 2, 6, 6), 1, 5), 2)
        b.store(b.element(b.tile(buffer, 0, 2, 2, 6, 6), 1, 4), 3)
    if synced:
        b.run(seed=seed)
    else:
        assert "row 3, column 7" in message(b, RaceError, seed)
