"""The phases of the rings of a measured run, from the signals that their barriers got.

The signals of a stage alternate: those by which it is filled, then those by which it is released.
So no counts are needed, which a program may leave open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilepipe.ir.program import Kernel
from tilepipe.ir.ring_sides import ring_side
from tilepipe.timeline.events import Phase

Key = tuple[int, str, int]  # the CTA of a barrier, its array, its index
Signal = tuple[float, float]  # when it takes effect, and when it was given


def phases_of(kernel: Kernel, signals: Mapping[Key, Sequence[Signal]]) -> list[Phase]:
    """The phases of the barriers of rings that have two sides."""
    names = {array.name for array in kernel.barriers}
    sides = {name: side for name in names if (side := ring_side(name, names)) is not None}
    stages: dict[tuple[int, str, int], list[tuple[float, float, str]]] = {}
    for (cta, name, index), given in signals.items():
        side = sides.get(name)
        if side is not None and side[0]:
            of = stages.setdefault((cta, side[0], index), [])
            of += [(at, takes_effect, name) for takes_effect, at in given]
    sizes = {array.name: array.size for array in kernel.barriers}
    found: list[Phase] = []
    for (cta, ring, index), mine in stages.items():
        numbers: dict[str, int] = {}
        mine.sort()
        position = 0
        while position < len(mine):
            name, effect = mine[position][2], 0.0
            while position < len(mine) and mine[position][2] == name:
                effect = max(effect, mine[position][1])
                position += 1
            number = numbers.get(name, 0)
            numbers[name] = number + 1
            fills = sides[name][1]
            found.append(Phase(cta, name, index, sizes[name], ring, fills, number, effect))
    return found
