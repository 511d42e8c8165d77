"""The events that later ones are compared with: all that meet, in order, and few others."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from tests.kernels.gemm.test_k_parts import bound
from tilepipe.machine.happens_before import global_history, global_memory, live_events
from tilepipe.machine.happens_before.events import Event, GlobalOrder, Index
from tilepipe.machine.happens_before.live_events import Box, LiveEvents, boxes_meet
from tilepipe.machine.machine import Machine

END = 1 << 40


@dataclass(eq=False)
class Placed:
    """An event of a box, or, without one, of what lies between `lo` and `hi`."""

    number: int
    box: Box | None = None
    lo: int = 0
    hi: int = END


def meets(a: Placed, b: Placed) -> bool:
    if a.box is not None and b.box is not None:
        return boxes_meet(a.box, b.box)
    return a.lo < b.hi and b.lo < a.hi


def placed(random: Random, number: int) -> Placed:
    kind = random.randrange(20)
    if kind == 0:  # single elements
        return Placed(number)
    if kind == 1:
        return Placed(number, ((0, 0), (0, 0)))
    rows, cols = (400, 100) if kind == 2 else (random.choice([1, 16, 64]), random.choice([8, 32]))
    y, x = random.randrange(400), random.randrange(100)
    return Placed(number, ((y, y + rows), (x, x + cols)))


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_what_looking_through_all_finds(seed: int) -> None:
    random = Random(seed)
    live, plain = LiveEvents[Placed](), list[Placed]()
    for number in range(1, 600):
        event = placed(random, number)
        found = live.near(event)
        assert found == [old for old in plain if meets(event, old)]
        if random.random() < 0.3:
            gone = random.sample(found, len(found) // 2)
            live.drop(gone)
            plain = [old for old in plain if old not in gone]
        live.add(event)
        plain.append(event)
    assert list(live) == plain
    assert len(live) == len(plain) > 2 * live_events.FEW


def test_bytes_are_found_by_where_they_lie() -> None:
    live = LiveEvents(Placed(i, lo=4 * i, hi=4 * i + 4) for i in range(200))
    assert [old.number for old in live.near(Placed(200, lo=10, hi=17))] == [2, 3, 4]


def comparisons(tiles: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The accesses to global memory of a product whose parts of K meet there, and how often boxes
    of two were compared.
    """
    boxes, compared = [0], [0]
    record = global_history.record

    def counted(one: Box, other: Box) -> bool:
        compared[0] += 1
        return boxes_meet(one, other)

    def recorded(m: Machine, order: GlobalOrder, event: Event, where: Index) -> None:
        boxes[0] += event.box is not None
        record(m, order, event, where)

    with monkeypatch.context() as patch:
        patch.setattr(global_memory, "record", recorded)
        patch.setattr(live_events, "boxes_meet", counted)
        kernel = bound(128 * tiles, 32, 64, k_parts=8)
        assert kernel.program.run().advice == []
    assert kernel.right()
    return boxes[0], compared[0]


def test_each_access_to_a_workspace_is_compared_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    one, four = comparisons(1, monkeypatch), comparisons(4, monkeypatch)
    assert one[0] >= 1000
    assert one[1] < 20 * one[0]
    assert four[0] == 4 * one[0]
    assert four[1] < 4.5 * one[1]
