"""The deadlock report: what each agent waits for, what is missing, which op would have brought it,
and the cycle.

deadlock: 2 of 2 agents of CTA 0 wait, and nothing is in flight that could wake one.

  agent          at            waits for         phase  reached  missing
  role 'load'    gemm.py:31    inputs.empty[0]   0      none     1 of 1 arrivals
  role 'mma'     gemm.py:50    inputs.full[1]    3      2        1 of 1 arrivals

what could end the wait:
  inputs.empty[0]: arrive, role 'mma' at gemm.py:60 (waits at gemm.py:50)
  ...
cycle: role 'load' -> role 'mma' -> role 'load'
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from tilepipe.errors import DeadlockError, NotModelledError
from tilepipe.ir.facts import Group, Sync
from tilepipe.machine.actors import Actor
from tilepipe.machine.agents import Agent, Spin
from tilepipe.machine.barriers.state import Mbarrier, NamedState, Rendezvous
from tilepipe.machine.faults import (
    divergence,
    first_waits,
    root_causes as causes,
    spinning,
    tensor_memory as tensor_faults,
    view,
)
from tilepipe.machine.faults.view import Wait
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory import tensor_allocation
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.sites import OWN, Site
from tilepipe.machine.units.in_flight import WgmmaGroup

_MAX_ROWS = 24
_MAX_UNRUN = 4  # stores that have not run, of those that a loop may wait for


def report(m: Machine) -> DeadlockError | NotModelledError:
    """The error for a cluster in which some agents have not returned and nothing can act."""
    if m.world.recorder is not None:
        for wait in view.waits(m):
            m.world.recorder.stuck(wait.agent, wait.site, wait.on, wait.phase)
    return _Report(m).error()


class _Report:
    """The report on one cluster. `waits`: of each agent that has not returned; `barriers`: those of
    them that are for an mbarrier, each with that; `at`: the wait that the advice is about.
    """

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.waits = view.waits(m)
        self.barriers = [(w, w.on) for w in self.waits if isinstance(w.on, Mbarrier)]
        self.at = self.waits[0]

    def error(self) -> DeadlockError | NotModelledError:
        m, waits = self.m, self.waits
        sources = {bar: view.sources(m, bar) for _, bar in self.barriers}
        undecided = m.world.undecided(m, [w.agent for w in waits], sources)
        if undecided is not None:
            return undecided
        ctas = sorted({w.agent.cta.block_id for w in waits})
        where = f"CTA {ctas[0]}" if len(ctas) == 1 else f"CTAs {', '.join(map(str, ctas))}"
        total = sum(1 for a in m.agents if a.cta.block_id in ctas)
        tests = any(w.agent.spins is not None for w in waits)
        doing = "wait, or test without success" if tests else "wait"
        head = (
            f"deadlock: {len(waits)} of {total} agents of {where} {doing}, and nothing in flight"
            " could wake one."
        )
        rows: dict[Hashable, list[Wait]] = {}
        for wait in waits:
            alike = self._row(wait) if wait.agent.role.unnamed else wait
            rows.setdefault(alike, []).append(wait)
        shown = list(rows.values())[:_MAX_ROWS]
        table = [(view.together([w.agent for w in alike]), *self._row(alike[0])) for alike in shown]
        lines = [head, ""]
        lines += _table([("agent", "at", "waits for", "phase", "reached", "missing"), *table])
        if left := len(waits) - sum(map(len, shown)):
            lines.append(f"  ... and {left} more")
        lines += ["", "  what could end the wait:", *self._bringers()]
        cycle = self._cycle()
        if cycle:
            lines += ["", "  cycle: " + " -> ".join(str(a) for a in [*cycle, cycle[0]])]
        lines += ["", f"  what to look at: {self._hint()}"]
        return DeadlockError("\n".join(lines), self.at.site.loc)

    def _row(self, wait: Wait) -> tuple[str, ...]:
        """The table's line for one wait."""
        name, phase = wait.site.what, "" if wait.phase is None else f"{wait.phase}"
        reached = missing = ""
        match wait.on:
            case Mbarrier() as bar:
                name, reached = bar.where, f"{bar.phase - 1}" if bar.phase else "none"
                missing = _missing(bar)
            case Spin() as spin if spin.name:
                name, reached, missing = spin.name, f"holds {spin.value}", "another value"
            case Spin():
                name = ""
                missing = "its loop changes nothing, and looks at nothing that others change"
            case NamedState() as named:
                name, missing = named.name, f"{named.missing} of {named.threads} threads"
            case Rendezvous() as meeting:
                name = meeting.name
                missing = f"{len(meeting.missing())} of {len(meeting.members)} agents"
            case TensorMemory() as memory:
                call = next(c for c in memory.calls if c.agent is wait.agent)
                peer = tensor_allocation.peer_of(self.m, memory) if call.group == 2 else None
                name, missing = memory.name, tensor_faults.waits_for(call, memory, peer)
            case WgmmaGroup() as group:
                late = [w for w in view.warps_of(self.m, wait.agent) if w not in group.agents]
                name, missing = group.name, f"the commit of {', '.join(map(str, late))}"
        return wait.site.loc.short, name, phase, reached, missing

    # -- what could end the wait -------------------------------------------------------

    def _bringers(self) -> list[str]:
        """A line for each op that could bring what is missing, and what has come already."""
        lines: list[str] = []
        seen: set[str] = set()
        for wait in self.waits:
            on = wait.on
            if on is None or (isinstance(on, Spin) and not on.name):
                continue
            name = on.where if isinstance(on, Mbarrier) else on.name
            if isinstance(on, Rendezvous):
                missing = (self._state(self.m.agents[a.uid]) for a in on.missing()[:4])
                name = f"{on.name}: {', '.join(missing)}"
            if name in seen:
                continue
            seen.add(name)
            if isinstance(on, Rendezvous):
                lines.append(f"    {name}")
                continue
            sources = view.sources(self.m, on)
            if isinstance(on, Spin) and on.writers is not None:
                lines += self._writers(on, sources, wait)
                continue
            if not sources:
                verb = "changes" if isinstance(on, Spin) else "arrives on"
                lines.append(f"    {name}: nothing in the kernel {verb} it")
            unused = self._unused(on)
            if unused:
                lines.append(
                    f"    {name}: nothing has arrived on it or brought it bytes, since it was"
                    " initialised; what does so on other barriers:"
                )
            lines += [
                f"      {text}" if unused else f"    {name}: {text}"
                for text in self._sources(sources, wait)
            ]
            if isinstance(on, Mbarrier):
                lines += [
                    f"      arrived in this phase: {n} by {a}, {s.loc.short}"
                    for a, s, n, _ in on.arrivals
                ]
                lines += [
                    f"      copy of this phase: {u.nbytes:,} bytes,"
                    f" {'landed' if u.landed else 'in flight'}, {u.site.loc.short}"
                    for u in on.copies
                ]
        return lines

    def _writers(self, spin: Spin, sources: list[Site], wait: Wait) -> list[str]:
        """The stores that have written the bytes that a loop looks at, and those that have not run:
        where these would write is not known.
        """
        lines = [f"    {spin.name}: {text}" for text in self._sources(sources, wait)]
        if not sources:
            lines.append(f"    {spin.name}: nothing that has run has written these bytes")
        counts, others = self.m.world.counts, self.m.world.program.sites
        unrun = [
            s for s in others if s.writes and s.tensor == spin.site.tensor and not counts[s.id]
        ]
        lines += [
            f"      never executed, wherever it writes: {s.kind} at {s.loc.short}"
            for s in unrun[:_MAX_UNRUN]
        ]
        if len(unrun) > _MAX_UNRUN:
            lines.append(f"      ... and {len(unrun) - _MAX_UNRUN} more stores")
        return lines

    def _unused(self, on: object) -> bool:
        """True if it is a barrier named by address that nothing has used: which ops of the kernel
        are for it is not known.
        """
        addressed = self.m.world.program.addressed
        return addressed and isinstance(on, Mbarrier) and not on.phase and not view.users(on)

    def _sources(self, sources: list[Site], wait: Wait) -> list[str]:
        """The sources by op, line and role: how often they ran, and what their agents do now."""
        waiting = wait.agent
        groups: dict[tuple[str, str, str], list[Site]] = {}
        for site in sources:
            groups.setdefault((site.kind, site.loc.short, site.role), []).append(site)
        lines = []
        for (kind, where, role), sites in groups.items():
            runs = sum(self.m.world.counts[s.id] for s in sites)
            ran = f"{kind} at {where}, executed {runs:,} time{'s' * (runs != 1)}"
            if self._unused(wait.on):
                lines.append(ran)
                continue
            every = (a for s in sites for a in view.agents_of(self.m, s, wait.on, waiting))
            who = list(dict.fromkeys(every))
            states = self._states(who)
            if who == [waiting]:
                verb = "write it" if isinstance(wait.on, Spin) else "arrive"
                own = f": the same agent would have to {verb} after its own wait"
                states = [self._state(waiting) + own]
            elsewhere = isinstance(wait.on, Spin) and wait.on.writers is not None
            doing = "; ".join(sorted(states)[:4]) or ("other clusters" if elsewhere else role)
            lines.append(f"{ran} — {doing}")
        return lines

    def _states(self, agents: Sequence[Agent]) -> list[str]:
        """The current ops of agents; warps without roles that do the same share a line."""
        alike: dict[tuple[int, str], list[Agent]] = {}
        at = {w.agent.uid: w.site.loc.short for w in self.waits}
        for number, agent in enumerate(agents):
            key = 0 if agent.role.unnamed else number
            alike.setdefault((key, at.get(agent.uid, "")), []).append(agent)
        return [
            self._state(group[0])
            if len(group) == 1
            else f"{view.together(group)} {f'wait at {where}' if where else 'have returned'}"
            for (_, where), group in alike.items()
        ]

    def _state(self, agent: Agent) -> str:
        if agent.done:
            return f"{agent} has returned"
        return str(next(w for w in self.waits if w.agent is agent))

    def _cycle(self) -> list[Agent]:
        """A cycle of agents each of which waits for something that the next would bring, if there
        is one.
        """
        by_uid = {w.agent.uid: w.agent for w in self.waits}
        waits = {
            w.agent.uid: [
                c.uid for c in view.candidates(self.m, w) if not c.done and not _guessed(w, c)
            ]
            for w in self.waits
        }
        for start in by_uid:
            path: list[int] = []
            at: int | None = start
            while at is not None and at not in path:
                path.append(at)
                at = next(iter(waits.get(at, [])), None)
            if at is not None:
                return [by_uid[u] for u in path[path.index(at) :]]
        return []

    # -- the most telling of the waits, in one sentence --------------------------------

    def _hint(self) -> str:
        """The advice on what to look at first."""
        spins = [w for w in self.waits if isinstance(w.on, Spin)]
        return (
            self._forgotten_peer()
            or causes.out_of_turn(self.m.ctas)
            or next(filter(None, (causes.unreached(self.m, bar) for _, bar in self.barriers)), "")
            or self._told(first_waits.begins_late(self.m, self.waits, self._cycle()))
            or self._told(divergence.behind(self.m, self.waits))
            or next((spinning.advice(self.m, w) for w in spins), "")
            or self._of_one(self._bytes)
            or self._never_used()
            or self._of_one(self._arrivals)
            or next((self._full(w.on) for w in self.waits if isinstance(w.on, TensorMemory)), "")
            or self._when_no_wait_explains()
        )

    def _told(self, found: tuple[Wait, str] | None) -> str:
        """The advice about a wait; where warps have no roles, the fault is there."""
        if found is None:
            return ""
        if self.m.world.program.addressed:
            self.at = found[0]
        return found[1]

    def _of_one(self, says: Callable[[Wait, Mbarrier], str]) -> str:
        """The first known cause, by barrier. Where warps have no roles,
        the fault is at its wait.
        """
        for wait, bar in self.barriers:
            if text := says(wait, bar):
                if self.m.world.program.addressed:
                    self.at = wait
                return text
        return ""

    def _forgotten_peer(self) -> str:
        """A commit of a pair that arrives in the CTA which issues it and not in the other."""
        for _, bar in self.barriers:
            if not (bar.pending and self.m.world.program.pairs and bar.cta.rank & 1):
                continue
            for site in view.sources(self.m, bar):
                own = site.targets == OWN and "multicast" not in site.kind
                if site.facts.commits is Group.TCGEN05 and own:
                    mask = bar.cta.words["a multicast mask"]
                    return (
                        f"{bar.where} is of the odd CTA of a pair, and the commit at"
                        f" {site.loc.short} arrives only in the even one, which issues it: give it"
                        f" {mask} with both CTAs."
                    )
        return ""

    def _bytes(self, wait: Wait, bar: Mbarrier) -> str:
        """Bytes that are missing, or that nothing has announced."""
        words = bar.cta.words
        if bar.tx > 0 and not bar.pending:
            landed = sum(u.nbytes for u in bar.copies if u.landed)
            number = (
                f"the number given to {words['mbarrier.arrive.expect_tx']} is {bar.tx:,} too large,"
                " or a copy is missing."
            )
            return (
                f"{bar.where} expects {bar.expected:,} bytes in phase {bar.phase} and its copies"
                f" brought {landed:,}: {causes.left_out(self.m.ctas, bar) or number}"
            )
        if not bar.pending:
            return ""
        only = [s for s in view.sources(self.m, bar) if s.sync is Sync.EXPECT]
        only = [s for s in only if self.m.world.counts[s.id]]
        if only and bar.expected and bar.pending == bar.count:
            return (
                f"{bar.where} got bytes but no arrival: {words['mbarrier.expect_tx']}"
                f" ({only[0].loc.short}) announces bytes but does not arrive; use"
                f" {words['mbarrier.arrive.expect_tx']}."
            )
        early = sum(u.nbytes for u in bar.copies)
        if early and bar.tx < 0:
            return (
                f"copies of {early:,} bytes signal {bar.where}, but no op calls"
                f" {words['mbarrier.arrive.expect_tx']} on it (an arrival and the bytes)."
            )
        return ""

    def _never_used(self) -> str:
        """The one barrier named by address, of those waited for, on which nothing ever arrived."""
        unused = {bar: wait for wait, bar in reversed(self.barriers) if self._unused(bar)}
        if len(unused) != 1:
            return ""
        ((bar, self.at),) = unused.items()
        return (
            f"nothing has ever arrived on {bar.where}, which {self.at.agent} waits for at"
            f" {self.at.site.loc.short}: an arrive, a commit or a copy is missing, or signals"
            f" another barrier.{self._stray(bar)}"
        )

    def _arrivals(self, wait: Wait, bar: Mbarrier) -> str:
        """Arrivals that are missing."""
        if not bar.pending:
            return ""
        sources, who = view.sources(self.m, bar), view.candidates(self.m, wait)
        if not sources:
            expect = bar.cta.words["mbarrier.arrive.expect_tx"]
            return (
                f"no op of the kernel arrives on {bar.array}: a commit, an arrive or an {expect} is"
                " missing."
            )
        if who and all(c.done for c in who):
            never = not any(self.m.world.counts[s.id] for s in sources)
            those = bar.cta.words["warp"]
            untaken = (
                f" The {sources[0].kind} at {sources[0].loc.short} was never executed: its branch"
                " was not taken."
            )
            return (
                f"every {those} that arrives on {bar.where} has returned, {bar.pending} of"
                f" {bar.count} arrivals short: trip counts of the {those}s differ, or the count is"
                f" too high.{untaken if never else ''}"
            )
        if not who and bar.pending == bar.count:
            return (
                f"only {wait.agent} arrives on {bar.where}: the same agent would have to arrive"
                f" after its own wait.{self._stray(bar)}"
            )
        if bar.pending < bar.count:
            return (
                f"{bar.where} got {bar.count - bar.pending} of {bar.count} arrivals: its count is"
                f" too high, or one side does not arrive.{self._stray(bar)}"
            )
        return ""

    def _stray(self, bar: Mbarrier) -> str:
        """An arrival on the barrier at the same address of another CTA that no agent waits for."""
        for cta in self.m.ctas if self.m.world.program.addressed else ():
            for other in cta.bars:
                awaited = any(w.on is other for w in self.waits)
                if other is bar or other.address != bar.address or awaited:
                    continue
                passed = other.last_arrivals if other.phase > bar.phase else []
                for agent, site, *_ in [*other.arrivals, *passed]:
                    if "shared::cluster" in site.kind:
                        return (
                            f" Meanwhile {agent} ({site.loc.short}) arrived on {other.where}, where"
                            " no agent waits for it: is the rank given to mapa, or the mask of"
                            " CTAs, the right one?"
                        )
        return ""

    def _full(self, memory: TensorMemory) -> str:
        """Which agent keeps the columns that others wait for."""
        waiting: dict[Actor, Wait] = {
            w.agent: w for w in self.waits if not isinstance(w.on, TensorMemory)
        }
        for _, held in sorted(memory.allocations.items()):
            if held.agent in waiting:
                return (
                    f"{held.agent} holds {held.columns} columns ({held.site.loc.short}) and waits"
                    f" at {waiting[held.agent].site.loc.short} before it frees them, for an agent"
                    " that needs columns first: allocate once for both, or let it free them before"
                    " it waits."
                )
        pairs = "in a pair the even CTA allocates for both, and each frees its own"
        return f"{memory.name}: its columns are given back by tcgen05.dealloc alone; {pairs}."

    def _when_no_wait_explains(self) -> str:
        """Where no single wait says what is wrong."""
        if not self._cycle():
            named = next(((w, w.on) for w in self.waits if isinstance(w.on, NamedState)), None)
            return (
                "the threads that are missing above: not all that must meet here come here."
                if named is None
                else self._too_few(*named)
            )
        return causes.passed_over(self.m.ctas) or (
            "the cycle above: each of its members waits before it has done what the one before"
            " it waits for."
        )

    def _too_few(self, wait: Wait, named: NamedState) -> str:
        """The threads that a named barrier counts, and those that the roles with it have."""
        roles = {site.role for site in self.m.world.program.sites if site.named == named.name}
        sizes = {
            role: sum(
                agent.full.bit_count()
                for agent in self.m.agents
                if agent.cta is wait.agent.cta and agent.role_name == role
            )
            for role in sorted(roles)
        }
        warp = wait.agent.cta.words["warp"]
        has = ", ".join(f"{warp} '{role}' has {size}" for role, size in sizes.items() if size)
        if wait.agent.role.unnamed:
            has = f"the CTA has {sum(sizes.values())}"
        return (
            f"not every thread that the barrier counts reaches it: it counts {named.threads},"
            f" {named.threads - named.missing} have arrived{has and f' ({has})'}."
        )


def _guessed(wait: Wait, other: Actor) -> bool:
    """True if all that is known of an agent is that its role, which is the waiting one's as well,
    writes the tensor of an element that is waited for: each may write elements of its own.
    """
    on = wait.on
    return isinstance(on, Spin) and on.writers is None and other.role_name == wait.agent.role_name


def _missing(bar: Mbarrier) -> str:
    parts = [f"{bar.pending} of {bar.count} arrivals"] if bar.pending else []
    landed = sum(u.nbytes for u in bar.copies if u.landed)
    bytes_ = f"({bar.expected:,} expected, {landed:,} delivered)"
    if bar.tx > 0:
        parts.append(f"{bar.tx:,} bytes {bytes_}")
    elif bar.tx < 0:
        parts.append(f"an expect of {-bar.tx:,} bytes {bytes_}")
    return ", ".join(parts)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
