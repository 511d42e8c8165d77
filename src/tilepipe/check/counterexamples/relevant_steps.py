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
    deadlock, where each agent waits. Of a race by addresses, the two accesses take the place of
    accesses to tiles, and the last waits of the second agent are shown, too.
    """
    deadlock = isinstance(error, DeadlockError)
    steps = [
        s
        for i, s in enumerate(recorded)
        if not s.blocked or (deadlock and _blocked_for_good(recorded, i))
    ]
    message = str(error)
    touching = [i for i, s in enumerate(steps) if any(_names(message, tile) for tile in s.tiles)]
    bytewise = _accesses_to_bytes(message, steps) if isinstance(error, RaceError) else []
    if len(bytewise) > 1:
        touching = bytewise
    racing = isinstance(error, RaceError) and len(touching) > 1
    if racing:
        touching = [_first_access(message, steps, touching), touching[-1]]
    since = touching[0] if racing else len(steps)
    agents = {id(steps[i].agent) for i in touching if i >= since}
    kept = {
        id(s)
        for s in [s for s in steps if s.drawn or s.site.facts.takes in SHARED_BY_CLUSTERS][
            -_MAX_DRAWS:
        ]
    }
    if isinstance(error, RaceError):
        accesses = {
            (id(s.agent), s.site.id): s for s in steps if _is_access_named(message, s)
        }.values()
        kept |= {id(s) for s in accesses}
        agents |= {id(s.agent) for s in accesses}
    if len(bytewise) > 1:
        second = bytewise[-1]
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


def _accesses_to_bytes(message: str, steps: list[RecordedStep]) -> list[int]:
    """The steps of the two accesses of a race that its message names by addresses: the last ones
    of their agents.
    """
    last: dict[tuple[int, int], int] = {}
    for i, s in enumerate(steps):
        if s.agent.cta.space is not None and not s.unit:
            said = rf"{re.escape(str(s.agent))} (reads|writes) .*: {re.escape(s.site.what)}$"
            if re.search(said, message, re.MULTILINE):
                last[id(s.agent), s.site.id] = i
    return sorted(last.values())[-2:]


def _first_access(message: str, steps: Sequence[RecordedStep], touching: Sequence[int]) -> int:
    """The step of the first access of a race: the last one by the agent and at the line that the
    message gives, before the second access. Others may touch the tile between the two, or one of
    its name in another CTA. The last but one that touches it where the message gives none of them.
    """
    block = re.search(r"^ *first: .*?(?=^ *second: )", message, re.MULTILINE | re.DOTALL)
    said = block[0] if block else ""
    for i in reversed(touching[:-1]):
        agent, site = steps[i].agent, steps[i].site
        _, of_cta, peer = site.what.partition(" @cta ")
        place = rf"{re.escape(site.loc.short)}(?!\d)"
        if f"{agent} " in said and of_cta + peer in said and re.search(place, said):
            return i
    return touching[-2]


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


def _is_access_named(message: str, step: RecordedStep) -> bool:
    """True if the message of a race names a step as one of the two accesses to a tensor."""
    site = step.site
    said = (f"{step.agent} {verb}: {site.what}" for verb in ("writes", "reads"))
    named = site.tensor >= 0 and any(words in message for words in said)
    return named and re.search(rf"{re.escape(site.loc.short)}(?!\d)", message) is not None


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
