"""Parts of the key of a state: races at barriers that are still to come.

At each barrier, which of the last steps an agent, a unit in flight or the current phase knows. Two
states that agree in it have the same future races. Steps are reduced to whether each is known,
since their numbers differ between executions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from tilepipe.check.engine.causal_order import CausalOrder
from tilepipe.check.engine.steps import PhaseRecord


def races_of_barriers(order: CausalOrder) -> tuple[Hashable, ...]:
    """For each barrier, whether the arrivals of its current phase know the waits and the failed
    tests that must precede its completion.
    """
    out: list[Hashable] = []
    for number, now, before in _last_phases(order):
        seen = tuple(
            sorted(
                (s.agent_id, s.site.id if s.site is not None else -1, not s.warp_bits & ~now.known)
                for s in (*before.waits, *now.failed, *now.announced)
            )
        )
        out.append((number, seen))
    return tuple(out)


def _last_phases(order: CausalOrder) -> Iterator[tuple[int, PhaseRecord, PhaseRecord]]:
    """The number of each barrier, its current phase, and the one before."""
    for number, record in enumerate(order.barriers.values()):
        last = max((p for p in record.phases if p >= 0), default=0)
        yield number, record.phases[last], record.phases.get(last - 1) or PhaseRecord()


def races_of(order: CausalOrder, known: tuple[int, ...]) -> tuple[Hashable, ...]:
    """For each barrier, whether those who know `known`, the warps of an agent or a unit in flight,
    know its last two phases, and the waits for them.
    """
    out: list[Hashable] = []
    for number, *phases in _last_phases(order):
        for phase in phases:
            knows = tuple(not phase.bits & ~k for k in known)
            waits = tuple(
                sorted(
                    (s.agent_id, tuple(not s.warp_bits & ~k for k in known))
                    for s in (*phase.waits, *phase.failed)
                )
            )
            out.append((number, knows, waits))
    return tuple(out)
