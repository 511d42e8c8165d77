"""The steps that a counterexample shows, those on which its fault depends; and their plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilepipe.check.engine.recording import RecordedStep, name_of
from tilepipe.check.verdict import Fault, Step
from tilepipe.errors import DeadlockError, RaceError, SimFault
from tilepipe.ir.facts import SHARED_BY_CLUSTERS, Sync
from tilepipe.machine.sites import SETUP

_MAX_SHOWN = 24
_MAX_DRAWS = 8  # the last ones are shown
_WAITS = 2  # of the agent of the second access of a race


def relevant_steps(
    recorded: Sequence[RecordedStep], error: SimFault
) -> tuple[tuple[Step, ...], int]:
    """The steps on which a fault depends, and how many are left out.

    Shown are: accesses to the tiles and tensors, and arrivals at the barriers, that the message
    names; for a race, what the agents of its accesses did between the two; the steps that completed
    the phases those agents waited for; their last tests; the last draws of work; and, for a
    deadlock, where each agent waits. Of a race in PTX the last waits of the second agent are
    shown, too.
    """
    deadlock = isinstance(error, DeadlockError)
    steps = [
        s
        for i, s in enumerate(recorded)
        if not s.blocked or (deadlock and _blocked_for_good(recorded, i))
    ]
    message = str(error)
    racing = _accesses(steps, error)
    touching = racing or [
        i for i, s in enumerate(steps) if any(_names(message, tile) for tile in s.tiles)
    ]
    since = touching[0] if racing else len(steps)
    agents = {id(steps[i].agent) for i in touching if i >= since}
    kept = {
        id(s)
        for s in [s for s in steps if s.drawn or s.site.facts.takes in SHARED_BY_CLUSTERS][
            -_MAX_DRAWS:
        ]
    }
    if racing and steps[racing[1]].agent.cta.space is not None:
        second = racing[1]
        waits = [
            s
            for s in steps[:second]
            if s.agent is steps[second].agent and any(e.passes and e.phase >= 0 for e in s.effects)
        ]
        kept |= {id(s) for s in waits[-_WAITS:]}
    kept |= _last_tests(steps, agents | {id(steps[-1].agent)} if steps else agents)
    chosen = [
        s
        for i, s in enumerate(steps)
        if (s is steps[-1] and not deadlock)
        or s.blocked
        or id(s) in kept
        or (deadlock and Sync.TEST in s.site.sync)
        or (i in touching and (i >= since or since == len(steps)))
        or (i > since and id(s.agent) in agents and s.effects)
        or (
            since == len(steps)
            and s.site.role != SETUP
            and any(_names(message, name_of(e.barrier)) for e in s.effects)
        )
    ]
    chosen = _with_completions(steps, chosen)
    if deadlock:
        chosen = sorted(chosen[-_MAX_SHOWN:], key=lambda s: s.blocked)
    shown = chosen[-_MAX_SHOWN:]
    rows = tuple(Step(_agent(s), s.site.what, s.site.loc.short, _effect(s)) for s in shown)
    return rows, len(steps) - len(shown)


def _accesses(steps: Sequence[RecordedStep], error: SimFault) -> list[int]:
    """The steps of the two accesses of a race: the last one of the second, and before it the last
    one of the first. Others may touch the same between the two, or the tile of that name in
    another CTA. Empty where the error is no race of two accesses, or one of them has no step.
    """
    found: list[int] = []
    before = len(steps)
    named = [(s.agent.cta.block_id, s.agent.uid, s.site.id) for s in steps]
    for access in reversed(error.accesses if isinstance(error, RaceError) else ()):
        at = next((i for i in reversed(range(before)) if named[i] == access), None)
        if at is None:
            return []
        found.insert(0, at)
        before = at
    return found


def _blocked_for_good(recorded: Sequence[RecordedStep], at: int) -> bool:
    """True if the agent of a blocked step performed nothing afterwards."""
    agent = recorded[at].agent
    return all(s.unit or s.agent is not agent for s in recorded[at + 1 :])


def _last_tests(steps: list[RecordedStep], agents: set[int]) -> set[int]:
    """The last test of each barrier by each of some agents."""
    last = {
        (id(s.agent), id(e.barrier)): id(s)
        for s in steps
        for e in s.effects
        if Sync.TEST in s.site.sync and id(s.agent) in agents
    }
    return set(last.values())


def _with_completions(steps: list[RecordedStep], chosen: list[RecordedStep]) -> list[RecordedStep]:
    """The chosen steps, and those that completed the phases which a chosen step waited for."""
    passed = {(id(e.barrier), e.phase) for s in chosen for e in s.effects if e.passes}
    kept = {id(s) for s in chosen}
    return [
        s
        for s in steps
        if id(s) in kept
        or any((id(e.barrier), e.phase) in passed and not e.passes for e in s.effects)
    ]


def _names(message: str, name: str) -> bool:
    """True if a message names a barrier or a tile."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w\[])", message) is not None


def _agent(step: RecordedStep) -> str:
    if not step.unit:
        return str(step.agent)
    return f"a copy of {step.agent}" if step.site.fills else f"{step.agent}, later"


def _effect(step: RecordedStep) -> str:
    parts = [", ".join(step.tiles)] if step.tiles else []
    if step.blocked:
        parts.append("waits, and never continues")
    last: dict[int, str] = {}
    for one in step.effects:
        last[id(one.barrier)] = one.text
    return "; ".join([*parts, *([step.drawn] if step.drawn else []), *last.values()])


def as_text(fault: Fault) -> list[str]:
    """The steps of a fault, one line each, and one more line after an arrow for an effect; empty
    if the fault has no steps.

    Columns are padded and never cut: a terminal wraps lines that are too long.
    """
    steps = fault.steps
    if not steps:
        return []
    total = len(steps) + fault.left_out
    which = (
        "all steps" if not fault.left_out else f"the {len(steps):,} of {total:,} steps that matter"
    )
    lines = [f"counterexample ({which}):"]
    digits = len(str(len(steps)))
    agents, places = max(len(s.agent) for s in steps), max(len(s.loc) for s in steps)
    for number, step in enumerate(steps, 1):
        head = f"  {number:>{digits}}  {step.agent:<{agents}}  {step.loc:<{places}}  "
        lines.append(f"{head}{step.op}".rstrip())
        if step.effect:
            lines.append(f"{' ' * len(head)}→ {step.effect}")
    return lines
