"""Which live accesses to shared memory are near some bytes: an index of where they begin and end
answers as looking at each of them does.
"""

from __future__ import annotations

import random
from typing import cast

from tilepipe.machine.cta import Cta
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.memory.tiles import FEW, ByteSpace
from tilepipe.machine.wording import Wording

BYTES = 4096


class Touched:
    """All of an access that decides which others it is near."""

    def __init__(self, rect: Rect) -> None:
        self.rect = rect


def test_near_accesses_are_those_with_a_byte_in_common() -> None:
    draw, live = random.Random(0), list[Access]()
    space = ByteSpace(Cta(0, 1, BYTES, Wording({}), addressed=True), BYTES)

    def some_bytes() -> Rect:
        lo = draw.randrange(BYTES - 1)
        return 0, 1, lo, min(lo + draw.choice([1, 4, 16, 128, 2000]), BYTES)

    most = 0
    for _ in range(12 * FEW):
        _, _, lo, hi = rect = some_bytes()
        want = [x for x in live if x.rect[2] < hi and lo < x.rect[3]]
        assert space.near(rect) == want  # in the order in which they came
        if want and draw.random() < 0.2:
            gone = set(draw.sample(want, draw.randint(1, len(want))))
            space.drop(gone)
            live = [x for x in live if x not in gone]
        made = cast(Access, Touched(rect))
        space.add(made)
        live.append(made)
        assert space.accesses == live
        most = max(most, len(live))
    assert most > 2 * FEW
    space.clear()
    assert space.near((0, 1, 0, BYTES)) == space.accesses == []
