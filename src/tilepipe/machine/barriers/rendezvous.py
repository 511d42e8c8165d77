"""Named barriers (bar.sync), the end of set-up, the cluster barrier, and the fences that go with
them.
"""

from __future__ import annotations

from collections.abc import Callable

from tilepipe.errors import BarrierError
from tilepipe.machine.actors import BLOCKED, Blocked
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import release
from tilepipe.machine.barriers.state import (
    LIVE,
    Again,
    Arrival,
    Mbarrier,
    NamedState,
    RelaxedArrival,
    Rendezvous,
)
from tilepipe.machine.faults import named_barriers as faults
from tilepipe.machine.happens_before import flags
from tilepipe.machine.happens_before.accesses import GLOBAL, Access
from tilepipe.machine.happens_before.knowledge import Fenceable
from tilepipe.machine.happens_before.memory_order import Scope
from tilepipe.machine.journal import Touch
from tilepipe.machine.machine import Machine
from tilepipe.machine.rules import EXITED_WARPS
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import warps_of


def _named_arrive(m: Machine, ag: Agent, site: Site, mask: int, b: NamedState) -> None:
    ag.converge(mask)
    published = ag.publish(mask)
    if b.closed is not None and not b.reset_bit & published:
        faults.arrives_again(b, b.closed, ag, site)
    before = {a.warp: a for a in reversed(b.arrived) if a.agent is ag} if b.arrived else None
    for w, _ in warps_of(mask):
        arrival = Arrival(ag, w, site)
        if before and b.again is None and w in before:
            b.again = Again(arrival, before[w], b.missing)
        b.arrived.append(arrival)
    if b.missing < 0:
        faults.too_many_threads(b, site)
    if m.journal is not None:
        m.journal.touch(Touch.MEET, b, b.generation, mask)
    b.acc |= published
    if m.world.recorder is not None:
        m.world.recorder.arrived(b, ag, site, ag.time)
    if ag.time > b.acc_time:
        b.acc_time = ag.time
    if b.missing == 0:
        _complete_named(m, b)


def _complete_named(m: Machine, b: NamedState) -> None:
    b.last = list(b.arrived)
    m.order.retire_bit(b.reset_bit)
    b.closed, b.again = b.again, None
    b.reset_bit = 0 if b.closed is None else m.order.new_bit()
    b.acc |= b.reset_bit
    if b.whole:
        ag, _, site = b.last[-1]
        exited = sum(agent.done for agent in m.ctas[ag.cta.rank].agents)
        if exited:
            m.world.finding(
                EXITED_WARPS,
                f"{site.what}: {exited} of the {len(m.ctas[ag.cta.rank].agents)} warps of the CTA"
                " have exited, and never come to it",
                site.loc,
                "Let all warps come to the barrier, and put what some of them are not to do in a"
                " branch.",
                BarrierError,
            )
    _complete(m, b)


def _complete(m: Machine, b: NamedState | Rendezvous) -> None:
    release(m, b, b.generation)
    b.generation += 1
    b.arrived.clear()


def _pass(
    m: Machine, ag: Agent, site: Site, mask: int, b: NamedState | Rendezvous, generation: int
) -> None:
    """The threads of `mask` go on: they know what all threads knew that arrived."""
    if m.journal is not None:
        m.journal.passed(b, generation, mask)
    if mask == ag.full:
        ag.join_all(b.known | ag.everything())
    else:
        ag.acquire(mask, b.known)
    if b.time > ag.time:
        if m.world.recorder is not None:
            m.world.recorder.waited(ag, site, b, generation)
        ag.time = b.time


def _named(ag: Agent, site: Site, bar: int, threads: int | None) -> NamedState:
    """A named barrier. `threads`: how many it is for, where the instruction says so: the first to
    arrive decides for a generation. 0: all of the CTA that have not exited.
    """
    b = ag.cta.named[bar]
    if threads is not None and not ag.blocked:
        if not b.arrived:
            b.whole = threads == 0
        if threads == 0:
            threads = sum(32 for agent in ag.cta.agents if not agent.done)
    if threads is not None and threads != b.threads:
        if b.arrived and not ag.blocked:
            raise BarrierError(
                f"{site.what}: {ag} arrives at {b.name} for {threads} threads, and others have"
                f" arrived at it for {b.threads} (PTX ISA, bar.sync: all give the same number).",
                site.loc,
            )
        b.threads = threads
    return b


def named_sync(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, threads: int | None = None
) -> Blocked | None:
    """bar.sync: arrives, and waits for all the barrier's threads."""
    b = _named(ag, site, bar, threads) if not ag.blocked else ag.cta.named[bar]
    if not ag.blocked:
        ag.ticket = b.generation
        _named_arrive(m, ag, site, mask, b)
        if b.generation == ag.ticket:
            b.waiters.append(ag)
            ag.waits = b, ag.ticket
            return BLOCKED
    _pass(m, ag, site, mask, b, ag.ticket)
    ag.ticket = -1
    return None


def named_reduce(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, threads: int | None, votes: int
) -> tuple[int, int] | Blocked:
    """bar.red: a `named_sync` that returns (threads whose predicate is true, threads), of all that
    take part. `votes`: those of this agent whose predicate is true.
    """
    b = ag.cta.named[bar]
    generation = ag.ticket if ag.blocked else b.generation
    if not ag.blocked:
        true, total = b.votes.get(generation, (0, 0))
        b.votes[generation] = true + votes.bit_count(), total + mask.bit_count()
        b.votes.pop(generation - 2, None)
    outcome = named_sync(m, ag, site, mask, bar, threads)
    return b.votes[generation] if outcome is None else outcome


def named_arrive(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, threads: int | None = None
) -> None:
    """bar.arrive: arrives without waiting."""
    _named_arrive(m, ag, site, mask, _named(ag, site, bar, threads))


def _arrive(m: Machine, meeting: Rendezvous, ag: Agent, site: Site) -> None:
    if ag.uid in meeting.arrived:
        raise BarrierError(
            f"{site.what}: {ag} arrives twice at {meeting.name} before it has completed", site.loc
        )
    meeting.arrived[ag.uid] = site
    if m.journal is not None:
        m.journal.touch(Touch.MEET, meeting, meeting.generation, ag.full)
    known = ag.everything()
    if site.relaxed:
        released = _relaxed(m, ag, known)
        arrival = RelaxedArrival(ag, site, meeting.generation, known & ~released)
        meeting.relaxed[ag.uid, meeting.generation & 1] = arrival
        known = released
    meeting.acc |= known
    if m.world.recorder is not None:
        m.world.recorder.arrived(meeting, ag, site, ag.time)
    meeting.acc_time = max(meeting.acc_time, ag.time)
    _complete_if_met(m, meeting)


def _relaxed(m: Machine, ag: Agent, published: int) -> int:
    """The knowledge of fences and arrivals that a relaxed cluster arrive publishes, of all that the
    agent would.
    """
    bits = ag.retired
    bits |= published & ag.handed_on
    bits |= flags.released(m, ag, published, Scope.CLUSTER)
    if ag.tensor is not None:
        bits |= published & ag.tensor.published
    for bar in ag.cta.bars:
        bits |= published & (bar.fenced | bar.init_bit)
    return bits


def _complete_if_met(m: Machine, meeting: Rendezvous) -> None:
    """Completes the generation if every agent has arrived."""
    if meeting.arrived and not meeting.missing():
        _complete(m, meeting)


def returned(m: Machine, ag: Agent) -> None:
    """An agent's body has ended: barriers that wait for every agent no longer wait for it."""
    ag.done = True
    for meeting in (m.cluster, m.setup, m.setup_of[ag.cta.rank]):
        _complete_if_met(m, meeting)
    for named in ag.cta.named:
        if named.whole and named.arrived:
            named.threads -= 32
            if named.missing == 0:
                _complete_named(m, named)


def setup_barrier(m: Machine, ag: Agent, site: Site, mask: int) -> Blocked | None:
    """The end of set-up: a fence.mbarrier_init, then a barrier of all threads of the CTA, or of the
    cluster.
    """
    meeting = m.setup if len(m.ctas) > 1 else m.setup_of[ag.cta.rank]
    if not ag.blocked:
        _fence_init(m, ag, mask)
        ag.ticket = meeting.generation
        _arrive(m, meeting, ag, site)
        if meeting.generation == ag.ticket:
            meeting.waiters.append(ag)
            ag.waits = meeting, ag.ticket
            return BLOCKED
    _pass(m, ag, site, ag.full, meeting, ag.ticket)
    return None


def _fence_init(m: Machine, ag: Agent, mask: int) -> None:
    """The threads of `mask` publish the initialisations that they made themselves (PTX ISA,
    membar/fence: .mbarrier_init). In a cluster of one CTA only those made in roles matter.
    """
    for bar in m.initialised_in_roles if len(m.ctas) == 1 else ag.cta.bars:
        if bar.state == LIVE and bar.init_bit and _made(bar, ag, mask):
            bar.fenced = bar.fenced or m.order.new_bit()
            ag.acquire(mask, bar.fenced)


def _made(bar: Mbarrier, ag: Agent, mask: int) -> bool:
    """True if the thread that initialised a barrier is one of these."""
    uid, lanes = bar.initialiser
    return uid == ag.uid and lanes & ~mask == 0


def fence_barrier_init(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """fence.mbarrier_init: with a cluster barrier after it, initialisations reach the peers."""
    _fence_init(m, ag, mask)


def cluster_arrive(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """barrier.cluster.arrive.release, or .relaxed."""
    ag.cluster_ticket = m.cluster.generation
    _arrive(m, m.cluster, ag, site)


def cluster_wait(m: Machine, ag: Agent, site: Site, mask: int) -> Blocked | None:
    """barrier.cluster.wait.acquire."""
    if ag.cluster_ticket < 0:
        raise BarrierError(
            f"{site.what}: {ag} waits for the cluster barrier without having arrived at it",
            site.loc,
        )
    if m.cluster.generation == ag.cluster_ticket:
        m.cluster.waiters.append(ag)
        ag.waits = m.cluster, ag.cluster_ticket
        return BLOCKED
    _pass(m, ag, site, ag.full, m.cluster, ag.cluster_ticket)
    ag.cluster_ticket = -1
    return None


def fence(
    m: Machine, ag: Agent, site: Site, mask: int, scope: Scope = Scope.CLUSTER,
    acquires: bool = True, releases: bool = True, restricted: bool = False,
) -> None:  # fmt: skip
    """fence.acq_rel, fence.sc and membar: strong reads before it acquire, and strong writes after
    it publish what its threads know; so do relaxed arrives, of the cluster or more.
    """
    flags.fence(
        m, ag, mask, scope, acquires=acquires, releases=releases, restricted=restricted
    )  # fmt: skip


def syncwarp(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """__syncwarp: the lanes of the mask know what each of them knew."""
    ag.converge(mask)


def launch_dependents(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """griddepcontrol.launch_dependents: has no effect, since no kernel follows."""


def fence_proxy_async(m: Machine, ag: Agent, site: Site, mask: int, space: str) -> None:
    """fence.proxy.async: orders accesses to the memory that its printed form names, and no
    others.
    """
    covers = covered(space, ag.cta.rank)
    ag.fence(mask, m.order.fenceable, covers)
    if m.world.program.hands_on:
        for access in m.order.fenceable:
            if not isinstance(access, Access) or access.after is None:
                # the PTX ISA has its example of a response alone, and `MbarArrive` promises no more
                continue
            if access.agent is ag and access.mask & ~mask == 0 and covers(access):
                ag.handed_on |= access.bit | access.fenced | access.release_bit | access.after
    for bar in m.initialised_in_roles:
        if space != "global" and bar.cta is ag.cta and _made(bar, ag, mask):
            bar.proxy_bit = bar.proxy_bit or m.order.new_bit()
            ag.acquire(mask, bar.proxy_bit)


def covered(space: str, rank: int) -> Callable[[Fenceable], bool]:
    """Which accesses a fence.proxy.async by a thread of CTA `rank` orders. `space`: as in
    `ir.ops.PROXY_SPACES`.
    """
    match space:
        case "shared":
            return lambda access: access.home == rank
        case "cluster":
            return lambda access: access.home != GLOBAL
        case "global":
            return lambda access: access.home == GLOBAL
    return lambda access: True
