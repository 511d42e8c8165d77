"""The messages of races on global memory."""

from __future__ import annotations

from typing import NoReturn

from tilepipe.errors import RaceError
from tilepipe.ir.facts import Group
from tilepipe.machine.faults import counts, flags, groups, handed_on
from tilepipe.machine.faults.races import of_accesses
from tilepipe.machine.happens_before.events import Event, GlobalOrder
from tilepipe.machine.machine import Machine


def race(m: Machine, order: GlobalOrder, old: Event | None, verb: str, new: Event) -> NoReturn:
    """Two accesses to an element of global memory that nothing orders; `old`: None of several."""
    ag, site, tensor = new.agent, new.site, order.name
    if old is None:
        raise RaceError(
            f"race on tensor '{tensor}': elements that {ag} touches with {site.what} were"
            f" {verb} by several CTAs",
            site.loc,
        )
    remedy = (
        _scopes(m, old, new)
        or _weak(m, tensor, old, new)
        or flags.unordered(m, old)
        or (flags.withheld(m, old, ag) if old.cluster == m.cluster_id else "")
        or handed_on.why(m, order, old, new)
        or (counts.unordered(m, old.agent, ag) if old.cluster == m.cluster_id else "")
        or _global_remedy(m, old, new)
    )
    raise of_accesses(
        old,
        ag,
        site,
        f"race on tensor '{tensor}': nothing orders the second access to common elements after"
        " the first.\n"
        f"  first:  {old.who} {'writes' if old.is_write else 'reads'}: {old.site.what}\n"
        f"          at {old.site.loc}\n"
        f"  second: {ag} {'writes' if site.writes else 'reads'}: {site.what}\n"
        f"          at {site.loc}\n"
        f"  {remedy}",
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


def _weak(m: Machine, tensor: str, old: Event, new: Event) -> str:
    """Which of two accesses to a flag is an ordinary one; "" where both are, or none, or neither of
    the two can be at fault for that.
    """
    weak, strong = (old, new) if new.is_strong else (new, old)
    if weak.is_strong or not strong.is_strong or weak.box is not None or strong.box is not None:
        return ""
    if weak.is_write and strong.site.writes and strong.is_write:
        return ""  # which value stays would still depend on the order
    near = flags.scope_of((old.cluster, old.agent.cta.rank), (m.cluster_id, new.agent.cta.rank))
    order = "release" if weak.is_write else "acquire"
    return (
        f"'{tensor}' is also accessed by {strong.site.what}, at {strong.site.loc.short}, and"
        f" the {'store' if weak.is_write else 'load'} at {weak.site.loc.short} is an ordinary one:"
        f" write {flags.written_as(m, weak.site, order, near)} there."
    )


def _uncommitted(event: Event) -> str:
    """That a store is in no committed group, if it is in none."""
    if not groups.is_open(event.agent, event):
        return ""
    commit = event.agent.cta.words["cp.async.bulk.commit_group"]
    return f" It is in no committed group: commit it first ({commit})."


def _by_all(old: Event, new: Event) -> bool:
    """True if two accesses are one store, by which all lanes of a warp write one element."""
    common = new.points.keys() & old.points.keys()
    return (
        old.site is new.site
        and new.is_write
        and any(new.points[at].bit_count() > 1 for at in common)
    )


def _global_remedy(m: Machine, event: Event, new: Event) -> str:
    """The advice to order an access after one to the same element of global memory."""
    ag = new.agent
    program = m.world.program
    store = event.site.facts.issues is Group.BULK
    waited = groups.pending_write(event.agent, event) if store else ""
    wait = event.agent.cta.words["cp.async.bulk.wait_group 0"]
    if event.cluster != m.cluster_id and (m.world.order is not None or program.addressed):
        if store and groups.under_way(event.agent, event):
            return (
                f"{waited}The store is over when the thread that issued it has waited for it"
                f" ({wait}); then a thread that knows of that must release a flag, and {ag} must"
                f" acquire that flag before its own access.{_uncommitted(event)}"
            )
        return (
            f"After it, a thread that knows of the first access must release a flag, and {ag} must"
            f" acquire that flag before its own access; then {event.who} comes first."
        )
    if event.cluster != m.cluster_id:
        if cause := handed_on.relaxed_ticket(m, event, ag):
            return cause
        return (
            "Nothing in this kernel orders CTAs of different clusters: let each write, and read,"
            f" elements of its own{ag.cta.words.get('or by a flag', '')}."
        )
    if store:
        reads = "" if waited else " A wait for its reads alone does not say that it has written."
        return (
            f"{waited}The store is over when the thread that issued it has waited for it ({wait});"
            f" then {ag} must learn of it.{reads}{_uncommitted(event)}"
        )
    if event.site.fills and not event.is_write:
        return (
            "The copy may read this until the phase of the barrier that it signals is complete:"
            f" {ag} must wait for that phase before its access."
        )
    if event.agent_uid == ag.uid:
        if _by_all(event, new):
            return handed_on.one_of_all(ag)
        meeting = handed_on.meeting(ag)
        return (
            f"Other threads of the same {ag.cta.words['warp']}: they must meet between the two"
            f" accesses, for instance at {meeting}."
        )
    return (
        f"After the first access, {event.who} must arrive on a barrier that {ag} waits on"
        " before its access."
    )
