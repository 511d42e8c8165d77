"""The messages of faults: what happened, which accesses or arrivals took part, the arithmetic, and
what to change.
"""

from __future__ import annotations

from typing import NoReturn

from tilepipe.errors import BarrierError, PoisonError, RaceError
from tilepipe.ir.facts import Group, Sync, Unit
from tilepipe.ir.location import Loc
from tilepipe.machine import rules
from tilepipe.machine.actors import Actor
from tilepipe.machine.barriers.state import INVALIDATED, LIVE, Mbarrier, NamedState, TmaLoadUnit
from tilepipe.machine.cta import Cta
from tilepipe.machine.faults import (
    flags,
    root_causes as causes,
    tensor_memory as tensor_faults,
)
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.poison import Origin
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import ByteSpace, Slot
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import warps_of

# -- races -----------------------------------------------------------------------------


def line(slot: Slot, a: Access) -> str:
    """One of two conflicting accesses."""
    verb = "writes" if a.is_write else "reads"
    proxy = (
        "asynchronous"
        if isinstance(slot, TensorMemory)
        else "async proxy"
        if a.by_proxy
        else "generic proxy"
    )
    return (
        f"{a.agent} {verb} {slot.extent(a)} ({proxy}): {_resolved(slot, a)}\n          at"
        f" {a.site.loc}"
    )


def _resolved(slot: Slot, a: Access) -> str:
    """The op of an access, with its tile's place in numbers."""
    rect = a.rect if a.points is None else None
    return a.site.located(slot.buffer.name, slot.index, rect)


def _late_expect(m: Machine, access: Access, reader: Actor) -> str | None:
    """The advice for a copy whose bytes were announced after the arrive that completed the phase
    they were meant for.
    """
    for bar in (bar for cta in m.ctas for bar in cta.bars):
        if (
            any(u.write is access for u in bar.copies)
            and bar.expected
            and not bar.arrivals
            and bar.last_arrivals
            and not bar.last_copies
        ):
            agent, site, _ = bar.last_arrivals[-1]
            only = bar.cta.words["mbarrier.expect_tx"]
            return (
                f"The arrive by {agent} at {site.loc.short} completed phase {bar.phase - 1} of"
                f" {bar.where} before"
                f" {only}: the bytes count for phase {bar.phase}, which {reader} has"
                " not waited for."
                f" Call {bar.cta.words['mbarrier.arrive.expect_tx']} (it announces and arrives),"
                f" or {only} before the arrive."
            )
    return None


def _remedy(m: Machine, slot: Slot, old: Access, new: Access) -> str:
    """What would order `new` after `old`."""
    words = slot.cta.words
    for copy, reader in ((old, new.agent), (new, old.agent)):
        late = _late_expect(m, copy, reader) if copy.site.fills else None
        if late is not None:
            return late
    story = (
        causes.repeated_wait(m.ctas, [old.agent, new.agent])
        or causes.out_of_turn(m.ctas)
        or causes.ran_ahead(m.ctas, m.world.program.sites)
        or causes.completed_by_bytes(m, m.ctas[slot.cta.rank].bars)
    )
    if story:
        return story
    if new.site.fills and new.agent.cta is not slot.cta:
        commit = words.get("tcgen05.commit.multicast::cluster")
        how = (
            "the barrier of every CTA that copies into them:"
            f" {commit} with the CTAs of the multicast."
            if commit is not None
            else f"a barrier of CTA {new.agent.cta.block_id} ({words['mbarrier.arrive on a peer']},"
            f" or tcgen05.commit with a mask of CTAs), and {new.agent} must wait for it."
        )
        return (
            f"The second copy is multicast into CTA {slot.cta.block_id}: {new.agent} must know"
            f" that this CTA has freed the tile as well. Its consumers must arrive on {how}"
        )
    if m.poison_at is old:
        return (
            f"When the first access ran, nothing had been written there yet: {old.agent} must"
            " wait, before reading, on a barrier that signals the data is there."
            f" {causes.only_arrives(m, old.agent) or causes.met_without(m, old.agent, new.agent)}"
        ).rstrip()
    facts = old.site.facts
    if facts.unit is Unit.LAUNCH_CONTROL:
        cta = (
            f"a role of CTA {slot.cta.block_id}"
            if old.agent.cta is not slot.cta
            else str(new.agent)
        )
        return (
            "The response may arrive until the phase of the barrier it signals is complete:"
            f" {cta} must wait for that phase, and hand the"
            f" response back to {old.agent} before it asks again."
        )
    if old.site.fills:
        freed = causes.refilled(m.ctas, old) if new.site.fills else ""
        return freed or (
            "The copy is in flight until the phase of the barrier it signals is complete:"
            f" {new.agent} must wait for that phase first."
        )
    if facts.issues is Group.WGMMA:
        loose = any(u.site is old.site for u in m.agents[old.agent.uid].wgmma_open)
        commit = (
            f" It is in no committed group: commit it first ({words['wgmma.commit_group']})."
            if loose
            else ""
        )
        return (
            f"A wgmma reads its tiles until its group has been waited for"
            f" ({words['wgmma.wait_group']}): {new.agent} may touch the tile only after that, by"
            " way of a barrier it"
            f" waits on.{commit}"
        )
    if facts.issues is Group.BULK:
        return _store_reads(m, old, new)
    if facts.issues is not None:
        return tensor_faults.remedy(m, old, new)
    if old.asynchronous and not old.by_proxy:
        return (
            "The copy is in flight until the thread that issued it has waited for its group"
            f" (cp.async.wait_group), and it has not: a wait that leaves fewer groups pending, and"
            f" then a barrier that {new.agent} waits on, must come before the second access."
        )
    verb = "write" if old.is_write else "read"
    lanes = (
        " An arrive or a copy by one elected lane speaks only for that lane until its warp has"
        f" converged ({words['bar.warp.sync']}), and never for other warps (a named barrier)."
    )
    several = old.mask.bit_count() > 1
    if old.agent is new.agent:
        elected = lanes if not several or new.mask.bit_count() == 1 else ""
        return (
            f"Between the {verb} and the second access, the threads that make them must"
            f" meet: put {_meeting(old, new)} between the two.{elected}"
        )
    arrive = (
        f"After the {verb}, {old.agent} must arrive on a barrier that {new.agent} waits on"
        " before its access."
    )
    cause = causes.only_arrives(m, new.agent) or causes.met_elsewhere(m, old.agent, new.agent)
    return f"{arrive + lanes if several else arrive} {cause}".rstrip()


def _meeting(old: Access, new: Access) -> str:
    """Where the threads of one agent that make two accesses can meet."""
    if len(warps_of(old.mask | new.mask)) > 1:
        return "a named barrier of their warps"
    return old.agent.cta.words["bar.warp.sync"]


def _store_reads(m: Machine, store: Access, new: Access) -> str:
    """What would order `new` after a TMA store has read its tile."""
    words, queues = store.agent.cta.words, m.agents[store.agent.uid].stores.values()
    begin = (
        "The store reads the tile until the thread that issued it has waited for its group"
        f" ({words['cp.async.bulk.wait_group.read']})."
    )
    if any(unit.read is store for queue in queues for unit in queue.open):
        begin += (
            f" It is in no committed group: commit it ({words['cp.async.bulk.commit_group']})"
            " before that wait."
        )
    if store.agent is new.agent:
        return f"{begin} Between that wait and the second access put {_meeting(store, new)}."
    return (
        f"{begin} After that wait, {store.agent} must arrive on a barrier that {new.agent} waits on"
        " before its access."
    )


def race(m: Machine, slot: Slot, old: Access, new: Access, first: Slot | None = None) -> NoReturn:
    """Two accesses to common bytes that nothing orders; `first`: the slot of the earlier, where
    that was through another view.
    """
    other = f" and {first.name}, which share their bytes," if first is not None else ""
    cta = f" of CTA {slot.cta.block_id}" if slot.cta.grid > 1 else ""
    raise RaceError(
        f"race on {slot.name}{other}{cta}: nothing orders the second access after the first.\n"
        f"  first:  {line(first or slot, old)}\n"
        f"  second: {line(slot, new)}\n"
        f"  {flags.unordered(m, old) or _remedy(m, slot, old, new)}",
        new.site.loc,
    )


def proxy_race(
    place: str, old: Access | Event, lines: tuple[str, str], site: Site, fence: str, reach: str
) -> NoReturn:
    """An ordinary access, `old`, and an asynchronous one at `site`, with no proxy fence between
    them.

    Args:
        place: what both touch. lines: both accesses. fence: the instruction that orders them.
        reach: why another form of it does not, or "".
    """
    verb, doing = ("write", "writing") if old.is_write else ("read", "reading")
    raise RaceError(
        f"race between proxies on {place}: the accesses are ordered, but no"
        " fence.proxy.async of that memory stands between.\n"
        f"  first:  {lines[0]}\n"
        f"  second: {lines[1]}\n"
        f"  Every {doing} thread must execute {fence} after the {verb}: before it arrives, or, if"
        f" it issues the async access itself, before that access.{reach}",
        site.loc,
    )


def fenced_by_reader(
    m: Machine, place: str, old: Access | Event, who: str, site: Site, fence: str
) -> None:
    """The proxy fence between `old`, by `who`, and the access at `site` is on the reader's side."""
    verb = "write" if old.is_write else "read"
    m.world.finding(
        rules.READER_FENCE,
        f"between the {verb} of {place} at {old.site.loc.short} ({who}) and {site.what} at"
        f" {site.loc.short} the proxy fence stands on the reader's side",
        site.loc,
        f"Put {fence} in every {'writing' if old.is_write else 'reading'} thread, before its"
        " arrive.",
    )


def ordered_by_commit_alone(
    m: Machine, place: str, old: Access | Event, first: str, second: str, site: Site
) -> None:
    """An ordinary access that others know of by way of a tcgen05.commit alone."""
    if m.world.advised(rules.COMMIT_RELEASE, old.site, site):
        return
    verb, kind = ("write", "stores") if old.is_write else ("read", "loads")
    m.world.finding(rules.COMMIT_RELEASE,
        f"only a tcgen05.commit orders {site.what} at {site.loc.short} ({second}) after the"
        f" ordinary {verb} of {place} by {first} at"
        f" {old.site.loc.short}; a commit waits for MMAs and copies, not for {kind}", site.loc,
        f"Let {first} also arrive on a barrier after that access, and {second} wait for it.",
    )  # fmt: skip


def global_race(m: Machine, tensor: str, old: Event | None, verb: str, new: Event) -> NoReturn:
    """Two accesses to an element of global memory that nothing orders; `old`: None of several."""
    ag, site = new.agent, new.site
    if old is None:
        raise RaceError(
            f"race on tensor '{tensor}': elements that {ag} touches with {site.what} were"
            f" {verb} by several CTAs",
            site.loc,
        )
    remedy = _scopes(m, old, new) or flags.unordered(m, old) or _global_remedy(m, old, ag)
    raise RaceError(
        f"race on tensor '{tensor}': nothing orders the second access to common elements after"
        " the first.\n"
        f"  first:  {old.who} {'writes' if old.is_write else 'reads'}: {old.site.what}\n"
        f"          at {old.site.loc}\n"
        f"  second: {ag} {'writes' if site.writes else 'reads'}: {site.what}\n"
        f"          at {site.loc}\n"
        f"  {remedy}",
        site.loc,
    )


def _scopes(m: Machine, old: Event, new: Event) -> str:
    """Which of two strong accesses has a scope without the thread of the other; "" where that is
    not why they race.
    """
    if old.strong is None or new.strong is None:
        return ""
    first = old.cluster, old.agent.cta.rank
    second = m.cluster_id, new.agent.cta.rank
    narrow = [
        f"the {which} (.{scope.name.lower()})"
        for which, scope, here, there in (
            ("first", old.strong.scope, first, second),
            ("second", new.strong.scope, second, first),
        )
        if not scope.reaches(here, there)
    ]
    if not narrow:
        return ""
    return (
        "Two strong accesses do not race if the scope of each has the thread of the other; that of"
        f" {' and of '.join(narrow)} leaves out the other CTA. Both need scope"
        f" {'cluster' if first[0] == second[0] else 'gpu'}."
    )


def _global_remedy(m: Machine, event: Event, ag: Actor) -> str:
    """What would order an access by `ag` after one to the same element of global memory."""
    program = m.world.program
    if event.cluster != m.cluster_id and (m.world.order is not None or program.addressed):
        return (
            f"After it, a thread that knows of the first access must release a flag, and {ag} must"
            f" acquire that flag before its own access; then {event.who} comes first."
        )
    if event.cluster != m.cluster_id:
        return (
            "Within a launch nothing orders CTAs of different clusters: let each write, and"
            " read, elements of its own."
        )
    if event.site.facts.issues is Group.BULK:
        return (
            "The store is over when the thread that issued it has waited for it"
            f" ({ag.cta.words['cp.async.bulk.wait_group 0']}); then {ag} must learn of it. A wait"
            " for its reads alone does not say that it has written."
        )
    if event.site.fills and not event.is_write:
        return (
            "The copy may read this until the phase of the barrier that it signals is complete:"
            f" {ag} must wait for that phase before its access."
        )
    if event.agent_uid == ag.uid:
        return (
            "Other threads of the same role: they must meet between the two accesses, for"
            f" instance at {ag.cta.words['bar.warp.sync']}."
        )
    return (
        f"After the first access, {event.who} must arrive on a barrier that {ag} waits on"
        " before its access."
    )


def poison(m: Machine, slot: Slot, new: Access, missing: int) -> Origin:
    """A read of bytes that nothing has written, or to which what was read so has been stored; then
    where it was read first.
    """
    if m.poison_at is None:
        m.poison_at = new
    if isinstance(slot, ByteSpace) and (carried := slot.origin(slot.bytes_of(new))) is not None:
        return carried
    r0, r1, c0, c1 = new.rect
    total = (r1 - r0) * (c1 - c0) if new.points is None else len(new.points)
    remedy = (
        tensor_faults.poison(new)
        if isinstance(slot, TensorMemory)
        else "Wait for the copy or the store that fills them, or fill them first."
    )
    written = next((view.name for view in slot.views if view.state), None)
    if written is not None:
        remedy = (
            f"The slot holds what was written as {written}: one of the two sides has its place"
            " in the ring wrong."
        )
    return Origin(
        f"{new.agent} reads {slot.name} ({slot.extent(new)}) with {_resolved(slot, new)}, but"
        f" {missing} of {total}"
        f" {slot.unit} were never written. {remedy}",
        new.site,
    )


def poison_used(m: Machine, origin: Origin, loc: Loc | None = None, how: str = "") -> None:
    """Poison decides something or leaves. Reported when the run ends, unless a race explains it
    first. `loc`, `how`: where, and what happens to it there; not given where it was read.
    """
    if m.poisoned is not None:
        return
    message = origin.message
    if loc is not None:
        message += f"\n  What it has read is used at {loc.short}: {how}."
    m.poisoned = PoisonError(message, origin.site.loc)


# -- mbarriers -------------------------------------------------------------------------


def _arrivals(arrivals: list[tuple[Actor, Site, int]]) -> str:
    return "\n".join(f"    {n} by {a}, {site.what}, at {site.loc.short}" for a, site, n in arrivals)


def _announce(bar: Mbarrier, excess: str) -> str:
    """What to change where bytes of a phase were not announced: all of them, or `excess`."""
    expect = bar.cta.words["mbarrier.arrive.expect_tx"]
    if bar.expected:
        return f"  ({excess}). Raise the number given to {expect} to what the copies bring."
    return (
        f"  No {expect} was called on {bar.name} in this phase, so its arrivals complete it"
        " without the copies."
        f" Call {expect}(n) (it is an arrival, and announces the bytes) in place of the"
        " arrive, before the copies."
    )


def _bytes(bar: Mbarrier) -> str:
    landed = sum(u.nbytes for u in bar.copies if u.landed)
    rows = [
        f"    {u.nbytes:,} bytes, {'landed' if u.landed else 'still to come'}: {u.site.what}"
        f" by {u.agent}, at {u.site.loc.short}"
        for u in bar.copies
    ]
    return f"{bar.expected:,} bytes expected, {landed:,} delivered\n" + "\n".join(rows)


def not_live(m: Machine, bar: Mbarrier, site: Site, ag: Actor) -> NoReturn:
    """Use before init or after inval."""
    state = "after it was invalidated" if bar.state == INVALIDATED else "before it was initialised"
    raise BarrierError(
        f"{site.what}: {ag} uses {bar.where} {state}. Initialise it"
        f" {ag.cta.words['before every use']}."
        f"{none_there(m.ctas[bar.cta.rank], bar)}",
        site.loc,
    )


def reinit(bar: Mbarrier, site: Site) -> NoReturn:
    """A live barrier is initialised again."""
    first = f" (first at {bar.init_site.loc.short})" if bar.init_site is not None else ""
    raise BarrierError(
        f"{site.what}: {bar.where} is initialised again without having been invalidated{first}."
        " Invalidate it first,"
        " or initialise it once.",
        site.loc,
    )


def cannot_arrive(
    m: Machine, bar: Mbarrier, site: Site, ag: Actor, n: int, mask: int = 1
) -> NoReturn:
    """More arrivals than are pending, all at once by the threads of `mask`."""
    if bar.state != LIVE:
        not_live(m, bar, site, ag)
    if n < 1:
        raise BarrierError(f"{site.what}: {ag} arrives {n} times on {bar.where}", site.loc)
    open_ = f"\n  The phase is still open because of its bytes: {_bytes(bar)}" if bar.tx else ""
    arrived = f"\n{_arrivals(bar.arrivals)}" if bar.arrivals else ""
    remedy = (
        _all_arrive(bar, n, mask)
        or causes.repeated_wait(m.ctas, [ag])
        or causes.completed_by_bytes(m, [bar])
        or causes.ran_ahead(m.ctas, m.world.program.sites)
        or f"Either the count of {bar.array} is too low (it is {bar.count}), or one side arrives"
        " twice, for instance without having waited until the stage was free"
        f" again.{_ring_cause(m, bar)}"
    )
    raise BarrierError(
        f"over-arrival on {bar.where}: {ag} arrives {n} time(s), but only {bar.pending} of"
        f" {bar.count} arrivals are"
        f" pending in phase {bar.phase}.\n"
        f"  Arrived already: {bar.count - bar.pending}{arrived}{open_}\n"
        f"  On hardware this is undefined. {remedy}",
        site.loc,
    )


def _all_arrive(bar: Mbarrier, n: int, mask: int) -> str:
    """The advice where one arrive, which all active threads execute, brings more than the count."""
    threads = mask.bit_count()
    if threads == 1 or n != threads or n <= bar.count:
        return ""
    elect = "elect.sync" if len(warps_of(mask)) == 1 else "elect.sync in a warp"
    return (
        f"All {n} threads execute it: let one of them ({bar.cta.words[elect]}), or give"
        f" {bar.array} a count of {n}."
    )


def too_many_bytes(bar: Mbarrier, site: Site) -> NoReturn:
    """The bytes of a phase exceed what was expected, and nothing is pending that could expect
    more.
    """
    raise BarrierError(
        f"{bar.where}, phase {bar.phase}: more bytes arrive than were expected, and no arrival is"
        " pending:"
        f" {_bytes(bar)}\n" + _announce(bar, f"{-bar.tx:,} too many"),
        site.loc,
    )


def completes_early(bar: Mbarrier, site: Site) -> NoReturn:
    """A phase completes before its copies have landed: too few bytes were expected."""
    raise BarrierError(
        f"{bar.where}: phase {bar.phase} completes while {bar.inflight:,} bytes of its copies are"
        " still to come:"
        f" {_bytes(bar)}\n"
        "  Whoever waits for this phase reads the tile before the data are there.\n"
        + _announce(bar, "too few were expected"),
        site.loc,
    )


def tx_range(bar: Mbarrier, site: Site) -> NoReturn:
    """The pending transaction leaves its range."""
    raise BarrierError(
        f"{site.what}: the pending transaction of {bar.where} is {bar.tx:,} bytes; an mbarrier"
        " counts up to 2^20 - 1"
        f" = 1,048,575. Use {bar.cta.words['smaller copies']}.",
        site.loc,
    )


def lapped(m: Machine, bar: Mbarrier, site: Site, ag: Actor, phase: int) -> NoReturn:
    """The barrier has completed a later phase than the one waited for."""
    frees = bar.side is not None and not bar.side.fills
    seen = f"after it has seen phase {phase}" if phase >= 0 else "once it has begun"
    unknown = (
        f"The arriving role ran ahead: it must wait on {'a' if frees else 'an (empty)'} barrier"
        f" that {ag} arrives on {seen}."
    )
    unknown += f" Or the count of {bar.count} is too low, and this was an over-arrival."
    if m.world.program.addressed:
        unknown += f" Or the parity given here, which is that of phase {phase}, is wrong."
    remedy = (
        causes.repeated_wait(m.ctas, [agent for agent, _, _ in bar.last_arrivals])
        or causes.out_of_turn([m.ctas[bar.cta.rank]])
        or causes.ran_ahead([m.ctas[bar.cta.rank]])
        or causes.ran_ahead(m.ctas)
        or causes.completed_by_bytes(m, m.ctas[bar.cta.rank].bars)
        or unknown
    )
    tests = Sync.TEST in site.sync
    verb, result = (
        ("tests", "the test may say no") if tests else ("waits for", "this wait may never end")
    )
    raise BarrierError(
        f"{site.what}: {ag} {verb} phase {phase}{_before_the_first(phase)} of {bar.where}, but"
        f" phases up to {bar.phase - 1} are"
        f" complete: it was lapped. On hardware the parity bit has flipped back and {result}.\n"
        f"  Phase {bar.phase - 1} was completed"
        f" by{_last_signal(bar)}:\n{_arrivals(bar.last_arrivals)}\n"
        f"  {remedy}",
        site.loc,
    )


def _last_signal(bar: Mbarrier) -> str:
    """What completed the last phase where copies signal the barrier as well: bytes, or an
    arrival.
    """
    if not bar.last_copies or bar.completed_by is None:
        return ""
    verb = "the bytes of" if bar.completed_by.fills else "the arrival of"
    return f" {verb} {bar.completed_by.what} ({bar.completed_by.loc.short}), after"


def _before_the_first(phase: int) -> str:
    return " (the one before the first, over from the start)" if phase < 0 else ""


def _ring_cause(m: Machine, bar: Mbarrier) -> str:
    """What a ring's stages say of the cause, as a line of its own."""
    story = causes.out_of_turn([m.ctas[bar.cta.rank]])
    return f"\n  {story}" if story else ""


def ahead(m: Machine, bar: Mbarrier, site: Site, ag: Actor, phase: int) -> NoReturn:
    """The wait is for a phase after the one in progress."""
    same = f"phase {phase - 2}" if phase > 1 else "the phase before the first"
    verb, noun = ("tests", "test") if Sync.TEST in site.sync else ("waits for", "wait")
    raise BarrierError(
        f"{site.what}: {ag} {verb} phase {phase} of {bar.where}, but phase {bar.phase} is still"
        " in progress: it"
        f" skipped a phase. On hardware the parity bit of phase {phase} is that of {same}, and"
        f" this {noun}"
        f" would pass at once. Wait for each phase in turn.{_ring_cause(m, bar)}",
        site.loc,
    )


def not_visible(bar: Mbarrier, site: Site, ag: Actor) -> NoReturn:
    """A remote signal before the barrier's initialisation has reached the cluster."""
    put = bar.cta.words.get("initialising early or putting", "Put")
    raise BarrierError(
        f"{site.what}: {ag} signals {bar.where} in a peer CTA before that CTA's initialisation of"
        " it has reached the"
        f" cluster (on hardware the signal is lost and the peer hangs). {put}"
        " fence.mbarrier_init and a cluster barrier between.",
        site.loc,
    )


def check_init_fence(m: Machine, bar: Mbarrier, site: Site, ag: Actor) -> None:
    """A copy signals a barrier that was initialised in a role, and no fence follows that."""
    where = f" at {bar.init_site.loc.short}" if bar.init_site is not None else ""
    again, words = " again" if bar.reinitialised else "", bar.cta.words
    text = (
        f"{ag} gives {bar.where} to {site.what} at {site.loc.short}, which was"
        f" initialised{again}{where}, with no fence in between"
    )
    cure = (
        f"The thread that initialises it must execute {words['fence.mbarrier_init']} (or"
        f" {words['fence.proxy.async.shared::cta']}) after that and before the barrier that lets"
        f" {ag} go on: TMA may see what the memory held before."
    )
    if bar.reinitialised:
        raise BarrierError(f"{text}.\n  {cure}", site.loc)
    m.world.finding(rules.INIT_FENCE, text, site.loc, cure, BarrierError)


def lands_on_dead(bar: Mbarrier, unit: TmaLoadUnit) -> NoReturn:
    """A copy lands on a barrier that is not live any more."""
    raise BarrierError(
        f"{unit.site.what}: its bytes arrive on {bar.where} after it was invalidated", unit.site.loc
    )


# -- addresses in shared memory --------------------------------------------------------


def barrier_word(bar: Mbarrier, ag: Actor, site: Site, touched: str, is_write: bool) -> NoReturn:
    """Something other than an mbarrier operation accesses the bytes of a live mbarrier."""
    verb = "writes" if is_write else "reads"
    first = f" (initialised at {bar.init_site.loc.short})" if bar.init_site is not None else ""
    raise BarrierError(
        f"{site.what}: {ag} {verb} {touched}, which has bytes of {bar.where}{first}. Only"
        " mbarrier operations may access an mbarrier's 8 bytes (PTX ISA, mbarrier). Invalidate it"
        " first, or place it where nothing else lies.",
        site.loc,
    )


def misplaced(cta: Cta, bar: Mbarrier, ag: Actor, site: Site) -> None:
    """Raises BarrierError where an mbarrier cannot be initialised at its address."""
    if bar.address % 8:
        raise BarrierError(
            f"{site.what}: {ag} initialises {bar.where}: an mbarrier takes 8 bytes, and its"
            " address is a multiple of 8 (PTX ISA, mbarrier).",
            site.loc,
        )
    for other in cta.bars:
        if other is not bar and other.state == LIVE and abs(other.address - bar.address) < 8:
            raise BarrierError(
                f"{site.what}: {ag} initialises {bar.where}, which overlaps {other.where}.",
                site.loc,
            )


def none_there(cta: Cta, bar: Mbarrier) -> str:
    """Where a barrier that is used by its address was never initialised: what is there instead."""
    if isinstance(cta.bars, list):
        return ""
    if bar.address % 8:
        return f" No mbarrier can be at {bar.address:#x}: its address is a multiple of 8."
    live = [other.address for other in cta.bars if other.state == LIVE]
    there = ", ".join(f"{address:#x}" for address in live) or "nowhere"
    return f" Initialised mbarriers are at: {there}."


# -- named barriers --------------------------------------------------------------------


def named_again(b: NamedState, site: Site, ag: Actor, earlier: tuple[Actor, Site]) -> NoReturn:
    """A warp arrives twice at a named barrier in one generation."""
    raise BarrierError(
        f"{site.what}: {ag} arrives at named barrier '{b.name}' again before it was reset: it has"
        " arrived at"
        f" {earlier[1].loc.short}, and {b.missing} of {b.threads} threads are still missing. Sync"
        " instead of"
        " arriving, or use a second barrier.",
        site.loc,
    )


def named_total(b: NamedState, site: Site) -> NoReturn:
    """More threads arrive at a named barrier than it is for."""
    who = "; ".join(sorted({f"{a} at {s.loc.short}" for a, s in b.arrived.values()}))
    raise BarrierError(
        f"named barrier '{b.name}' is for {b.threads} threads, but {b.threads - b.missing}"
        f" arrived: {who}. Make the"
        " thread count the number of threads that really meet here.",
        site.loc,
    )
