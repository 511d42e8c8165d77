"""A program that knows addresses alone, on the machine: its numbers, all its interleavings, and
planted mistakes.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tests.machine.byte_program import DRAINED, EMPTY, FULL, Launch, Variant
from tilepipe.check.decide import decide
from tilepipe.check.engine.race_reversal import Explorer
from tilepipe.check.verdict import Bounds, Reductions, Verdict
from tilepipe.errors import BarrierError, DeadlockError, RaceError, SimFault
from tilepipe.machine.clusters import one_after_another


def run(variant: Variant, seed: int = 0) -> Launch:
    """Runs it once, in the order that a seed picks."""
    launch = Launch(variant)
    world = launch.world(None)
    one_after_another(world, [0], Random(seed) if seed else None, lambda m: None)
    return launch


def check(variant: Variant, *, explore: bool = False, bounds: Bounds | None = None) -> Verdict:
    """Decides it over all interleavings."""
    explorer = Explorer(Launch(variant), bounds or Bounds(), Reductions(), None)
    return decide(explorer, explore, "bytes", shorten=False)


def message(variant: Variant, *errors: type[SimFault]) -> str:
    """What is said of the fault that a run in some order ends in, of the first seed that has
    one.
    """
    caught: SimFault | None = None
    for seed in range(8):
        try:
            run(variant, seed)
        except SimFault as fault:
            caught = fault
            break
    assert type(caught) in errors, caught
    return str(caught)


def checked(variant: Variant, *errors: type[SimFault]) -> str:
    """What the check says."""
    (fault,) = check(variant).faults
    assert fault.kind in [error.__name__ for error in errors], fault
    return fault.message


@pytest.mark.parametrize("seed", range(6))
def test_the_numbers(seed: int) -> None:
    arguments = run(Variant(), seed).arguments
    np.testing.assert_allclose(arguments.c, arguments.want, rtol=1e-5, atol=1e-4)


def test_one_execution_stands_for_all() -> None:
    verdict = check(Variant())
    assert verdict.ok, verdict
    assert verdict.method == "single-execution"
    assert not verdict.advice


def test_all_executions_are_found_right_one_by_one() -> None:
    assert check(Variant(), explore=True).ok


@pytest.mark.parametrize(
    ("without", "one", "other"),
    [
        ("wait full", "wgmma.mma_async", "cp.async.bulk.tensor A"),
        ("retire", "wgmma.mma_async", "cp.async.bulk.tensor A"),
        ("meet", "st.shared C", "cp.async.bulk.tensor shared to C"),
        ("wait c", "cp.async.bulk.tensor shared to C", "cp.async.bulk.tensor A"),
    ],
)
def test_a_deleted_wait_names_both_accesses(without: str, one: str, other: str) -> None:
    """In a run, and in the check; in one order or the other."""
    variant = Variant(frozenset({without}))
    for text in (message(variant, RaceError), checked(variant, RaceError)):
        first, second = text.split("  second: ")
        assert (one in first and other in second) or (other in first and one in second), text
        for part in (first, second):
            assert ("byte_program.py" in part and " in 0x" in part) or "bytes 0x" in part, text


def test_a_deleted_proxy_fence() -> None:
    variant = Variant(frozenset({"proxy fence"}))
    for text in (message(variant, RaceError), checked(variant, RaceError)):
        assert "race between proxies on shared memory" in text
        assert "(generic proxy): st.shared C" in text
        assert "(async proxy): cp.async.bulk.tensor shared to C" in text


def test_the_aliased_buffer_is_reused_too_early() -> None:
    """The ring's stage is refilled although the epilogue buffer on its bytes is still in use."""
    variant = Variant(frozenset({"wait drained"}))
    for text in (message(variant, RaceError), checked(variant, RaceError)):
        assert "st.shared C" in text or "cp.async.bulk.tensor shared to C" in text
        assert "cp.async.bulk.tensor A" in text or "cp.async.bulk.tensor B" in text


def test_a_wrong_barrier_address() -> None:
    misaligned = message(Variant(full_at=FULL + 4), BarrierError)
    assert "mbarrier.try_wait full[stage]" in misaligned
    assert "the mbarrier at 0x8004 before it was initialised" in misaligned
    assert "its address is a multiple of 8" in misaligned
    elsewhere = checked(Variant(full_at=DRAINED + 8), BarrierError)
    assert "the mbarrier at 0x8028 before it was initialised" in elsewhere
    assert "Initialised mbarriers are at: 0x8000, 0x8008, 0x8010, 0x8018, 0x8020." in elsewhere
    assert not check(Variant(full_at=EMPTY)).ok  # the barriers of the other side


def test_a_store_that_overwrites_a_barrier() -> None:
    for say in (message, checked):
        text = say(Variant(c_at=0x8000), BarrierError)
        assert text.startswith("st.shared C: role 'mma' warp 0 writes ")
        assert "which has bytes of the mbarrier at 0x8000 (initialised at byte_program.py:" in text


def test_a_producer_that_does_not_wait_for_a_free_stage() -> None:
    """What goes wrong first depends on the order: the barrier's count, or the bytes of the
    stage.
    """
    for say in (message, checked):
        text = say(Variant(frozenset({"wait empty"})), BarrierError, RaceError)
        assert "role 'load'" in text
        assert "over-arrival on the mbarrier at 0x8000" in text or "race on shared memory" in text


def test_four_warps_make_one_group() -> None:
    """A warp that does not commit its part keeps the others waiting."""
    text = message(Variant(leaves=2), DeadlockError)
    assert "wgmma group 0 of warpgroup 1" in text
