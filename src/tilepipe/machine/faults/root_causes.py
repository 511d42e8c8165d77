"""Causes that a message names before the consequence that a run happens to meet first: a lapped
wait, a race, a deadlock.

A ring has two mbarriers for each stage (`program.RingSide`). Phase p of a stage's full barrier is
fill number p + 1 of the stage, phase p of its empty barrier the release after that fill. So as many
fills precede a release, and one release fewer precedes a fill. Other causes: an agent that ran
ahead, and completed a phase with an arrival meant for the next; a named barrier at which an agent
arrived without waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilepipe.ir.facts import Sync
from tilepipe.machine.actors import Actor
from tilepipe.machine.barriers.state import Mbarrier, NamedState, TmaLoadUnit
from tilepipe.machine.cta import Cta
from tilepipe.machine.faults import view
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.machine import Machine
from tilepipe.machine.program import RingSide
from tilepipe.machine.sites import Site

# -- rings -----------------------------------------------------------------------------


def out_of_turn(ctas: Iterable[Cta]) -> str:
    """The first arrival that releases or fills a stage out of its turn; empty where all keep to
    it.
    """
    for full, empty in _stages(ctas):
        story = _released_early(full, empty) or _filled_early(full, empty)
        if story:
            return story
    return ""


def _stages(ctas: Iterable[Cta]) -> Iterator[tuple[Mbarrier, Mbarrier]]:
    """The full and the empty barrier of each stage of each ring."""
    for cta in ctas:
        sides = {(bar.side, bar.index): bar for bar in cta.bars if bar.side and bar.side.ring}
        for (side, index), bar in sides.items():
            partner = sides.get((side._replace(fills=False), index))
            if side.fills and partner is not None:
                yield bar, partner


def _latest(bar: Mbarrier) -> tuple[int, str]:
    """The last phase with an arrival, and the agents that arrived; -1 before the first arrival, and
    where another CTA has arrived, which follows its own ring.
    """
    arrivals, phase = (
        (bar.arrivals, bar.phase) if bar.arrivals else (bar.last_arrivals, bar.phase - 1)
    )
    who = sorted({f"{agent} at {site.loc.short}" for agent, site, *_ in arrivals})
    known = arrivals and all(agent.cta is bar.cta for agent, *_ in arrivals)
    return (phase if known else -1), ", ".join(who[:3]) + (", ..." if len(who) > 3 else "")


def _released_early(full: Mbarrier, empty: Mbarrier) -> str:
    phase, who = _latest(empty)
    if phase < max(full.phase, 0):
        return ""
    return (
        f"Released out of turn: the arrival in phase {phase} of {empty.where} ({who}) is release"
        f" number {phase + 1} of that stage, but it"
        f" has been filled {_times(full.phase)} ({full.name}: {_complete(full)})."
        f" {_ONE_RELEASE.format(full.name)}"
    )


_ONE_RELEASE = (
    "One release for each wait that passed on {}: look for a second release or arrive, a step too"
    " many, or a release without its wait."
)


def _filled_early(full: Mbarrier, empty: Mbarrier) -> str:
    phase, who = _latest(full)
    if phase <= max(empty.phase, 0):
        return ""
    return (
        f"Filled out of turn: the arrival in phase {phase} of {full.where} ({who}) is fill number"
        f" {phase + 1} of that stage, but it"
        f" has been released {_times(empty.phase)} ({empty.name}: {_complete(empty)}). Wait for"
        f" {empty.name} before every"
        f" fill but the first, and arrive on {full.name} once for each."
    )


def _complete(bar: Mbarrier) -> str:
    return (
        "no phase is complete"
        if bar.phase <= 0
        else "phase 0 is complete"
        if bar.phase == 1
        else f"phases 0..{bar.phase - 1} are complete"
    )


def _times(n: int) -> str:
    return "0 times" if n <= 0 else "once" if n == 1 else f"{n} times"


def refilled(ctas: Iterable[Cta], copy: Access) -> str:
    """Which arrival freed the stage of a copy before any wait for it, so that it was filled again;
    empty where the copy is of no ring.
    """
    for full, empty in _stages(ctas):
        if any(unit.write is copy for unit in (*full.copies, *full.last_copies)):
            phase, who = _latest(empty)
            if phase >= 0:
                return (
                    f"Phase {phase} of {empty.where} ({who}) freed the stage for the second copy"
                    " without waiting for the first."
                    f" {_ONE_RELEASE.format(full.name)}"
                )
    return ""


def left_out(ctas: list[Cta], bar: Mbarrier) -> str:
    """The multicast copies of a phase whose masks leave a CTA out that has announced their bytes;
    empty where there are none.

    A copy into several CTAs is one unit for each, credited to the barrier of the same array and
    number there.
    """
    reached: dict[tuple[int, int, tuple[int, ...]], tuple[TmaLoadUnit, int]] = {}
    now: set[tuple[int, int, tuple[int, ...]]] = set()
    for twin in (
        b for cta in ctas for b in cta.bars if (b.array, b.index) == (bar.array, bar.index)
    ):
        for phase, units in ((twin.phase, twin.copies), (twin.phase - 1, twin.last_copies)):
            for unit in units:
                if unit.site.fills and unit.site.multicast:
                    key = unit.agent.uid, unit.site.id, unit.coords
                    reached[key] = unit, reached.get(key, (unit, 0))[1] | 1 << unit.slot.cta.rank
                    if phase == bar.phase:
                        now.add(key)
    missed = {key: found for key, found in reached.items() if not found[1] >> bar.cta.rank & 1}
    kept = [missed[key] for key in sorted(missed, key=lambda k: k[:2]) if key in now] or list(
        missed.values()
    )
    if not kept:
        return ""
    width = len(ctas)
    copies = ", ".join(
        dict.fromkeys(
            f"{mask:#0{width + 2}b} of {unit.agent} ({unit.site.loc.short})"
            for unit, mask in kept[:4]
        )
    )
    outside = " | ".join(
        f"{mask:#0{width + 2}b}"
        for mask in dict.fromkeys(mask | 1 << bar.cta.rank for _, mask in kept)
    )
    return (
        f"copies that signal {bar.array} are multicast to masks without this CTA, which is bit"
        f" {bar.cta.rank}: {copies}. Give them a mask"
        f" with every CTA that expects their bytes ({outside}), or let this one expect fewer."
    )


def passed_over(ctas: Iterable[Cta]) -> str:
    """A ring whose stages have been used unevenly although nothing is in flight: an agent steps
    past one. Empty where there is none.
    """
    for cta in ctas:
        arrays: dict[RingSide, list[Mbarrier]] = {}
        for bar in cta.bars:
            if bar.side is not None and bar.side.ring:
                arrays.setdefault(bar.side, []).append(bar)
        for side, bars in arrays.items():
            most, least = max(bars, key=lambda b: b.phase), min(bars, key=lambda b: b.phase)
            if most.phase - max(least.phase, 0) > 1:
                does = "fills" if side.fills else "releases"
                return (
                    f"{most.where} has completed {most.phase} phases, {least.name}"
                    f" {max(least.phase, 0) or 'none'}: the stages of a ring"
                    f" take turns, and whoever {does} them passes some over. Look for a second"
                    " step or release for each."
                )
    return ""


# -- barriers --------------------------------------------------------------------------


def ran_ahead(ctas: Iterable[Cta], sites: Iterable[Site] = ()) -> str:
    """A phase that one agent's arrival for the next completed, in the place of another agent's;
    empty where there is none.

    `sites`: of the kernel, where an agent that arrives at two lines is to be reported as well.
    """
    roles: dict[str, set[str]] = {}
    for site in sites:
        if site.sync & (Sync.ARRIVE | Sync.EXPECT) and site.facts.commits is None:
            roles.setdefault(site.barrier, set()).add(site.role)
    for bar in (bar for cta in ctas for bar in cta.bars if bar.repeated_arrivals is not None):
        assert bar.repeated_arrivals is not None
        phase, arrivals = bar.repeated_arrivals
        if len(arrivals) != bar.count:
            continue
        came = {agent.uid for agent, *_ in arrivals}
        arrive = roles.get(bar.array, set()) | {agent.role_name for agent, *_ in arrivals}
        everywhere = {
            agent.cta.rank for agent, *_ in (*arrivals, *bar.last_arrivals, *bar.arrivals)
        } | {bar.cta.rank}
        peers = [a for cta in ctas if cta.rank in everywhere for a in cta.agents]
        absent = next((a for a in peers if a.role_name in arrive and a.uid not in came), None)
        seen: dict[tuple[int, int], set[int]] = {}
        for arrival in arrivals:
            agent, site, who = arrival.agent, arrival.site, arrival.who
            if site.id in seen.get(who, ()) or (who in seen and absent is not None):
                whose = "another agent" if absent is None else f"that of {absent}"
                return (
                    f"Phase {phase} of {bar.where} was completed by two arrivals of {agent}"
                    f" ({site.loc.short}), of which the"
                    f" second was meant for the phase after, in the place of {whose}. Whoever"
                    " arrives again must first know that the"
                    " phase before is over (wait for it), or each needs a barrier of its own."
                )
            seen.setdefault(who, set()).add(site.id)
    return ""


def completed_by_bytes(m: Machine, bars: Iterable[Mbarrier]) -> str:
    """A commit or an arrive on a barrier of one arrival, which an expect_bytes is already; empty
    where there is none.
    """
    for bar in bars:
        words = bar.cta.words
        sites = [s for s in view.executed(m) if s.barrier == bar.array]
        copy = next((s for s in sites if s.fills), None)
        announces = next((s for s in sites if Sync.EXPECT in s.sync), None)
        more = next((s for s in sites if s.is_arrival), None)
        if bar.count == 1 and copy and announces and more and more.role != announces.role:
            return (
                f"The {words['mbarrier.arrive.expect_tx']} at {announces.loc.short} and the bytes"
                " of the TMA copies at"
                f" {copy.loc.short} complete the phases of"
                f" {bar.where}, and the arrival of {words['warp']} '{more.role}' at"
                f" {more.loc.short} is one more than its count of 1. What says that a"
                " stage is free again belongs on the barrier that the producer waits on."
            )
    return ""


def unreached(m: Machine, bar: Mbarrier) -> str:
    """An arrival that each CTA of a cluster must make in several CTAs, and makes in fewer; empty
    where there is none.

    Every arrival that can reach this barrier has come in its phase, and CTAs whose arrivals go
    elsewhere would make up the count.
    """
    if len(m.ctas) < 2 or not bar.pending:
        return ""
    sites = [s for s in view.executed(m) if s.is_arrival and s.barrier == bar.array]
    came = {a.uid for a, *_ in bar.arrivals}
    near: set[int] = set()
    far: dict[int, Site] = {}
    for site in sites:
        for cta in m.ctas:
            if not any(a.role_name == site.role for a in cta.agents):
                continue
            reached = view.reached(site, cta.rank)
            if reached is None:
                return ""  # known only when it is executed
            if bar.cta.rank in reached:
                near.add(cta.rank)
                if not all(a.uid in came for a in cta.agents if a.role_name == site.role):
                    return ""  # one that reaches this barrier is still to come
            else:
                far.setdefault(cta.rank, site)
    absent = sorted(set(far) - near)
    if not absent or bar.pending > len(absent) * max(bar.count // len(m.ctas), 1):
        return ""
    site = far[absent[0]]
    there = sorted(view.reached(site, absent[0]) or ())
    who = " and ".join(f"CTA rank {rank}" for rank in absent)
    mask = sum(1 << cta.rank for cta in m.ctas)
    return (
        f"{bar.where} gets {bar.count - bar.pending} of the {bar.count} arrivals of a phase,"
        f" since the arrival of {who} at"
        f" {site.loc.short} reaches only the copy in CTA rank {', '.join(map(str, there))}. A"
        f" commit reaches the CTAs of its"
        f" {bar.cta.words['mask']} ({mask:#b}: all of this cluster), an arrive those for which"
        f" {bar.cta.words['mbarrier.arrive on a peer']}"
        " is called."
    )


def only_arrives(m: Machine, agent: Actor) -> str:
    """A named barrier at which the agent that had to wait has arrived without waiting; empty where
    there is none.
    """
    sites = [s for s in m.world.program.sites if s.role == agent.role_name and s.named]
    waits = {s.named for s in sites if Sync.WAIT in s.sync}
    for site in sites:
        if site.named not in waits and m.world.counts[site.id]:
            return (
                f"The {site.kind} at {site.loc.short} does not wait: it counts {agent} in and"
                f" goes on. Use {agent.cta.words['bar.sync']} where it must wait for"
                " the others."
            )
    return ""


# -- named barriers of programs whose warps are alike --------------------------------------


def met_elsewhere(m: Machine, one: Actor, other: Actor) -> str:
    """Where two warps have met in a barrier of all threads at different instructions, the fact: one
    of them may have skipped a barrier. In a program by addresses, whose warps are of one role.
    """
    for b in _named(m, one):
        sites = {agent.uid: site for agent, _, site in b.last}
        here, there = sites.get(one.uid), sites.get(other.uid)
        if (
            here is not None
            and there is not None
            and here is not there
            and b.threads == sum(32 * a.warps for a in m.agents if a.cta is one.cta)
        ):
            return (
                f"Note that {one} at {here.loc.short} and {other} at {there.loc.short} have met in"
                f" {b.name}: if these are not meant to be one, one of the two has skipped a"
                f" {here.kind} that the other executed."
            )
    return ""


def met_without(m: Machine, one: Actor, other: Actor) -> str:
    """Where a warp has met others in a named barrier, and not the one that it should have."""
    for b in _named(m, one):
        sites = {agent.uid: (agent, site) for agent, _, site in b.last}
        if one.uid in sites and other.uid not in sites:
            site = sites[one.uid][1]
            others = ", ".join(str(a) for a, _ in sites.values() if a is not one)
            return (
                f"{one} last passed {b.name} ({site.loc.short}) with {others}, and not with"
                f" {other}: is the barrier's number used for two groups?"
            )
    return ""


def _named(m: Machine, agent: Actor) -> Sequence[NamedState]:
    return m.agents[agent.uid].cta.named if m.world.program.addressed else ()
