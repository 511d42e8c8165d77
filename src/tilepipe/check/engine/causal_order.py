"""The causal order of one execution, and the pairs of steps in it that could have come the other
way round.

Two steps depend on each other where their order matters: at one barrier, steps that count in
different phases, a wait and what completes the phase after the one it is for, a test and what
completes the phase it asks about; and any two steps on a thing that gives what is left (an atomic
counter, columns of tensor memory, requests for work). Arrivals of one phase commute.

A step *knows* another when it comes after it in every execution: by program order, by a wait for
the phase in which it counted, by the completion of a copy or an MMA. What a warp knows is kept for
each warp apart, because a warp of a warpgroup can be ahead of its siblings. Two dependent steps,
the later of which does not know the earlier, are a `Race`: somebody must see what happens the other
way round. Where there is none, every execution is this one with independent steps in another order.

Knowledge is a Python int with a bit for each (step, warp).
"""

from __future__ import annotations

from collections.abc import Hashable

from tilepipe.check.counterexamples.recording import Recorder, name_of
from tilepipe.check.engine.key_encoding import digest, encoded
from tilepipe.check.engine.steps import WARPS, Mind, Node, Phase, Race, Track, Who, Why
from tilepipe.machine.agents import Agent
from tilepipe.machine.journal import Touch
from tilepipe.machine.sites import Site

_VERBS = {
    Touch.ARRIVE: "arrives in", Touch.EXPECT: "announces bytes of", Touch.CREDIT: "brings bytes of", Touch.ISSUE: "will bring bytes of",
}  # fmt: skip
_COUNTED = (Touch.ARRIVE, Touch.MEET)


class Causality:
    """A journal (`sim.journal`) that keeps the causal order.

    Attributes:
        nodes: the steps in the order in which they were taken. races: the open pairs.
        arrivals, waits: how many of each were found to be in their only possible order. asked:
            tests that count as waits.
    """

    def __init__(
        self, recorder: Recorder | None = None, adds: frozenset[int] = frozenset()
    ) -> None:
        """`adds`: sites of atomic adds that make nothing of what was there."""
        self.recorder = recorder
        self._adds = adds
        self.nodes: list[Node] = []
        self.races: list[Race] = []
        self.arrivals = self.waits = self.asked = 0
        self._minds: dict[Who, Mind] = {}
        self._tracks: dict[Hashable, Track] = {}
        self._units: dict[tuple[Who, int], tuple[tuple[int, int, int], Site | None]] = {}
        self._who: Who = (0, 0)
        self._ordinal = 0
        self._unit = False
        self._site: Site | None = None
        self._mask = 0
        self._node: Node | None = None
        self._carried = (0, 0, 0)

    # -- who acts ----------------------------------------------------------------------

    def step(self, who: Who, ordinal: int, site: Site, mask: int) -> None:
        """The threads of `mask` of an agent are about to perform an op."""
        self._who, self._ordinal, self._site, self._unit, self._node = (
            who,
            ordinal,
            site,
            False,
            None,
        )
        self._mask = mask

    def unit(self, who: Who, ordinal: int) -> None:
        """A unit of an agent is about to act."""
        self._who, self._ordinal, self._unit, self._node = who, ordinal, True, None
        self._carried, self._site = self._units.pop((who, ordinal))

    def issued(self, who: Who, ordinal: int) -> None:
        """The step at hand has issued a unit."""
        node = self._at(self._mask)
        self._units[who, ordinal] = (
            (self._known(self._mask)[1], node.after | node.mark, node.behind | node.mark),
            self._site,
        )

    def _mind(self, who: Who) -> Mind:
        found = self._minds.get(who)
        if found is None:
            found = self._minds[who] = Mind()
        return found

    def _at(self, mask: int) -> Node:
        """The node of the step at hand, of which the warps of `mask` are part."""
        node = self._node
        if node is None:
            node = self._node = Node(
                len(self.nodes), self._who, self._ordinal, self._unit, self._site
            )
            self.nodes.append(node)
            if self._unit:
                node.bits = 1 << (WARPS * node.index)
                _, node.after, node.behind = self._carried
                return node
            mind = self._mind(self._who)
            node.after, node.behind = mind.after, mind.behind
            mind.after |= node.mark
            mind.behind |= node.mark
        if not self._unit:
            first = WARPS * node.index
            known = self._mind(self._who).known
            for w in range(WARPS):
                if mask >> (32 * w) & 0xFFFFFFFF:
                    bit = 1 << (first + w)
                    node.bits |= bit
                    known[w] |= bit
        return node

    def _known(self, mask: int) -> tuple[int, int]:
        """What every warp of the step knows, and what any of them does."""
        if self._unit:
            return self._carried[0], self._carried[0]
        every, some = -1, 0
        for w, known in enumerate(self._mind(self._who).known):
            if mask >> (32 * w) & 0xFFFFFFFF:
                every &= known
                some |= known
        return every, some

    def _track(self, barrier: Hashable) -> Track:
        found = self._tracks.get(barrier)
        if found is None:
            found = self._tracks[barrier] = Track(barrier)
        return found

    # -- races -------------------------------------------------------------------------

    def _open(
        self, first: Node, second: Node, why: Why, track: Track, phase: int, missing: int = 0
    ) -> None:
        """Adds the pair, unless another dependence puts `second` after `first` anyway. `missing`:
        bits of `first` that are not known.
        """
        if first.mark & second.after:
            warps = tuple(w for w in range(WARPS) if missing >> (WARPS * first.index + w) & 1)
            self.races.append(Race(first, second, why, track.name, phase, warps))
        elif not first.mark & second.behind:
            self.races.append(Race(first, second, why, track.name, phase))
        self._depend(second, first)

    def _depend(self, node: Node, on: Node) -> None:
        node.behind |= on.behind | on.mark
        if not node.unit:
            self._mind(node.who).behind |= node.behind

    def _begins(self, track: Track, phase: int, node: Node, known: int, why: Why) -> bool:
        """Whether the step knows all that counted in the phase before."""
        before = track.phases.get(max(phase - 1, -1))
        if before is None or not before.bits & ~known:
            return True
        for first in reversed(before.members):
            if first.bits & ~known and first is not node:
                self._open(first, node, why, track, phase - 1, first.bits & ~known)
        return False

    # -- the journal -------------------------------------------------------------------

    def born(self, barrier: Hashable, mask: int) -> None:
        old = self._tracks.pop(barrier, None)
        track = self._tracks[barrier] = Track(
            barrier, story=[] if old is None else [*old.story, _users(old)]
        )
        node = self._at(mask)
        if old is not None:
            for phase in old.phases.values():
                for first in (*phase.members, *phase.waits, *phase.failed):
                    if first.bits & ~self._known(mask)[0] and first is not node:
                        self._open(first, node, "turn", track, 0)
        start = track.phase(-1)
        start.members.append(node)
        start.bits = node.bits

    def died(self, barrier: Hashable, mask: int) -> None:
        track, node = self._track(barrier), self._at(mask)
        known, _ = self._known(mask)
        for number, phase in track.phases.items():
            for first in (*phase.members, *phase.waits, *phase.failed):
                if first.bits & ~known and first is not node:
                    self._open(first, node, "turn", track, number)

    def touch(self, kind: Touch, barrier: Hashable, phase: int, mask: int) -> None:
        track, node = self._track(barrier), self._at(mask)
        every, some = self._known(mask)
        if not (kind is Touch.CREDIT and self._unit) and self._begins(
            track, phase, node, every, "phase"
        ):
            self.arrivals += 1
        if self.recorder is not None:
            self._tell(kind, barrier, phase)
        now = track.phase(phase)
        if not now.members or now.members[-1] is not node:
            now.members.append(node)
        now.bits |= node.bits
        now.known |= some | node.bits
        now.after |= node.after | node.mark
        now.behind |= node.behind | node.mark
        if kind in _COUNTED:
            now.counted.append(some)
            track.meets = kind is Touch.MEET
        elif kind is Touch.EXPECT:
            now.announced.append(node)

    def completed(self, barrier: Hashable, phase: int) -> None:
        track = self._track(barrier)
        now, before = track.phase(phase), track.phases.get(phase - 1)
        # of the step that was told last, or of one after which an agent has returned
        node = self._at(0)
        for first in now.announced:
            if all(first.bits & ~known for known in now.counted) and first is not node:
                self._open(first, node, "bytes", track, phase)
        for first in now.failed:
            if first.bits & ~now.known:
                self._open(first, node, "test", track, phase)
        if before is not None and not track.meets:
            if phase > 0 and not before.waits:
                track.unobserved.append(phase - 1)
            for first in before.waits:
                if first.bits & ~now.known:
                    self._open(first, node, "lapped", track, phase - 1, first.bits & ~now.known)
                else:
                    self.waits += 1
        if self.recorder is not None:
            self.recorder.effect(
                barrier,
                phase,
                f"{name_of(barrier)}: {'everybody has come' if track.meets else f'phase {phase} complete'}",
            )
        track.known |= now.known
        track.after |= now.after
        track.behind |= now.behind | node.behind
        track.story.append(tuple(sorted((n.who, n.ordinal, n.unit) for n in now.members)))
        track.phases.pop(phase - 2, None)

    def passed(self, barrier: Hashable, phase: int, mask: int) -> None:
        track, node = self._track(barrier), self._at(mask)
        if not track.meets:
            self._begins(track, phase, node, self._known(mask)[0], "ahead")
            track.phase(phase).waits.append(node)
            track.awaited = True
        if self.recorder is not None:
            what = (
                "everybody has come"
                if track.meets
                else f"phase {phase} is complete"
                if phase >= 0
                else "nothing to wait for yet"
            )
            self.recorder.effect(barrier, phase, f"{name_of(barrier)}: passes, {what}", passes=True)
        self._learn(track, node, mask)

    def _learn(self, track: Track, node: Node, mask: int) -> None:
        mind = self._mind(self._who)
        for w in range(WARPS):
            if mask >> (32 * w) & 0xFFFFFFFF:
                mind.known[w] |= track.known
        node.after |= track.after
        node.behind |= track.behind
        mind.after |= node.after
        mind.behind |= node.behind

    def tried(self, barrier: Hashable, phase: int, outcome: bool, mask: int) -> None:
        track, node = self._track(barrier), self._at(mask)
        every, _ = self._known(mask)
        self._begins(track, phase, node, every, "ahead")
        track.story.append((node.who, node.ordinal, phase, outcome))
        if self.recorder is not None:
            self.recorder.effect(
                barrier,
                phase,
                f"{name_of(barrier)}: phase {phase} is {'' if outcome else 'not yet '}complete",
                passes=outcome,
            )
        if not outcome:
            track.phase(phase).failed.append(node)
            return
        last = [n for n in track.phase(phase).members if n.bits & ~every]
        if last:
            self._open(last[-1], node, "test", track, phase)

    def ask(self, barrier: Hashable, phase: int, mask: int) -> tuple[bool, bool]:
        """A test that counts as a wait is about to be performed.

        Returns whether it knows all that has counted in the phase before, and in `phase`.
        """
        track = self._track(barrier)
        self._at(mask)
        every, _ = self._known(mask)
        before, now = track.phases.get(max(phase - 1, -1)), track.phases.get(phase)
        self.asked += 1
        return (
            before is not None and not before.bits & ~every,
            now is not None and not now.bits & ~every,
        )

    def refused(self, barrier: Hashable, phase: int, mask: int) -> None:
        """Such a test says "no". Like a wait it can be lapped, whether or not its wait follows."""
        self._track(barrier).phase(phase).waits.append(self._at(mask))

    def in_turn(self, thing: Hashable, mask: int, takes: bool) -> None:
        track, node = self._track(thing), self._at(mask)
        every, some = self._known(mask)
        # Steps of one kind commute if they only look, or only add and make nothing of what was
        # there. So a step depends on the last group of another kind, and on those before by way of
        # that group.
        adds = (
            takes
            and isinstance(thing, tuple)
            and self._site is not None
            and self._site.id in self._adds
        )
        kind = "add" if adds else "take" if takes else "look"
        if kind == "take" or kind != track.kind:
            track.story.append((track.kind, _names_of(track.turns)))
            track.kind, track.earlier, track.turns = kind, track.turns, []
        for first in reversed(track.earlier):
            if first.bits & ~every and first is not node:
                self._open(first, node, "turn", track, 0)
        if not track.turns or track.turns[-1] is not node:
            track.turns.append(node)
        track.known |= some | node.bits
        track.after |= node.after | node.mark
        track.behind |= node.behind | node.mark

    def woken(self, thing: Hashable, mask: int) -> None:
        self._learn(self._track(thing), self._at(mask), mask)

    def group(self, agent: Agent) -> None:
        mind = self._mind(self._who)
        known = 0
        for bits in mind.known:
            known |= bits
        mind.groups.append(known)

    def retired(self, agent: Agent, groups: int) -> None:
        mind = self._mind(self._who)
        for known in mind.groups[:groups]:
            for w in range(WARPS):
                mind.known[w] |= known
        del mind.groups[:groups]

    # -- what is left ------------------------------------------------------------------

    def _tell(self, kind: Touch, barrier: Hashable, phase: int) -> None:
        """Records a step before it takes effect."""
        assert self.recorder is not None
        what = "arrives" if kind is Touch.MEET else f"{_VERBS[kind]} phase {phase}"
        self.recorder.effect(barrier, phase, f"{name_of(barrier)}: {what}")

    def past(self, who: Who) -> int:
        """The nodes that an agent has taken, or knows."""
        return self._mind(who).after

    @property
    def at(self) -> tuple[Who, int]:
        """The agent, and the number of the op, at hand."""
        return self._who, self._ordinal

    def chosen(self, outcome: bool) -> None:
        """The request of the step at hand was granted, or refused."""
        self._at(self._mask).outcome = int(outcome)

    def awaited(self, barrier: Hashable) -> bool:
        """Whether somebody has waited on a barrier."""
        return self._tracks[barrier].awaited

    def unobserved(self) -> list[str]:
        """Advice: barriers on which somebody waits, but with phases that came and went unseen."""
        return [
            f"phase {t.unobserved[0]} of {name_of(t.name)} completed, and the one after it, and"
            " nobody had waited for it: nothing is"
            " ordered after it, and a wait for it would be lapped"
            for t in self._tracks.values()
            if t.awaited and t.unobserved
        ]

    def signature(self) -> bytes:
        """Equal for executions that differ in the order of independent steps only."""
        stories = []
        for track in self._tracks.values():
            numbered = sorted(track.phases.items(), key=lambda one: one[0])
            open_phases = [
                tuple(sorted((n.who, n.ordinal, n.unit) for n in p.members)) for _, p in numbered
            ]
            turns = track.kind, _names_of(track.turns)
            stories.append(
                encoded((_name(track.name), tuple(track.story), tuple(open_phases), turns))
            )
        chosen = tuple(sorted((n.who, n.ordinal, n.outcome) for n in self.nodes if n.outcome >= 0))
        return digest((tuple(sorted(stories)), chosen))

    # -- what decides the races that are still to come ---------------------------------

    def pending(self, who: Who, warps: int) -> tuple[Hashable, ...]:
        """Of an agent: for each barrier, whether each warp knows its last phases and the waits for
        them.
        """
        return self._seen(tuple(self._mind(who).known[:warps]))

    def carried(self, who: Who, ordinal: int) -> tuple[Hashable, ...]:
        """The same of a unit on its way."""
        return self._seen((self._units[who, ordinal][0][0],))

    def settled(self) -> tuple[Hashable, ...]:
        """Of each barrier: whether what has counted in the phase at hand knows the waits, and the
        tests in vain, that it must know.
        """
        out: list[Hashable] = []
        for number, (now, before) in self._last():
            seen = tuple(
                sorted(
                    (n.who, n.site.id if n.site is not None else -1, not n.bits & ~now.known)
                    for n in (*before.waits, *now.failed, *now.announced)
                )
            )
            out.append((number, seen))
        return tuple(out)

    def _last(self) -> list[tuple[int, tuple[Phase, Phase]]]:
        found = []
        for number, track in enumerate(self._tracks.values()):
            last = max((p for p in track.phases if p >= 0), default=0)
            found.append((number, (track.phase(last), track.phases.get(last - 1) or Phase())))
        return found

    def _seen(self, known: tuple[int, ...]) -> tuple[Hashable, ...]:
        out: list[Hashable] = []
        for number, phases in self._last():
            for phase in phases:
                knows = tuple(not phase.bits & ~k for k in known)
                waits = tuple(
                    sorted(
                        (n.who, tuple(not n.bits & ~k for k in known))
                        for n in (*phase.waits, *phase.failed)
                    )
                )
                out.append((number, knows, waits))
        return tuple(out)


def _users(track: Track) -> Hashable:
    """Who used a barrier in the life that ends."""
    return tuple(
        sorted(
            {
                (n.who, n.ordinal)
                for p in track.phases.values()
                for n in (*p.members, *p.waits, *p.failed)
            }
        )
    )


def _names_of(nodes: list[Node]) -> Hashable:
    """What two executions call some steps alike, whatever their order."""
    return tuple(sorted((n.who, n.ordinal, n.unit) for n in nodes))


def _name(thing: Hashable) -> Hashable:
    """What two executions call a thing alike: barriers are made anew for each."""
    if isinstance(thing, tuple):
        return thing
    cta = getattr(getattr(thing, "cta", None), "block_id", -1)
    return (type(thing).__name__, cta, getattr(thing, "flat", -1), getattr(thing, "name", ""))
