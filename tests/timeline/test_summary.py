"""Sums over events."""

from __future__ import annotations

import pytest

from tests.timeline.kernels import COPY, LATENCY, copying, recorded
from tilepipe.timeline import Event, Phase, summary

LOADED = COPY + LATENCY


def event(cta: int, op: str, begin: float, end: float) -> Event:
    return Event(cta, "load", "", "copy", op, "", "", begin, end)


def test_busy_counts_what_overlaps_once() -> None:
    events = [event(0, "x", 0, 4), event(0, "x", 2, 6), event(0, "x", 8, 10), event(1, "y", 0, 10)]
    x, y = summary.units(events)
    assert x.count == 3
    assert x.busy == pytest.approx(8 / 20)
    assert x.mean_us == pytest.approx(10 / 3)
    assert y.busy == pytest.approx(0.5)


def test_roles_wait_and_for_what() -> None:
    """Each of two tiles is loaded, then stored, and nothing overlaps: 4 copies one after another.
    The load warp waits for the stage once, the first two copies long.
    """
    load, store = recorded(copying()).roles()
    assert (load.role, load.agents, store.role, store.agents) == ("load", 2, "store", 2)
    assert load.busy == pytest.approx(0.5)
    assert load.waiting == pytest.approx(0.5)
    assert [(w.on, w.own, w.count) for w in load.waits] == [("ring.empty", False, 2)]
    assert store.waiting == pytest.approx(1)
    assert {(w.on, w.own, w.count) for w in store.waits} == {
        ("ring.full", False, 4),
        ("tma_store", True, 4),
    }
    assert sum(w.part for w in store.waits) == pytest.approx(1)


def test_utilisation_leaves_the_latency_out() -> None:
    for cta in recorded(copying()).utilisation():
        assert cta.tma_busy == pytest.approx(4 * COPY / (4 * LOADED))
        assert len(cta.tma) == 4
        assert cta.tensor == ()


def test_a_stage_is_filled_from_its_fill_to_its_release() -> None:
    def phase(stage: int, fills: bool, at: float) -> Phase:
        barrier = "r.full" if fills else "r.empty"
        return Phase(0, barrier, stage, 2, "r", fills, 0, at)

    (found,) = summary.occupancy(
        [phase(0, True, 1.0), phase(1, True, 2.0), phase(0, False, 3.0), phase(0, True, 3.0),
         phase(1, False, 5.0)]
    )  # fmt: skip
    assert (found.ring, found.stages) == ("r", 2)
    assert found.steps == ((1.0, 1), (2.0, 2), (5.0, 1))
