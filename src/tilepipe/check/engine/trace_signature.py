"""The signature of an execution: equal for executions that differ only in the order of independent
steps, that is, for one Mazurkiewicz trace.

At each barrier it has which steps took part in which phase, and which tests had which outcome;
arrivals of one phase commute, so they are sorted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from tilepipe.check.engine.key_encoding import digest, encoded
from tilepipe.check.engine.steps import BarrierRecord, VisibleStep


def signature(barriers: Iterable[BarrierRecord], steps: Iterable[VisibleStep]) -> bytes:
    """The signature of an execution with these records and steps."""
    histories = []
    for record in barriers:
        numbered = sorted(record.phases.items(), key=lambda one: one[0])
        open_phases = tuple(names_of(phase.members) for _, phase in numbered)
        turns = record.turn_kind, names_of(record.turns)
        histories.append(encoded((_name(record.name), tuple(record.history), open_phases, turns)))
    outcomes = tuple(sorted((s.agent_id, s.ordinal, s.outcome) for s in steps if s.outcome >= 0))
    return digest((tuple(sorted(histories)), outcomes))


def names_of(steps: Iterable[VisibleStep]) -> tuple[Hashable, ...]:
    """The names of some steps, sorted: the same in two executions whatever their order."""
    return tuple(sorted(step.name for step in steps))


def _name(thing: Hashable) -> Hashable:
    """A name for a thing that is the same in two executions: barriers are objects of one."""
    if isinstance(thing, tuple):
        return thing
    cta = getattr(getattr(thing, "cta", None), "block_id", -1)
    return (type(thing).__name__, cta, getattr(thing, "flat", -1), getattr(thing, "name", ""))
