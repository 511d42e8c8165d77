"""Order lane by lane, for an access by several lanes of which no thread knows all: each lane may
have handed on its part to another (`accesses.Share`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tilepipe.machine.actors import Actor
from tilepipe.machine.happens_before.knowledge import Fenceable
from tilepipe.machine.machine import Machine
from tilepipe.machine.thread_masks import lanes_in

Meeting = tuple[int, int]  # lanes of an earlier access, and of a later one, at common elements


def ordered(m: Machine, old: Fenceable, new: Actor, meetings: Iterable[Meeting]) -> bool:
    """True if every lane of the later access, by `new`, comes after those lanes of `old` which
    touched what it touches: it knows the access, or their parts, or is that lane itself.
    """
    if not m.order.shares:
        return False
    covered: dict[int, int] = {}
    for before, after in set(meetings):
        for lane in lanes_in(after):
            if lane not in covered:
                known = new.known(1 << lane)
                own = 1 << lane if old.agent is new else 0
                whole = bool(old.bit & known)
                covered[lane] = -1 if whole else own | m.order.lanes_known(old, known)
            if before & ~covered[lane]:
                return False
    return True
