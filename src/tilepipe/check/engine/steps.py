"""The parts of a causal order: visible steps, the races between them, the records kept of barriers
and agents, and the signature of an execution.

A *visible* step is one that other agents can observe (Godefroid's "visible operation"): an arrival,
a wait, a test, a copy, an atomic add; ordinary memory accesses are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from tilepipe.check.key_encoding import digest, encoded
from tilepipe.errors import BarrierError
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.sites import Site

AgentId = tuple[int, int]  # cluster, index of the agent in it
RaceKind = Literal["phase", "ahead", "lapped", "bytes", "test", "turn"]
WARPS = 4  # the largest number of warps of one agent
# in the place of the agent of a step: the end of a cluster, after which another one starts
CLUSTER_END = -1


@dataclass(eq=False, slots=True)
class VisibleStep:
    """One visible step of an execution.

    Attributes:
        index: its position in the execution.
        agent_id: the agent that performed it, or whose asynchronous unit acted.
        ordinal: the number of ops that the agent had performed before; for a unit, its number among
            the units of the agent.
        is_unit: whether an asynchronous unit acted.
        site: the op; for a unit, the op that issued it.
        warp_bits: one bit for each warp that took the step, in a vector clock.
        past: the bits (`bit`) of the steps that happen before this one; all warps of an agent count
            as one.
        trace_past: the same, and the steps that precede this one only because the two conflict: its
            past in the Mazurkiewicz trace.
        outcome: of a request that could be refused: 1 granted, 0 refused; -1 for other steps.
    """

    index: int
    agent_id: AgentId
    ordinal: int
    is_unit: bool
    site: Site | None
    warp_bits: int = 0
    past: int = 0
    trace_past: int = 0
    outcome: int = -1

    @property
    def bit(self) -> int:
        return 1 << self.index

    @property
    def name(self) -> tuple[AgentId, int, bool]:
        """The name of the step in every execution that has it."""
        return self.agent_id, self.ordinal, self.is_unit


@dataclass(frozen=True, eq=False, slots=True)
class Race:
    """Two conflicting steps: `second` followed `first` in this execution, and does not have to.

    Attributes:
        kind: "phase": `second` arrives in the phase after that of `first`. "ahead": `second` waits
            for a phase and need not follow the completion of the phase before. "lapped": `first`
            waits for a phase, and `second` completes the next one. "bytes": `first` announces bytes
            of the phase that `second` completes. "test": one of the two tests the phase that the
            other one completes. "turn": both take from one thing, and their order decides what each
            of them gets.
        barrier: the barrier, or the other thing that both use.
        phase: the phase of the barrier.
        warps: if not empty, `second` does follow the agent of `first`, but not these warps of it;
            the machine performs the warps of an agent together. If empty, two agents race.
    """

    first: VisibleStep
    second: VisibleStep
    kind: RaceKind
    barrier: Hashable
    phase: int
    warps: tuple[int, ...] = ()


@dataclass(eq=False, slots=True)
class PhaseRecord:
    """One phase of a barrier.

    Attributes:
        members: the steps that arrived in it, announced or delivered bytes of it. bits: their
            `warp_bits`.
        known, past, trace_past: the union of what the members know.
        counted: what each arrival knew.
        announced: steps that announced bytes without arriving.
        waits: waits for this phase. failed: tests of it that found it incomplete.
    """

    members: list[VisibleStep] = field(default_factory=list)
    bits: int = 0
    known: int = 0
    past: int = 0
    trace_past: int = 0
    counted: list[int] = field(default_factory=list)
    announced: list[VisibleStep] = field(default_factory=list)
    waits: list[VisibleStep] = field(default_factory=list)
    failed: list[VisibleStep] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class BarrierRecord:
    """A barrier, or another thing whose users' order matters.

    Attributes:
        name: the barrier.
        is_rendezvous: those that wait at it have arrived themselves (a named barrier, the cluster
            barrier).
        phases: the records of the last phases.
        known, past, trace_past: what a wait for the last completed phase acquires.
        history: what has happened at it, by names that are the same in every execution.
        unobserved: phases that completed, and were followed by another one, without any wait.
        awaited: whether any step has waited at it.
        turn_kind, turns, earlier: of a thing that is used in turn: the kind of the last group of
            uses that commute ("change", "add", "look"), its steps, and those of the group before.
    """

    name: Hashable
    is_rendezvous: bool = False
    phases: defaultdict[int, PhaseRecord] = field(default_factory=lambda: defaultdict(PhaseRecord))
    known: int = 0
    past: int = 0
    trace_past: int = 0
    history: list[Hashable] = field(default_factory=list)
    unobserved: list[int] = field(default_factory=list)
    awaited: bool = False
    turn_kind: str = ""
    turns: list[VisibleStep] = field(default_factory=list)
    earlier: list[VisibleStep] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class AgentClock:
    """The vector clock of an agent.

    Attributes:
        known: for each warp, the steps that happen before its next step.
        past, trace_past: as in `VisibleStep`, for the agent as a whole.
        groups: for each committed MMA group, what a wait for it acquires.
    """

    known: list[int] = field(default_factory=lambda: [0] * WARPS)
    past: int = 0
    trace_past: int = 0
    groups: list[int] = field(default_factory=list)


def signature(barriers: Iterable[BarrierRecord], steps: Iterable[VisibleStep]) -> bytes:
    """The signature of an execution with these records and steps: equal for executions that differ
    only in the order of independent steps, that is, for one Mazurkiewicz trace.

    At each barrier it has which steps took part in which phase, and which tests had which outcome;
    arrivals of one phase commute, so they are sorted.
    """
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


def warp_fault(race: Race, bar: Mbarrier) -> BarrierError:
    """The fault between the warps of one agent that a race shows.

    The machine performs the warps of a warpgroup together. On hardware, a warp runs ahead of the
    others until a barrier stops it, or an MMA that all of them have to issue; so a step of one warp
    may come before a wait of another. No execution of the machine shows that. The causal order
    does: it keeps a vector clock for each warp.
    """
    first, second = race.first.site, race.second.site
    assert first is not None  # steps on a barrier are ops of the kernel
    assert second is not None
    warps, step = ", ".join(map(str, race.warps)), f"{second.what} at {second.loc.short}"
    late = f"warp{'s' if len(race.warps) > 1 else ''} {warps} of role '{first.role}'"
    if race.kind == "lapped":
        return BarrierError(
            f"{bar.where}: {late} can be lapped by the other warps: {step} completes"
            f" phase {race.phase + 1}, and does not follow the wait of {late} for phase"
            f" {race.phase} (at {first.loc.short}), only that of another warp.\n  On hardware the"
            " parity has flipped back by the time the late warps look, and they may wait for"
            " ever.\n  The arrive that frees the stage must follow the waits of all warps:"
            " synchronise the warps between the wait and that arrive (ctx.sync_warpgroup(), a"
            " ctx.named_barrier, an MMA of the warpgroup that has been waited for), or let every"
            " warp arrive and raise the count.",
            first.loc,
        )
    what = "waits for" if race.kind == "ahead" else "counts in"
    return BarrierError(
        f"{bar.where}: {step} {what} phase {race.phase + 1}, and its warp cannot know that phase"
        f" {race.phase} is complete: it does not follow the step of {late} in that phase"
        f" ({first.loc.short}); only another warp has waited for that.\n"
        "  Let every warp wait, or synchronise the warps in between (ctx.sync_warpgroup(), or a"
        " ctx.named_barrier).",
        second.loc,
    )
