"""The causal order of one execution, and its races: where it is decided whether two steps could
have happened the other way round.

**Conflicts.** Two visible steps conflict if their order can matter:

- at one barrier, an arrival and a step of another phase; a wait for a phase, and the step that
  completes the phase after it (which would lap the wait); a test of a phase, and the step that
  completes that phase;
- two uses of a thing that hands out what is left: an atomic counter, columns of tensor memory,
  requests for work, the end of a cluster in whose place another one starts.

Arrivals of one phase commute. All other steps are independent of each other.

**Happens-before.** A step knows another one if it follows it in every execution: by program order,
by a wait for the phase in which the other one arrived, by the completion of a copy or of a group of
MMAs. Knowledge is a vector clock: a Python int with one bit for each pair of a step and a warp.
Each warp of an agent has a clock of its own, because one warp of a warpgroup can run ahead of the
others.

**Races.** Two conflicting steps, the second of which does not know the first, are a `Race`: there
may be an execution in which the second one comes first, and it must be explored (`race_reversal`).
An execution without races stands for all: any other one has the same steps, with independent ones
in another order. That is the proof behind the method "single-execution".

An example: a ring of one slot. P fills the slot twice, C reads it twice; both barriers count one
arrival. Step by step, with the phase that each step is about:

    P: arrive full     p1   phase 0 of `full`
    C: wait full       c1   phase 0 of `full`: c1 knows p1
    C: arrive empty    c2   phase 0 of `empty`; knows p1, c1
    P: wait empty      p2   phase 0 of `empty`: p2 knows c2, and so c1
    P: arrive full     p3   phase 1 of `full`; completes it

p3 conflicts with p1 (another phase of `full`), which it knows by program order. It conflicts with
c1, too: if phase 1 completed before C looks, C's wait for phase 0 would be lapped, since the parity
is the same again. p3 knows c1, by way of c2 and p2, so it cannot come before it. There is no race,
and this execution stands for all.

Without p2, P does not wait for `empty`. Then p3 does not know c1, and (c1, p3) is a race of kind
"lapped": the execution in which p3 precedes c1 is explored next, and there the wait is lapped.

**Sources.** Vector clocks: Fidge 1988, Mattern 1989. Traces, that is, executions up to the order of
independent steps: Mazurkiewicz 1987. Reversing the races of an execution: dynamic partial-order
reduction, Flanagan and Godefroid 2005. Neither persistent sets nor sleep sets nor source sets
(Abdulla and others 2014) are used: instead, executions that are equal up to the order of
independent steps are recognised afterwards by their signature (`steps.signature`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from itertools import pairwise

from tilepipe.check.engine.flag_waits import FlagHistory, FlagWait
from tilepipe.check.engine.mixed_groups import MixedGroups, mixed_groups
from tilepipe.check.engine.recording import Recorder, name_of
from tilepipe.check.engine.steps import (
    CLUSTER_END,
    WARPS,
    AgentClock,
    AgentId,
    BarrierRecord,
    Race,
    RaceKind,
    VisibleStep,
    names_of,
    signature,
    warp_fault,
)
from tilepipe.errors import BarrierError
from tilepipe.machine.actors import Actor
from tilepipe.machine.advice import Advice
from tilepipe.machine.barriers.state import Mbarrier, NamedState
from tilepipe.machine.journal import Touch
from tilepipe.machine.sites import Site

_VERBS = {
    Touch.ARRIVE: "arrives in",
    Touch.EXPECT: "announces bytes of",
    Touch.CREDIT: "brings bytes of",
    Touch.ISSUE: "will bring bytes of",
}
_BETWEEN_WARPS = ("lapped", "phase", "ahead")
_COUNTED = (Touch.ARRIVE, Touch.MEET)


class CausalOrder:
    """Builds the causal order of an execution: a `machine.journal.Journal`.

    Attributes:
        steps: the visible steps, in the order of the execution.
        races: the conflicting steps that happens-before does not order.
        arrivals, waits: how many steps of each kind were found to have no race.
        tests_as_waits: how many tests were treated as the waits that they guard.
        barriers: the record of each barrier, and of each other thing that is used in turn.
        clocks: the vector clock of each agent.
        units: for each unit in flight, the clock it was issued with and the op that issued it.
        queues: for each queue of units, the clock of the last one that has acted.
        mixed: two groups that the races show to mix at a named barrier, if there are any.
        changed: the elements of memory that the current step has accessed in turn, each with
            whether the step has changed it.
        flags: what the elements of memory have held that loops wait for; None of a causal order in
            which no loop counts as a wait. flag_waits: how many such waits were found to have no
            race.
    """

    def __init__(
        self, recorder: Recorder | None = None, adds: frozenset[int] = frozenset()
    ) -> None:
        """`adds`: the sites of atomic adds whose results are not used."""
        self.recorder = recorder
        self._adds = adds
        self.steps: list[VisibleStep] = []
        self.races: list[Race] = []
        self.arrivals = self.waits = self.tests_as_waits = self.flag_waits = 0
        self.flags: FlagHistory | None = None
        self.barriers: dict[Hashable, BarrierRecord] = {}
        self.units: dict[tuple[AgentId, int], tuple[tuple[int, int, int], Site | None]] = {}
        self.queues: dict[Hashable, tuple[int, int, int]] = {}
        self._queue: Hashable = None
        self.changed: dict[tuple[int, ...], bool] = {}
        self.clocks: defaultdict[AgentId, AgentClock] = defaultdict(AgentClock)
        self._agent_id: AgentId = (0, 0)
        self._ordinal = 0
        self._is_unit = False
        self._site: Site | None = None
        self._mask = 0
        self._current: VisibleStep | None = None
        self._carried = (0, 0, 0)
        self.mixed: MixedGroups | None = None

    # -- the acting agent or unit ------------------------------------------------------

    def step(self, agent_id: AgentId, ordinal: int, site: Site, mask: int) -> None:
        """The threads of `mask` of an agent are about to perform an op."""
        self._agent_id, self._ordinal, self._site = agent_id, ordinal, site
        self._is_unit, self._current = False, None
        self._mask = mask
        if self.changed:
            self.changed = {}

    def unit(self, agent_id: AgentId, ordinal: int, queue: Hashable = None) -> None:
        """An asynchronous unit of an agent is about to act. `queue`: whose units act in the order
        in which they were issued; None of a unit that may overtake others.
        """
        self._agent_id, self._ordinal = agent_id, ordinal
        self._is_unit, self._current, self._queue = True, None, queue
        self.changed = {}
        self._carried, self._site = self.units.pop((agent_id, ordinal))
        if queue in self.queues:
            pairs = zip(self._carried, self.queues[queue], strict=True)
            known, past, trace_past = (a | b for a, b in pairs)
            self._carried = known, past, trace_past

    def issued(self, agent_id: AgentId, ordinal: int) -> None:
        """The current step has issued an asynchronous unit, which knows what the step knows."""
        step = self._step_of(self._mask)
        self.units[agent_id, ordinal] = (
            (self._known(self._mask)[1], step.past | step.bit, step.trace_past | step.bit),
            self._site,
        )

    def _step_of(self, mask: int) -> VisibleStep:
        """The current step, which is visible from here on; the warps of `mask` take part in it."""
        step = self._current
        if step is None:
            step = self._current = VisibleStep(
                len(self.steps), self._agent_id, self._ordinal, self._is_unit, self._site
            )
            self.steps.append(step)
            if self._is_unit:
                step.warp_bits = 1 << (WARPS * step.index)
                before, step.past, step.trace_past = self._carried
                if self._queue is not None:
                    self.queues[self._queue] = (
                        before | step.warp_bits, step.past | step.bit, step.trace_past | step.bit,
                    )  # fmt: skip
                return step
            clock = self.clocks[self._agent_id]
            step.past, step.trace_past = clock.past, clock.trace_past
            clock.past |= step.bit
            clock.trace_past |= step.bit
        if not self._is_unit:
            first = WARPS * step.index
            known = self.clocks[self._agent_id].known
            for w in range(WARPS):
                if mask >> (32 * w) & 0xFFFFFFFF:
                    bit = 1 << (first + w)
                    step.warp_bits |= bit
                    known[w] |= bit
        return step

    def _known(self, mask: int) -> tuple[int, int]:
        """The knowledge that all warps of the current step have, and that at least one has."""
        if self._is_unit:
            return self._carried[0], self._carried[0]
        every, some = -1, 0
        for w, known in enumerate(self.clocks[self._agent_id].known):
            if mask >> (32 * w) & 0xFFFFFFFF:
                every &= known
                some |= known
        return every, some

    def _record(self, barrier: Hashable) -> BarrierRecord:
        found = self.barriers.get(barrier)
        if found is None:
            found = self.barriers[barrier] = BarrierRecord(barrier)
        return found

    # -- races -------------------------------------------------------------------------

    def _add_race(
        self,
        first: VisibleStep,
        second: VisibleStep,
        kind: RaceKind,
        record: BarrierRecord,
        phase: int,
        missing: int = 0,
    ) -> None:
        """Adds a race between two conflicting steps, unless `second` follows `first` in this trace
        by way of other conflicts: then reversing those comes first. `missing`: the warp bits of
        `first` that `second` does not know.
        """
        if first.bit & second.past:
            warps = tuple(w for w in range(WARPS) if missing >> (WARPS * first.index + w) & 1)
            self.races.append(Race(first, second, kind, record.name, phase, warps))
        elif not first.bit & second.trace_past:
            self.races.append(Race(first, second, kind, record.name, phase))
        second.trace_past |= first.trace_past | first.bit
        if not second.is_unit:
            self.clocks[second.agent_id].trace_past |= second.trace_past

    def _follows_phase_before(
        self, record: BarrierRecord, phase: int, step: VisibleStep, known: int, kind: RaceKind
    ) -> bool:
        """True if a step knows all members of the phase before `phase`; each that it does not know
        is a race.
        """
        before = record.phases.get(max(phase - 1, -1))
        if before is None or not before.bits & ~known:
            return True
        for first in reversed(before.members):
            if first.warp_bits & ~known and first is not step:
                self._add_race(first, step, kind, record, phase - 1, first.warp_bits & ~known)
        return False

    # -- the journal -------------------------------------------------------------------

    def initialised(self, barrier: Hashable, mask: int) -> None:
        old = self.barriers.pop(barrier, None)
        record = self.barriers[barrier] = BarrierRecord(
            barrier, history=[] if old is None else [*old.history, _users(old)]
        )
        step = self._step_of(mask)
        if old is not None:
            for phase in old.phases.values():
                for first in (*phase.members, *phase.waits, *phase.failed):
                    if first.warp_bits & ~self._known(mask)[0] and first is not step:
                        self._add_race(first, step, "turn", record, 0)
        start = record.phases[-1]
        start.members.append(step)
        start.bits = step.warp_bits

    def invalidated(self, barrier: Hashable, mask: int) -> None:
        record, step = self._record(barrier), self._step_of(mask)
        known, _ = self._known(mask)
        for number, phase in record.phases.items():
            for first in (*phase.members, *phase.waits, *phase.failed):
                if first.warp_bits & ~known and first is not step:
                    self._add_race(first, step, "turn", record, number)

    def touch(self, kind: Touch, barrier: Hashable, phase: int, mask: int) -> None:
        record, step = self._record(barrier), self._step_of(mask)
        every, some = self._known(mask)
        # the bytes of a copy need not follow the phase before: its issue does
        before = len(self.races)
        if not (kind is Touch.CREDIT and self._is_unit) and self._follows_phase_before(
            record, phase, step, every, "phase"
        ):
            self.arrivals += 1
        if len(self.races) > before and self.mixed is None and isinstance(barrier, NamedState):
            self.mixed = mixed_groups(barrier, step.agent_id[1])
        if self.recorder is not None:
            what = "arrives" if kind is Touch.MEET else f"{_VERBS[kind]} phase {phase}"
            self.recorder.effect(barrier, phase, f"{name_of(barrier)}: {what}")
        now = record.phases[phase]
        if not now.members or now.members[-1] is not step:
            now.members.append(step)
        now.bits |= step.warp_bits
        now.known |= some | step.warp_bits
        now.past |= step.past | step.bit
        now.trace_past |= step.trace_past | step.bit
        if kind in _COUNTED:
            now.counted.append(some)
            record.is_rendezvous = kind is Touch.MEET
        elif kind is Touch.EXPECT:
            now.announced.append(step)

    def completed(self, barrier: Hashable, phase: int) -> None:
        record = self._record(barrier)
        if self.mixed is not None and self.mixed.barrier is barrier:
            self.mixed.meet(phase)
        now, before = record.phases[phase], record.phases.get(phase - 1)
        # the step that arrived last, or the one after which an agent has returned
        step = self._step_of(0)
        # An announcement without an arrival must precede the completion: if no arrival of the phase
        # follows it, the phase can complete without it.
        for first in now.announced:
            if all(first.warp_bits & ~known for known in now.counted) and first is not step:
                self._add_race(first, step, "bytes", record, phase)
        for first in now.failed:
            if first.warp_bits & ~now.known:
                self._add_race(first, step, "test", record, phase)
        if before is not None and not record.is_rendezvous:
            if phase > 0 and not before.waits:
                record.unobserved.append(phase - 1)
            for first in before.waits:
                missing = first.warp_bits & ~now.known
                if missing:
                    self._add_race(first, step, "lapped", record, phase - 1, missing)
                else:
                    self.waits += 1
        if self.recorder is not None:
            what = "all have arrived" if record.is_rendezvous else f"phase {phase} complete"
            self.recorder.effect(barrier, phase, f"{name_of(barrier)}: {what}")
        record.known |= now.known
        record.past |= now.past
        record.trace_past |= now.trace_past | step.trace_past
        record.history.append(names_of(now.members))
        record.phases.pop(phase - 2, None)

    def passed(self, barrier: Hashable, phase: int, mask: int) -> None:
        record, step = self._record(barrier), self._step_of(mask)
        if not record.is_rendezvous:
            self._follows_phase_before(record, phase, step, self._known(mask)[0], "ahead")
            record.phases[phase].waits.append(step)
            record.awaited = True
        if self.recorder is not None:
            what = (
                "all have arrived"
                if record.is_rendezvous
                else f"phase {phase} is complete"
                if phase >= 0
                else "nothing to wait for yet"
            )
            self.recorder.effect(barrier, phase, f"{name_of(barrier)}: passes, {what}", passes=True)
        self._acquire(record, step, mask)

    def _acquire(self, record: BarrierRecord, step: VisibleStep, mask: int) -> None:
        """The warps of a step acquire what the completed phases of a barrier have published."""
        clock = self.clocks[self._agent_id]
        for w in range(WARPS):
            if mask >> (32 * w) & 0xFFFFFFFF:
                clock.known[w] |= record.known
        step.past |= record.past
        step.trace_past |= record.trace_past
        clock.past |= step.past
        clock.trace_past |= step.trace_past

    def tried(self, barrier: Hashable, phase: int, outcome: bool, mask: int) -> None:
        record, step = self._record(barrier), self._step_of(mask)
        every, _ = self._known(mask)
        self._follows_phase_before(record, phase, step, every, "ahead")
        record.history.append((step.agent_id, step.ordinal, phase, outcome))
        if self.recorder is not None:
            self.recorder.effect(
                barrier,
                phase,
                f"{name_of(barrier)}: phase {phase} is {'' if outcome else 'not yet '}complete",
                passes=outcome,
            )
        if not outcome:
            record.phases[phase].failed.append(step)
            return
        last = [s for s in record.phases[phase].members if s.warp_bits & ~every]
        if last:
            self._add_race(last[-1], step, "test", record, phase)

    def test_as_wait(self, barrier: Hashable, phase: int, mask: int) -> tuple[bool, bool]:
        """A test that is treated as a wait is about to be performed.

        Returns whether it knows all members of the phase before, and all members of `phase`.
        """
        record = self._record(barrier)
        self._step_of(mask)
        every, _ = self._known(mask)
        before, now = record.phases.get(max(phase - 1, -1)), record.phases.get(phase)
        self.tests_as_waits += 1
        return (
            before is not None and not before.bits & ~every,
            now is not None and not now.bits & ~every,
        )

    def failed_test_as_wait(self, barrier: Hashable, phase: int, mask: int) -> None:
        """Such a test says "no". Like a wait it can be lapped, whether or not its wait follows."""
        self._record(barrier).phases[phase].waits.append(self._step_of(mask))

    def in_turn(self, thing: Hashable, mask: int, changes: bool) -> None:
        if isinstance(thing, tuple):
            self.changed[thing] = changes or self.changed.get(thing, False)
        record, step = self._record(thing), self._step_of(mask)
        every, some = self._known(mask)
        # Steps of one kind commute if they only look, or only add and do not use what they find. So
        # a step conflicts with the last group of another kind, and follows the groups before by way
        # of that group.
        adds = isinstance(thing, tuple) and self._site is not None and self._site.id in self._adds
        # an atomic operation that writes what was there, and releases, does more than look
        writes = changes or (self._site is not None and self._site.releases)
        kind = "add" if adds else "change" if writes else "look"
        if kind == "change" or kind != record.turn_kind:
            record.history.append((record.turn_kind, names_of(record.turns)))
            record.turn_kind, record.earlier, record.turns = kind, record.turns, []
        wait = self.flags.wait if self.flags is not None and kind == "look" else None
        if wait is not None and wait.cell == thing:
            self._passed_flag(record, step, mask, wait)
        else:
            for first in reversed(record.earlier):
                if first.warp_bits & ~every and first is not step:
                    self._add_race(first, step, "turn", record, 0)
        if self.flags is not None and kind != "look" and isinstance(thing, tuple):
            self.flags.changed(thing, step, adds, some | step.warp_bits)
        if not record.turns or record.turns[-1] is not step:
            record.turns.append(step)
        record.known |= some | step.warp_bits
        record.past |= step.past | step.bit
        record.trace_past |= step.trace_past | step.bit

    def _passed_flag(
        self, record: BarrierRecord, step: VisibleStep, mask: int, wait: FlagWait
    ) -> None:
        """A loop that waits for a value in memory has found it."""
        assert self.flags is not None
        racing, latest = self.flags.preceding(wait, self._known(mask)[0])
        for change in reversed(racing):
            self._add_race(change.step, step, "turn", record, 0)
        clock = self.clocks[self._agent_id]
        for change in latest:
            step.trace_past |= change.step.trace_past | change.step.bit
            if racing:
                continue
            for w in range(WARPS):
                if mask >> (32 * w) & 0xFFFFFFFF:
                    clock.known[w] |= change.known
            step.past |= change.step.past | change.step.bit
        clock.past |= step.past
        clock.trace_past |= step.trace_past
        self.flag_waits += not racing

    def cluster_ended(
        self, clusters: Hashable, cluster: int, started: Iterable[AgentId] | None
    ) -> None:
        """A cluster of several that share work has ended.

        The end is a step of its own. It follows all steps of the cluster, and takes another one
        from those that have not started, if there is one: so the order of ends and of requests for
        work matters. `started`: the agents of the cluster that starts in its place, all of whose
        steps follow the end; None if none is left to start.
        """
        end = (cluster, CLUSTER_END)
        clock = self.clocks[end]
        known = 0
        for agent_id, other in self.clocks.items():
            if agent_id[0] == cluster:
                for bits in other.known:
                    known |= bits
        for step in self.steps:
            if step.agent_id[0] == cluster:
                known |= step.warp_bits
                clock.past |= step.past | step.bit
                clock.trace_past |= step.trace_past | step.bit
        clock.known = [known] * WARPS
        self._agent_id, self._ordinal, self._site = end, 0, None
        self._is_unit, self._current, self._mask = False, None, 1
        self.in_turn(clusters, 1, started is not None)
        for agent_id in started or ():
            self.clocks[agent_id] = AgentClock(
                [clock.known[0]] * WARPS, clock.past, clock.trace_past
            )

    def woken(self, thing: Hashable, mask: int) -> None:
        self._acquire(self._record(thing), self._step_of(mask), mask)

    def group(self, agent: Actor) -> None:
        clock = self.clocks[self._agent_id]
        known = 0
        for bits in clock.known:
            known |= bits
        clock.groups.append(known)

    def retired(self, agent: Actor, groups: int) -> None:
        clock = self.clocks[self._agent_id]
        for known in clock.groups[:groups]:
            for w in range(WARPS):
                clock.known[w] |= known
        del clock.groups[:groups]

    # -- results -----------------------------------------------------------------------

    @property
    def current(self) -> tuple[AgentId, int]:
        """The acting agent, and the number of its current op."""
        return self._agent_id, self._ordinal

    def set_outcome(self, granted: bool) -> None:
        """The request of the current step was granted, or refused."""
        self._step_of(self._mask).outcome = int(granted)

    def fault(self) -> BarrierError | None:
        """The first fault that the races show, though no execution has it: between the warps of one
        agent (`steps.warp_fault`), or of two groups at one named barrier; or None.
        """
        for race in self.races:
            bar = race.barrier
            apart = race.warps and race.kind in _BETWEEN_WARPS
            if apart and isinstance(bar, Mbarrier) and self.barriers[bar].awaited:
                return warp_fault(race, bar)
        return None if self.mixed is None else self.mixed.fault()

    def unobserved_phases(self) -> list[str]:
        """Advice about barriers with waits, some phases of which completed without a wait."""
        return [
            f"phase {r.unobserved[0]} of {name_of(r.name)} completed, and the one after it, and no"
            " agent had waited for it: nothing is ordered after it, and a wait for it would be"
            " lapped"
            for r in self.barriers.values()
            if r.awaited and r.unobserved
        ]

    def sums_in_any_order(self) -> list[str]:
        """Advice about atomic additions of floating-point numbers that nothing orders."""
        places: Counter[Site] = Counter()
        for record in self.barriers.values():
            if record.turn_kind != "add":
                continue
            for first, second in pairwise(record.turns):
                site, apart = second.site, first.agent_id != second.agent_id
                if site is None or site.adds != "floats":
                    continue
                if apart and not first.bit & second.past:
                    places[site] += 1
                    break
        lines: defaultdict[str, list[Site]] = defaultdict(list)
        for site in sorted(places, key=lambda site: site.id):
            lines[site.loc.short].append(site)
        found: list[str] = []
        for line, sites in lines.items():
            number = sum(places[site] for site in sites)
            more = f" (and {len(sites) - 1} more ops there)" if len(sites) > 1 else ""
            text = (
                f"{sites[0].what}, at {line}{more}: {number:,} place{'s' * (number != 1)} in memory"
                " to which several agents add floating-point numbers in no fixed order. This is no"
                " race, but the last bits of the sums may differ from one launch to the next"
            )
            found.append(Advice("sums in no fixed order", (line,), (text,)))
        return found

    def signature(self) -> bytes:
        """Equal for executions that differ only in the order of independent steps."""
        return signature(self.barriers.values(), self.steps)


def _users(record: BarrierRecord) -> Hashable:
    """The steps that used a barrier since it was initialised."""
    used = (s for p in record.phases.values() for s in (*p.members, *p.waits, *p.failed))
    return tuple(sorted({(s.agent_id, s.ordinal) for s in used}))
