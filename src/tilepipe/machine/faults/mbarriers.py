"""The messages of faults at an mbarrier."""

from __future__ import annotations

from typing import NoReturn

from tilepipe.errors import BarrierError
from tilepipe.ir.facts import Sync
from tilepipe.machine import rules
from tilepipe.machine.actors import Actor
from tilepipe.machine.barriers.state import (
    INVALIDATED,
    LIVE,
    Mbarrier,
    MbarrierArrival,
    TmaLoadUnit,
)
from tilepipe.machine.cta import Cta
from tilepipe.machine.faults import counts, root_causes as causes, view, waits
from tilepipe.machine.machine import Machine
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import warps_of


def _arrivals(arrivals: list[MbarrierArrival]) -> str:
    return "\n".join(
        f"    {n} by {a}, {site.what}, at {site.loc.short}" for a, site, n, _ in arrivals
    )


def _announce(m: Machine, bar: Mbarrier, excess: str) -> str:
    """The advice where bytes of a phase were not announced: all of them, or `excess`."""
    expect = bar.cta.words["mbarrier.arrive.expect_tx"]
    if stray := _of_another_stage(m, bar):
        return stray
    if bar.expected:
        return f"  {excess}. Raise the number given to {expect} to what the copies bring."
    return (
        f"  No {expect} was called on {bar.name} in this phase, so its arrivals complete it"
        " without the copies."
        f" Call {expect}(n) (it is an arrival, and announces the bytes) in place of the"
        " arrive, before the copies."
    )


def _of_another_stage(m: Machine, bar: Mbarrier) -> str:
    """A copy into a tile of another stage than that of the barrier, where an array of mbarriers has
    one for each tile; "" where there is none.
    """
    stages = sum(other.array == bar.array for other in m.ctas[bar.cta.rank].bars)
    for unit in bar.copies:
        slot = unit.slot
        if 1 < stages == slot.buffer.count and slot.index != bar.index:
            return (
                f"  {unit.site.what}, at {unit.site.loc.short}, fills {slot.name} and signals"
                f" {bar.name}, the barrier of another stage: give it the one of the stage that it"
                " fills."
            )
    return ""


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
        _meant(m, bar)
        or _all_arrive(bar, n, mask)
        or waits.repeated(m, ag)
        or causes.completed_by_bytes(m, [bar])
        or _low(m, bar, " Or one side arrives twice, without having waited for the phase before.")
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


def _low(m: Machine, bar: Mbarrier, otherwise: str) -> str:
    """That a barrier, or else another of the cluster, counts too few arrivals; `otherwise`: what
    it may be else.
    """
    bars = [bar, *(other for cta in m.ctas for other in cta.bars if other is not bar)]
    low = counts.too_low(m, bars)
    return f"{low}{otherwise}" if low else ""


def _meant(m: Machine, bar: Mbarrier) -> str:
    """The barrier that was probably meant: another one of the CTA, for which some op waits, and
    which no op of the program brings anything.
    """
    waits_on: dict[str, Site] = {}
    for site in m.world.program.sites:
        if Sync.WAIT in site.sync and site.barrier not in ("", bar.array):
            waits_on.setdefault(site.barrier, site)
    for other in () if m.world.program.addressed else m.ctas[bar.cta.rank].bars:
        wait = waits_on.get(other.array)
        if wait is not None and other.state == LIVE and not view.sources(m, other):
            return (
                f"No op of the kernel arrives on {other.array}, on which {bar.cta.words['warp']}"
                f" '{wait.role}' waits ({wait.loc.short}): is that the barrier which was meant?"
            )
    return ""


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


def too_many_bytes(m: Machine, bar: Mbarrier, site: Site) -> NoReturn:
    """The bytes of a phase exceed what was expected, and nothing is pending that could expect
    more.
    """
    raise BarrierError(
        f"{bar.where}, phase {bar.phase}: more bytes arrive than were expected, and no arrival is"
        " pending:"
        f" {_bytes(bar)}\n" + _announce(m, bar, f"The copies bring {-bar.tx:,} too many"),
        site.loc,
    )


def completes_early(m: Machine, bar: Mbarrier, site: Site) -> NoReturn:
    """A phase completes before its copies have landed: too few bytes were expected."""
    raise BarrierError(
        f"{bar.where}: phase {bar.phase} completes while {bar.inflight:,} bytes of its copies are"
        " still to come:"
        f" {_bytes(bar)}\n"
        "  Whoever waits for this phase reads the tile before the data are there.\n"
        + _announce(m, bar, "Too few were expected"),
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


def lapped(m: Machine, bar: Mbarrier, site: Site, ag: Actor, phase: int, lanes: int) -> NoReturn:
    """The barrier has completed a later phase than the one that threads of an agent wait for."""
    if site.parity:
        phase = waits.phase_meant(ag, bar, phase)
    frees = bar.side is not None and not bar.side.fills
    seen = f"after it has seen phase {phase}" if phase >= 0 else "once it has begun"
    ahead = (
        f"he arriving {ag.cta.words['warp']} ran ahead: it must wait on"
        f" {'a' if frees else 'an (empty)'} barrier that {ag} arrives on {seen}."
    )
    unknown = f"T{ahead} Or the count of {bar.count} is too low, and this was an over-arrival."
    if m.world.program.addressed:
        unknown += f" Or the parity given here, which is that of {waits.named(phase)}, is wrong."
    arrived = [arrival.agent for arrival in bar.last_arrivals]
    remedy = (
        waits.again(ag, bar, phase, lanes)
        or next(filter(None, (waits.repeated(m, by, ag) for by in arrived)), "")
        or (waits.both_first(m, ag, bar, site, arrived) if phase < 0 else "")
        or causes.out_of_turn([m.ctas[bar.cta.rank]])
        or causes.completed_by_bytes(m, m.ctas[bar.cta.rank].bars)
        or _low(m, bar, f" Or t{ahead}")
        or causes.ran_ahead([m.ctas[bar.cta.rank]])
        or causes.ran_ahead(m.ctas)
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
    """The completion of the last phase where copies signal the barrier as well: bytes, or an
    arrival.
    """
    if not bar.last_copies or bar.completed_by is None:
        return ""
    verb = "the bytes of" if bar.completed_by.fills else "the arrival of"
    return f" {verb} {bar.completed_by.what} ({bar.completed_by.loc.short}), after"


def _before_the_first(phase: int) -> str:
    return " (the one before the first, over from the start)" if phase < 0 else ""


def _ring_cause(m: Machine, bar: Mbarrier) -> str:
    """The cause that a ring's stages show, as a line of its own."""
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
    """A copy signals a barrier that was initialised in a role, and no fence follows that.

    After an inval() a traced program needs the fence under both rule sets. Of kernels that are read
    from PTX it is the rule "mbarrier-init fence" then, too: between two loops Triton invalidates
    the barriers of the first and initialises those of the second over them, with bar.sync alone.
    """
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
    if bar.reinitialised and not m.world.program.addressed:
        raise BarrierError(f"{text}.\n  {cure}", site.loc)
    first = bar.init_site.loc if bar.init_site is not None else None
    m.world.finding(rules.INIT_FENCE, text, site.loc, cure, BarrierError, first=first)


def lands_on_dead(bar: Mbarrier, unit: TmaLoadUnit) -> NoReturn:
    """A copy lands on a barrier that is not live any more."""
    raise BarrierError(
        f"{unit.site.what}: its bytes arrive on {bar.where} after it was invalidated", unit.site.loc
    )


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
        there = cta.names.exactly(bar.address)
        return f" No mbarrier can be at {there}: its address is a multiple of 8."
    live = [other.address for other in cta.bars if other.state == LIVE]
    there = ", ".join(map(cta.names.exactly, live)) or "nowhere"
    return f" Initialised mbarriers are at: {there}."
