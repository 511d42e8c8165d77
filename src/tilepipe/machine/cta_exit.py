"""The exit of a CTA: no access to its shared memory may still be under way.

An exit ends the lifetime of the CTA's shared memory, so every access to that memory must happen
before it. What happens before the exit is what the CTA's own agents know when they return: one of
them must have waited for every arrival, copy and asynchronous read.
"""

from __future__ import annotations

from tilepipe.errors import ExitError
from tilepipe.ir.facts import Group, Unit
from tilepipe.machine.actors import Actor
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.cta import Cta
from tilepipe.machine.faults import root_causes as causes, tensor_memory as tensor_faults
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.rules import COMMIT_AT_EXIT, LOAD_AT_EXIT, STORE_AT_EXIT
from tilepipe.machine.sites import Site


def check_exit(m: Machine) -> None:
    """Checks every CTA of a cluster whose agents have all returned.

    Raises:
        ExitError: a peer's arrive or copy, or one of the CTA's own asynchronous accesses, is not
            known to be over.
    """
    for cta in m.ctas:
        for allocation in cta.tmem.allocations.values() if cta.tmem is not None else ():
            if not allocation.claimed:
                raise ExitError(
                    tensor_faults.never_claimed(allocation, _name(cta)), allocation.site.loc
                )
    for cta in m.ctas:
        known = 0
        for agent in cta.agents:
            known |= agent.everything()
        _check_arrivals(m, cta, known)
        _check_credits(cta, known)
        for slot in cta.slots:
            for access in slot.accesses:
                outside = access.asynchronous or access.agent.cta is not cta
                if outside and not access.bit & known:
                    if m.world.program.addressed and _is_committed_store(m, access):
                        _advise_wait(m, cta, slot, access)
                        continue
                    if m.world.program.addressed and _is_own_load(cta, access):
                        _advise_wait_for_load(m, cta, slot, access)
                        continue
                    raise ExitError(_message(m, cta, slot, access), access.site.loc)
        if cta.tmem is not None:
            for allocation in cta.tmem.allocations.values():
                raise ExitError(
                    tensor_faults.leak(cta.tmem, allocation, _name(cta)), allocation.site.loc
                )


def _check_arrivals(m: Machine, cta: Cta, known: int) -> None:
    for (_, flat), (bit, agent, site) in cta.arrivals.items():
        if bit & known:
            continue
        bar = cta.bars[flat]
        own = agent.cta is cta and site.facts.commits is Group.TCGEN05
        if own and m.world.program.addressed:
            _advise_wait_for_commit(m, cta, bar, agent, site)
            continue
        raise ExitError(
            f"CTA {cta.block_id} (rank {cta.rank} in its cluster) exits while {agent} can still"
            f" arrive on {bar.name} of this CTA: {site.what}.\n"
            f"  No {cta.words['warp']} of CTA {cta.block_id} waits for that arrival before it"
            " returns, so it may write to shared memory that has been released.\n"
            f"  {causes.ran_ahead(m.ctas, m.world.program.sites) or _wait_for_it(m, bar)}",
            site.loc,
        )


def _advise_wait_for_commit(m: Machine, cta: Cta, bar: Mbarrier, agent: Actor, site: Site) -> None:
    """Kernels of PTX end so in practice; of traced programs the wait is asked for under both rule
    sets.
    """
    if not m.world.advised(COMMIT_AT_EXIT, site, site):
        m.world.finding(
            COMMIT_AT_EXIT,
            f"{_name(cta)} exits while {site.what} of {agent}, at {site.loc.short}, can still"
            f" arrive on {bar.name}",
            site.loc,
            _wait_for_it(m, bar).rstrip("."),
            ExitError,
        )


def _wait_for_it(m: Machine, bar: Mbarrier) -> str:
    """The advice by which a CTA outlives the arrivals on one of its barriers."""
    drain = bar.cta.words.get("draining a ring")
    if drain is not None and bar.side is not None and bar.side.ring:
        return drain
    if bar.pending == bar.count:
        return (
            f"Let a {bar.cta.words['warp']} of this CTA wait for phase {bar.phase - 1} of"
            f" {bar.name}, the last that completes, before it ends."
        )
    return (
        f"Let a {bar.cta.words['warp']} of this CTA wait for phase {bar.phase} of {bar.name} before"
        f" it ends; that phase has {bar.count - bar.pending} of {bar.count} arrivals: leave this"
        " one out, or bring the others too."
    )


def _check_credits(cta: Cta, known: int) -> None:
    """Copies into the other CTA of a pair credit their bytes to a barrier of this one."""
    for bar in cta.bars:
        for unit in (*bar.last_copies, *bar.copies):
            if (
                unit.slot.cta is not cta
                and unit.write in unit.slot.accesses
                and not unit.write.bit & known
            ):
                raise ExitError(
                    f"CTA {cta.block_id} exits while a copy of {unit.agent} can still credit its"
                    f" bytes to its {bar.name}: {unit.site.what}, and no {cta.words['warp']} of it"
                    " has waited for the phase they complete.\n"
                    "  Wait for it, or do not issue the copy.",
                    unit.site.loc,
                )


def _name(cta: Cta) -> str:
    return f"CTA {cta.block_id}" if cta.grid > 1 else "the CTA"


def _is_committed_store(m: Machine, access: Access) -> bool:
    facts = access.site.facts
    return (facts.issues or facts.unit) is Group.BULK and not _is_uncommitted(m, access)


def _advise_wait(m: Machine, cta: Cta, slot: Slot, access: Access) -> None:
    """Hardware keeps the memory of a CTA that has exited until its bulk stores have read it, and
    DeepGEMM relies on that. Of traced programs the wait is asked for under both rule sets.
    """
    if not m.world.advised(STORE_AT_EXIT, access.site, access.site):
        memory = slot.object_of(access)
        m.world.finding(
            STORE_AT_EXIT,
            f"{_name(cta)} exits while a bulk store may still read {memory}:"
            f" {access.site.what}, issued by {access.agent} at {access.site.loc.short}, has not"
            " been waited for",
            access.site.loc,
            f"Call {cta.words['cp.async.bulk.wait_group 0']} in the thread that issued it, before"
            " it ends.",
            ExitError,
        )


def _is_own_load(cta: Cta, access: Access) -> bool:
    facts = access.site.facts
    own = access.agent.cta is cta and access.asynchronous and access.is_write
    return own and (facts.issues or facts.unit) is Unit.TMA


def _advise_wait_for_load(m: Machine, cta: Cta, slot: Slot, access: Access) -> None:
    """Hardware keeps the memory of a CTA that has exited until its own loads have landed. Of traced
    programs the wait is asked for under both rule sets, and so is that for a peer's multicast.
    """
    if not m.world.advised(LOAD_AT_EXIT, access.site, access.site):
        memory = slot.object_of(access)
        m.world.finding(
            LOAD_AT_EXIT,
            f"{_name(cta)} exits while a copy into {memory} can still land: {access.site.what},"
            f" issued by {access.agent} at {access.site.loc.short}, and no {cta.words['warp']} has"
            " waited for the phase that it completes",
            access.site.loc,
            "Wait for it, or do not issue it",
            ExitError,
        )


def _is_uncommitted(m: Machine, access: Access) -> bool:
    """True if the access is a TMA store's read, and no commit has closed the store's group."""
    queues = m.agents[access.agent.uid].stores.values()
    return any(unit.read is access for queue in queues for unit in queue.open)


def _message(m: Machine, cta: Cta, slot: Slot, access: Access) -> str:
    name, memory = _name(cta), slot.object_of(access)
    what = f"{access.site.what}, issued by {access.agent},"
    facts, words = access.site.facts, cta.words
    warp = words["warp"]
    match facts.issues or facts.unit:
        case Unit.TMA:
            return (
                f"{name} exits while a copy into {memory} can still land: {what} and no"
                f" {warp} has waited for the phase it completes.\n"
                "  Wait for it, or do not issue it."
            )
        case Unit.LAUNCH_CONTROL:
            return (
                f"{name} exits while a response can still arrive in {memory}: {what} and no"
                f" {warp} of it has waited for the phase it completes.\n"
                "  Every CTA of the cluster must read every response, the one that says no"
                " included."
            )
        case Group.BULK:
            if _is_uncommitted(m, access):
                return (
                    f"{name} exits while a TMA store may still read {memory}: {what} was never"
                    " committed, so no wait covers it.\n"
                    f"  Call {words['cp.async.bulk.commit_group']} after it, and then"
                    f" {words['cp.async.bulk.wait_group 0']}, in the thread that issued it before"
                    f" the {warp} ends."
                )
            return (
                f"{name} exits while a TMA store may still read {memory}: {what} has not been"
                " waited for.\n"
                f"  Call {words['cp.async.bulk.wait_group 0']} in the thread that issued it before"
                f" the {warp} ends."
            )
        case Group.TCGEN05:
            return tensor_faults.over_at_exit(m, access, name, memory)
        case Group.TMEM_LOADS | Group.TMEM_STORES:
            wait = words["tcgen05.wait::st" if access.is_write else "tcgen05.wait::ld"]
            return (
                f"{name} exits while a warp may still use {memory}: {what} was never waited for."
                f" Call {wait} before the {warp} ends."
            )
        case Group.WGMMA:
            return (
                f"{name} exits while the tensor cores may still read {memory}: {what} was never"
                " waited for.\n"
                f"  Commit it and call {words['wgmma.wait_group 0']} before the {warp} ends."
            )
    return (
        f"{name} exits while {access.agent} can still access its {memory}: {access.site.what}.\n"
        "  Order a peer's access before the exit: let both CTAs pass a cluster barrier before the"
        f" {warp}s end.{words.get('a relaxed arrive', '')}"
    )
