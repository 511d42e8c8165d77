"""What the agents of a cluster did, from when they passed which point."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.ir import ops
from tilepipe.ir.facts import Group, Sync
from tilepipe.ir.memory import BarrierRef, NamedBarrier
from tilepipe.ir.op_text import text_of
from tilepipe.ir.program import Kernel
from tilepipe.ir.stamps import waits
from tilepipe.timeline.events import Event, Phase, Release, Wait
from tilepipe.timeline.fills import phases_of
from tilepipe.timeline.issued import Issued, event_of, events_of, stage_of
from tilepipe.timeline.passages import Passage, Who

# A wait that takes less has not blocked: this long takes a look that succeeds, with its stamps.
SHORTEST_WAIT_US = 0.06
_SKEW_US = 0.05  # by which clocks of two SMs may differ
_LONG_COPY_US = 3.0  # no copy takes longer, but for one that waits for others

Key = tuple[int, str, int]  # the CTA of a barrier, its array, its index
_GROUPS = (Group.BULK, Group.WGMMA)


@dataclass(eq=False, slots=True)
class _Agent:
    """Where an agent is: since when it waits, and by group what it has issued and not committed,
    and what it has committed and not waited for.
    """

    waits_since: dict[int, float] = field(default_factory=dict)
    open: dict[Group, list[Issued]] = field(default_factory=dict)
    groups: dict[Group, list[list[Issued]]] = field(default_factory=dict)


class Reenactment:
    """Events of a cluster, from the passages of its agents in order.

    Attributes:
        events, phases: complete after `finish`.
    """

    def __init__(self, kernel: Kernel, cycles_per_us: float) -> None:
        self.events: list[Event] = []
        self.phases: list[Phase] = []
        self._kernel = kernel
        self._per_us = cycles_per_us
        self._agents: dict[Who, _Agent] = {}
        self._units: list[Issued] = []
        self._pending: dict[Key, list[Issued]] = {}  # what credits a barrier, or commits to it
        self._arrivals: dict[Key, Passage] = {}  # the latest
        self._latest: dict[Key, Issued] = {}  # of those that a wait has seen
        # barrier -> its signals in order: (time, what is known to come then, or None)
        self._signals: dict[Key, list[tuple[float, Issued | None]]] = {}

    def passes(self, x: Passage) -> None:
        """An agent has passed a point; the calls are in the order of the times."""
        op, agent = x.op, self._agents.setdefault(x.who, _Agent())
        if x.stamp.ended:
            self._goes_on(x, agent)
            return
        if waits(op):
            agent.waits_since[x.stamp.point] = x.us
        if op.facts.unit is not None:
            self._issues(x, agent)
        if op.facts.commits in _GROUPS:
            units = agent.open.pop(op.facts.commits, [])
            agent.groups.setdefault(op.facts.commits, []).append(units)
        elif isinstance(op, ops.Tcgen05Commit):
            units = agent.open.pop(Group.TCGEN05, [])
            for key in self._keys(x):
                self._pending.setdefault(key, []).extend(units)
                self._signals.setdefault(key, []).extend((x.us, unit) for unit in units)
        elif Sync.ARRIVE in op.sync and op.facts.unit is None:
            if Sync.EXPECT in op.sync:
                self._refills(x)
            for key in self._keys(x):
                self._arrivals[key] = x
                self._signals.setdefault(key, []).append((x.us, None))

    def _refills(self, x: Passage) -> None:
        """The next phase of a barrier begins, so that the copies of the one before it are over. Of
        other CTAs, copies for the next phase may have been issued already.
        """
        for key in self._keys(x):
            left = []
            for unit in self._pending.pop(key, []):
                if unit.passage.who.cta == x.who.cta or x.us - unit.passage.us > _LONG_COPY_US:
                    unit.see(x.us, False)
                else:
                    left.append(unit)
            if left:
                self._pending[key] = left

    def _issues(self, x: Passage, agent: _Agent) -> None:
        group = x.op.facts.issues
        if group is not None:
            unit = Issued(x)
            self._units.append(unit)
            agent.open.setdefault(group, []).append(unit)
            return
        for key in self._keys(x):
            unit = Issued(x, key[0])
            self._units.append(unit)
            self._pending.setdefault(key, []).append(unit)
            self._signals.setdefault(key, []).append((x.us, unit))

    def _goes_on(self, x: Passage, agent: _Agent) -> None:
        since = agent.waits_since.pop(x.stamp.point, None)
        if since is None:  # the beginning was lost
            return
        tested = isinstance(x.op, ops.MbarWait)  # it is noted only if it blocks
        blocked = tested or x.us - since >= SHORTEST_WAIT_US
        known = x.us if blocked else since
        group = x.op.facts.awaits
        by: Release | None = None
        if group is not None:
            pending: int = getattr(x.op, "pending", 0)
            groups = agent.groups.get(group, [])
            over = groups[: max(len(groups) - pending, 0)]
            del groups[: len(over)]
            units = [unit for one in over for unit in one]
        else:
            keys = self._keys(x)
            units = [u for key in keys for u in self._pending.pop(key, [])]
            if units:
                self._latest.update(dict.fromkeys(keys, units[-1]))
        for unit in units:
            unit.see(known, blocked)
        if not blocked:
            return
        if units:
            by = _release(units[-1].passage, x.us)
        elif (last := self._complete(x, since)) is not None:
            by = _release(last.passage, min(last.seen_us or x.us, x.us))
        elif group is None:
            found = [a for key in self._keys(x) if (a := self._arrivals.get(key)) is not None]
            found = [a for a in found if a.who != x.who or a.us > since]
            by = max((_release(a, a.us) for a in found), key=lambda r: r.time_us, default=None)
            early = by is not None and by.time_us < since - _SKEW_US * (by.cta != x.who.cta)
            if early and not tested:
                return  # it was over already: the time is that of looking
        self._waited(x, since, by, units)

    def _complete(self, x: Passage, since: float) -> Issued | None:
        """The copy, or the MMA, that another agent's wait on the same barrier saw complete during
        this one.
        """
        found = [self._latest.get(key) for key in self._keys(x)]
        seen = [unit for unit in found if unit is not None and (unit.seen_us or 0.0) > since]
        return seen[-1] if seen else None

    def _waited(self, x: Passage, since: float, by: Release | None, units: list[Issued]) -> None:
        op, stamp, bar = x.op, x.stamp, getattr(x.op, "bar", None)
        about, stage, on, phase = "", None, "", 0
        if isinstance(bar, BarrierRef):
            on, stage = bar.array.name, stage_of(bar.array, stamp.index)
            about = on if stage is None else f"{on}[{stage}]"
            phase = stamp.parity
        elif isinstance(bar, NamedBarrier):
            on = about = f"{bar.name}[{stamp.index}]" if bar.per_warpgroup > 1 else bar.name
        elif isinstance(op, ops.ClusterWait):
            on = about = "the cluster barrier"
        own = op.facts.awaits is not None
        if own:
            if not units:
                return
            on = units[-1].passage.op.kind
        wait = Wait(on, None if own else phase, by)
        self.events.append(event_of(x, "wait", since, x.us, about, stage, wait=wait))

    def _keys(self, x: Passage) -> list[Key]:
        """The barriers that an op names: several where it is a multicast."""
        bar, stamp, size = getattr(x.op, "bar", None), x.stamp, self._kernel.cluster_size
        first = x.who.cta // size * size
        if isinstance(x.op, ops.ClusterArrive | ops.ClusterWait):
            return [(first, "the cluster barrier", 0)]
        if isinstance(bar, NamedBarrier):
            return [(x.who.cta, f"named {bar.name}", stamp.index)]
        if not isinstance(bar, BarrierRef):
            return []
        name, ctas = bar.array.name, [x.who.cta if stamp.rank is None else first + stamp.rank]
        mask = stamp.ctas
        if mask is None and isinstance(x.op, ops.Tcgen05Commit) and x.op.mask is not None:
            mask = (1 << size) - 1  # which CTAs a commit reaches is not noted
        if mask is not None:
            ctas = [first + rank for rank in range(size) if mask >> rank & 1]
        return [(cta, name, stamp.index) for cta in ctas]

    def finish(self) -> None:
        """Makes events of the copies and MMAs, and phases of what the barriers were told."""
        last = max((e.end_us for e in self.events), default=0.0)
        self.events += events_of(self._units, last, self._per_us)
        signals = {
            key: [(at if unit is None else unit.end_us, at) for at, unit in given]
            for key, given in self._signals.items()
        }
        self.phases = phases_of(self._kernel, signals)


def _release(x: Passage, us: float) -> Release:
    op = x.op
    return Release(x.who.cta, x.who.role, x.who.part, op.name, text_of(op), op.loc.short, us)
