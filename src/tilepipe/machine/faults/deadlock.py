"""The deadlock report: who waits for what, what is missing, who would have brought it, and the
cycle.

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

from collections.abc import Sequence

from tilepipe.errors import DeadlockError, NotModelledError
from tilepipe.ir.facts import BRINGS, Group, Resource, Sync
from tilepipe.machine.actors import Actor
from tilepipe.machine.agents import Agent, Spin
from tilepipe.machine.barriers import mbarrier as mbarriers, rendezvous
from tilepipe.machine.barriers.state import Mbarrier, NamedState, Rendezvous
from tilepipe.machine.faults import root_causes as causes, tensor_memory as tensor_faults
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory import tensor_allocation as tmem_alloc
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.sites import OWN, Site
from tilepipe.machine.units.in_flight import WgmmaGroup
from tilepipe.machine.units.wgmma import wgmma_wait

Waited = Mbarrier | NamedState | Rendezvous | TensorMemory | WgmmaGroup | Spin | None
_MAX_ROWS = 24


def report(m: Machine) -> DeadlockError | NotModelledError:
    """The error for a cluster in which some agents have not returned and nothing can act."""
    stuck = [a for a in m.agents if not a.done]
    wanted = [bar for bar, _ in (waited_for(m, a) for a in stuck) if isinstance(bar, Mbarrier)]
    undecided = m.world.undecided(m, stuck, {bar: _sources(m, bar) for bar in wanted})
    if undecided is not None:
        return undecided
    ctas = sorted({a.cta.block_id for a in stuck})
    where = f"CTA {ctas[0]}" if len(ctas) == 1 else f"CTAs {', '.join(map(str, ctas))}"
    total = sum(1 for a in m.agents if a.cta.block_id in ctas)
    doing = "wait, or test without success" if any(a.spins is not None for a in stuck) else "wait"
    head = f"deadlock: {len(stuck)} of {total} agents of {where} {doing}, and nothing in flight could wake one."
    rows = [
        ("agent", "at", "waits for", "phase", "reached", "missing"),
        *(_row(m, a) for a in stuck[:_MAX_ROWS]),
    ]
    lines = [head, "", *_table(rows)]
    if len(stuck) > _MAX_ROWS:
        lines.append(f"  ... and {len(stuck) - _MAX_ROWS} more")
    lines += ["", "  what could end the wait:", *_bringers(m, stuck)]
    cycle = _cycle(m, stuck)
    if cycle:
        lines += ["", "  cycle: " + " -> ".join(str(a) for a in [*cycle, cycle[0]])]
    lines += ["", f"  what to look at: {_hint(m, stuck)}"]
    return DeadlockError("\n".join(lines), _site(stuck[0]).loc)


def _site(agent: Agent) -> Site:
    if agent.spins is not None:
        return agent.spins.site
    assert agent.request is not None
    site: Site = agent.request[1][0]
    return site


def waited_for(m: Machine, agent: Agent) -> tuple[Waited, int | None]:
    """The barrier a blocked agent waits on, and the phase of it."""
    if agent.spins is not None:
        return (
            (agent.spins, None) if agent.spins.bar is None else (agent.spins.bar, agent.spins.phase)
        )
    assert agent.request is not None
    op, args = agent.request
    if op is mbarriers.mbar_wait:
        return agent.cta.bars[args[2]], args[3]
    if op is mbarriers.mbar_wait_parity:
        return agent.cta.bars[args[2]], mbarriers.phase_of(agent, args[2], args[3], args[1])
    if op is rendezvous.named_sync:
        return agent.cta.named[args[2]], agent.ticket
    if op is rendezvous.cluster_wait:
        return m.cluster, agent.cluster_ticket
    if op is rendezvous.setup_barrier:
        return (m.setup if len(m.ctas) > 1 else m.setup_of[agent.cta.rank]), agent.ticket
    if op is tmem_alloc.tmem_alloc:
        return agent.cta.tmem, None
    if op is wgmma_wait:
        group = next((g for g in agent.wgmma_groups if not g.done), None)
        return (group if group is not None and group.name else None), None
    return None, None


def _row(m: Machine, agent: Agent) -> tuple[str, ...]:
    bar, phase = waited_for(m, agent)
    site = _site(agent)
    name = str(agent)
    match bar:
        case Mbarrier():
            return (
                name,
                site.loc.short,
                bar.where,
                f"{phase}",
                f"{bar.phase - 1}" if bar.phase else "none",
                _missing(bar),
            )
        case Spin():
            reached = f"holds {bar.value}" if bar.name else ""
            missing = (
                "another value"
                if bar.name
                else "its loop changes nothing, and looks at nothing that others change"
            )
            return name, site.loc.short, bar.name, "", reached, missing
        case NamedState():
            return (
                name,
                site.loc.short,
                bar.name,
                f"{phase}",
                "",
                f"{bar.missing} of {bar.threads} threads",
            )
        case Rendezvous():
            return (
                name,
                site.loc.short,
                bar.name,
                f"{phase}",
                "",
                f"{len(bar.missing())} of {len(bar.members)} agents",
            )
        case TensorMemory():
            call = next(c for c in bar.calls if c.agent is agent)
            peer = tmem_alloc.peer_of(m, bar) if call.group == 2 else None
            return name, site.loc.short, bar.name, "", "", tensor_faults.waits_for(call, bar, peer)
        case WgmmaGroup():
            late = [w for w in _warps_of(m, agent) if w not in bar.agents]
            missing = f"the commit of {', '.join(map(str, late))}"
            return name, site.loc.short, bar.name, "", "", missing
    return name, site.loc.short, site.what, "", "", ""


def _warps_of(m: Machine, agent: Agent) -> list[Agent]:
    """The agents that are warps of an agent's warpgroup."""
    first = agent.first_warp // 4
    return [a for a in m.agents if a.cta is agent.cta and a.first_warp // 4 == first]


def _missing(bar: Mbarrier) -> str:
    parts = []
    if bar.pending:
        parts.append(f"{bar.pending} of {bar.count} arrivals")
    landed = sum(u.nbytes for u in bar.copies if u.landed)
    if bar.tx > 0:
        parts.append(f"{bar.tx:,} bytes ({bar.expected:,} expected, {landed:,} delivered)")
    elif bar.tx < 0:
        parts.append(
            f"an expect of {-bar.tx:,} bytes ({bar.expected:,} expected, {landed:,} delivered)"
        )
    return ", ".join(parts)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


# -- what could end the wait ----------------------------------------------------------------


def _sources(m: Machine, bar: Waited) -> list[Site]:
    """The ops of the kernel that could bring what is missing."""
    found: list[Site] = []
    for site in m.world.program.sites:
        match bar:
            case Mbarrier():
                # the name of a barrier is not known where only addresses are
                this = site.barrier == bar.array or (m.world.program.addressed and not site.named)
                brings = this and bool(site.sync & (BRINGS if bar.pending else Sync.CREDIT))
            case Spin():
                alike = site.tensor == bar.site.tensor >= 0 and site is not bar.site
                brings = site.writes and alike
            case TensorMemory():
                allocates = site.facts.takes is Resource.TENSOR_MEMORY
                brings = site.frees or (allocates and site.cta_group == 2)
            case WgmmaGroup():
                brings = site.facts.commits is Group.WGMMA
            case None:
                brings = False
            case _:
                brings = bar.name.split("[")[0] == site.named
        if brings:
            found.append(site)
    return found


def _candidates(m: Machine, agent: Agent) -> Sequence[Actor]:
    """The agents that could bring what `agent` waits for, the ones that have returned included."""
    bar, _ = waited_for(m, agent)
    if isinstance(bar, Rendezvous):
        return bar.missing()
    roles = {site.role for site in _sources(m, bar)}
    arrived = {a.uid for a, _ in bar.arrived.values()} if isinstance(bar, NamedState) else set()
    if isinstance(bar, WgmmaGroup):
        return [a for a in _warps_of(m, agent) if a not in bar.agents]
    everywhere = any(site.crosses for site in _sources(m, bar))
    return [
        a for a in m.agents
        if a.role_name in roles and a is not agent and a.uid not in arrived and (everywhere or a.cta is agent.cta)
    ]  # fmt: skip


def _bringers(m: Machine, stuck: list[Agent]) -> list[str]:
    lines: list[str] = []
    seen: set[str] = set()
    for agent in stuck:
        bar, _ = waited_for(m, agent)
        if isinstance(bar, Rendezvous):
            text = f"{bar.name}: " + ", ".join(_state(m.agents[a.uid]) for a in bar.missing()[:4])
            if text not in seen:
                seen.add(text)
                lines.append(f"    {text}")
            continue
        if bar is None or (isinstance(bar, Spin) and not bar.name):
            continue
        name = bar.where if isinstance(bar, Mbarrier) else bar.name
        if name in seen:
            continue
        seen.add(name)
        sources = _sources(m, bar)
        if not sources:
            lines.append(
                f"    {name}: nothing in the kernel"
                f" {'changes' if isinstance(bar, Spin) else 'arrives on'} it"
            )
        for (kind, where, role), runs in _grouped(m, sources).items():
            crosses = any(
                s.crosses for s in sources if (s.kind, s.loc.short, s.role) == (kind, where, role)
            )
            who = [a for a in m.agents if a.role_name == role and (a.cta is agent.cta or crosses)]
            states = (
                "; ".join(sorted({_itself(a) if who == [agent] else _state(a) for a in who})[:4])
                or role
            )
            lines.append(f"    {name}: {kind} at {where}, executed {runs:,} time(s) — {states}")
        if isinstance(bar, Mbarrier):
            lines += [
                f"      arrived in this phase: {n} by {a}, {s.loc.short}"
                for a, s, n in bar.arrivals
            ]
            lines += [
                f"      copy of this phase: {u.nbytes:,} bytes,"
                f" {'landed' if u.landed else 'in flight'}, {u.site.loc.short}"
                for u in bar.copies
            ]
    return lines


def _grouped(m: Machine, sources: list[Site]) -> dict[tuple[str, str, str], int]:
    """The sources by op, line and role, each with how often it was executed."""
    out: dict[tuple[str, str, str], int] = {}
    for site in sources:
        key = (site.kind, site.loc.short, site.role)
        out[key] = out.get(key, 0) + m.world.counts[site.id]
    return out


def _state(agent: Agent) -> str:
    if agent.done:
        return f"{agent} has returned"
    return f"{agent} waits at {_site(agent).loc.short}"


def _itself(agent: Agent) -> str:
    return f"{_state(agent)}: the same agent would have to arrive after its own wait"


def _cycle(m: Machine, stuck: list[Agent]) -> list[Agent]:
    """A cycle of agents each of which waits for something that the next would bring, if there is
    one.
    """
    waits = {a.uid: [c for c in _candidates(m, a) if not c.done] for a in stuck}
    by_uid = {a.uid: a for a in stuck}
    for start in stuck:
        path: list[int] = []
        at: int | None = start.uid
        while at is not None and at not in path:
            path.append(at)
            at = next((c.uid for c in waits.get(at, [])), None)
        if at is not None:
            return [by_uid[u] for u in path[path.index(at) :]]
    return []


def _forgotten_peer(m: Machine, stuck: list[Agent]) -> str | None:
    """A commit of a pair that arrives in the CTA which issues it and not in the other."""
    for agent in stuck:
        bar, _ = waited_for(m, agent)
        if isinstance(bar, Mbarrier) and bar.pending and m.world.program.pairs and bar.cta.rank & 1:
            for site in _sources(m, bar):
                if site.facts.commits is Group.TCGEN05 and site.targets == OWN:
                    return (
                        f"{bar.where} is of the odd CTA of a pair, and the commit at"
                        f" {site.loc.short} arrives only in the even one, which"
                        " issues it: give it mask= with both CTAs."
                    )
    return None


def _unreached(m: Machine, stuck: list[Agent]) -> str:
    """An arrival that misses a CTA of the cluster in which an agent waits for it; empty where there
    is none.
    """
    bars = [
        bar for bar, _ in (waited_for(m, agent) for agent in stuck) if isinstance(bar, Mbarrier)
    ]
    return next((story for bar in bars if (story := causes.unreached(m, bar))), "")


def _hint(m: Machine, stuck: list[Agent]) -> str:
    """The most telling of the waits, in one sentence."""
    forgotten = _forgotten_peer(m, stuck) or causes.out_of_turn(m.ctas) or _unreached(m, stuck)
    if forgotten:
        return forgotten
    for agent in stuck:
        if agent.spins is not None and agent.spins.bar is None:
            return _spins(m, agent, agent.spins)
    for agent in stuck:
        bar, _ = waited_for(m, agent)
        if isinstance(bar, Mbarrier) and bar.tx > 0 and not bar.pending:
            landed = sum(u.nbytes for u in bar.copies if u.landed)
            return (
                f"{bar.where} expects {bar.expected:,} bytes in phase {bar.phase} and its copies"
                f" brought {landed:,}: "
                + (
                    causes.left_out(m.ctas, bar)
                    or f"the number given to expect_bytes is {bar.tx:,} too large, or a copy is missing."
                )
            )
        if isinstance(bar, Mbarrier) and bar.pending:
            only = [s for s in _sources(m, bar) if s.sync is Sync.EXPECT and m.world.counts[s.id]]
            if only and bar.expected and bar.pending == bar.count:
                return (
                    f"{bar.where} got bytes but no arrival: expect_bytes_only"
                    f" ({only[0].loc.short}) announces bytes but"
                    " does not arrive; use expect_bytes."
                )
            early = sum(u.nbytes for u in bar.copies)
            if early and bar.tx < 0:
                return f"copies of {early:,} bytes signal {bar.where}, but no op calls expect_bytes on it (an arrival and the bytes)."
    for agent in stuck:
        bar, _ = waited_for(m, agent)
        if isinstance(bar, Mbarrier) and bar.pending:
            sources = _sources(m, bar)
            who = _candidates(m, agent)
            if not sources:
                return f"no op of the kernel arrives on {bar.array}: a commit, an arrive or an expect_bytes is missing."
            if who and all(c.done for c in who):
                never = not any(m.world.counts[s.id] for s in sources)
                return (
                    f"every role that arrives on {bar.where} has returned, {bar.pending} of"
                    f" {bar.count} arrivals"
                    " short: trip counts of the roles differ, or the count is too high."
                    + (
                        f" The {sources[0].kind} at {sources[0].loc.short} was never executed:"
                        " its branch was not taken."
                        if never
                        else ""
                    )
                )
            if not who and bar.pending == bar.count:
                return f"only {agent} arrives on {bar.where}: the same agent would have to arrive after its own wait."
            if 0 < bar.pending < bar.count:
                return (
                    f"{bar.where} got {bar.count - bar.pending} of {bar.count} arrivals: its"
                    " count is too high, or"
                    " one side does not arrive."
                )
    full = next(
        (bar for bar, _ in (waited_for(m, a) for a in stuck) if isinstance(bar, TensorMemory)), None
    )
    if full is not None:
        return _full(m, full, stuck)
    if not _cycle(m, stuck):
        return "the threads that are missing above: not all that must meet here come here."
    return (
        causes.passed_over(m.ctas)
        or _starts_late(m, stuck)
        or "the cycle above: each of its members waits before it has done what the one before it waits for."
    )


def _spins(m: Machine, agent: Agent, spin: Spin) -> str:
    """Why a loop that looks at an element of a tensor, or at nothing, does not end."""
    where = spin.site.loc.short
    if not spin.name:
        return (
            f"{agent} goes round the loop at {where} and nothing changes from one round to the"
            " next: no other role may write what it reads"
            " there (that would be a race). Wait on a barrier for whoever is to end the loop, or"
            " poll with ctx.atomic_add(..., 0)."
        )
    clusters, size = m.world.clusters, len(m.ctas)
    if clusters is not None and clusters.waiting:
        left, total = len(clusters.waiting), m.num_clusters
        return (
            f"{agent} waits at {where} until others change {spin.name}, and {left * size} of the"
            f" {total * size} CTAs of the grid have not"
            f" started: only {clusters.resident * size} of {total * size} CTAs can be resident,"
            " and each of these waits. CTAs that wait for"
            f" each other must all be resident: launch at most {clusters.resident * size}, or let"
            " each do the work of several."
        )
    return (
        f"{agent} tests {spin.name} at {where} until it holds something else than {spin.value},"
        " and no remaining agent changes it: too few"
        " add to it, or it starts at another value than the loop takes for granted (is it set"
        " back to 0 before each launch?)."
    )


def _starts_late(m: Machine, stuck: list[Agent]) -> str:
    """A producer whose very first wait is for a release; empty where there is none."""
    for agent in stuck:
        bar, phase = waited_for(m, agent)
        if (
            isinstance(bar, Mbarrier)
            and bar.array.endswith("empty")
            and phase == bar.phase == 0
            and not m.world.counts[_site(agent).id]
        ):
            return (
                f"{agent} waits for phase 0 of {bar.where}, the first release, before it has"
                " filled anything, and nothing has arrived: its"
                " phases start one too late. Every stage is free at the start: the first wait of"
                " a producer is for the phase before the"
                " first (parity 1, as a pipeline's producer cursor starts with), and passes."
            )
    return ""


def _full(m: Machine, memory: TensorMemory, stuck: list[Agent]) -> str:
    """Who keeps the columns that others wait for."""
    for _, held in sorted(memory.allocations.items()):
        if held.agent in stuck and not isinstance(waited_for(m, held.agent)[0], TensorMemory):
            return (
                f"{held.agent} holds {held.columns} columns ({held.site.loc.short}) and waits at"
                f" {_site(held.agent).loc.short} before it"
                " frees them, for an agent that needs columns first: allocate once for both, or"
                " let it free them before it waits."
            )
    pairs = "in a pair the even CTA allocates for both, and each frees its own"
    return f"{memory.name}: its columns are given back by tcgen05.dealloc alone; {pairs}."
