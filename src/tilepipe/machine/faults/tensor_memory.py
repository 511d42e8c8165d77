"""The messages of the faults of tensor memory: what happened, which ops took part, the arithmetic,
and what to change.
"""

from __future__ import annotations

from tilepipe.ir.facts import Group, Unit
from tilepipe.ir.hardware.tensor_memory import COLUMNS, LANES, Matrix, Scales
from tilepipe.machine import rules
from tilepipe.machine.actors import Actor
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.tensor_memory import Allocation, Call, TensorMemory
from tilepipe.machine.sites import Site
from tilepipe.machine.wording import Wording

_FENCES = "tcgen05 ops are ordered across threads by a barrier only with both fences around it"


def _columns(first: int, count: int) -> str:
    return f"columns {first}..{first + count - 1}"


def _held(a: Allocation) -> str:
    to = f" (address in {a.variable})" if a.variable else ""
    return f"{_columns(a.column, a.columns)}{to} by {a.agent} ({a.site.loc.short})"


def holders(tm: TensorMemory) -> str:
    """The owners of the columns."""
    live = "; ".join(_held(a) for _, a in sorted(tm.allocations.items()))
    return live or "no columns are allocated"


def _who(a: Access) -> str:
    r0, r1, c0, c1 = a.rect
    verb = "writes" if a.is_write else "reads"
    return (
        f"{a.agent} {verb} lanes {r0}..{r1 - 1}, {_columns(c0, c1 - c0)}: {a.site.what}\n"
        f"          at {a.site.loc}"
    )


def _where(tm: TensorMemory) -> str:
    return f"tensor memory of CTA {tm.cta.block_id}" if tm.cta.grid > 1 else "tensor memory"


# -- addresses -------------------------------------------------------------------------


def outside(ag: Actor, site: Site, tm: TensorMemory, t: Matrix | Scales, address: int) -> str:
    """A matrix, or scale factors, that do not lie inside a live allocation."""
    lane, column = address >> 16, address & 0xFFFF
    if isinstance(t, Scales):
        held, what = f"scale factors of {t.rows} rows × {t.blocks} blocks", "scale factors"
    else:
        held, what = f"{t.cols} elements of {t.dtype}", f"{t.rows} rows"
    lanes = (0,) if t.rows == LANES or isinstance(t, Scales) else (0, 16)
    head = (
        f"{site.what}: {ag} addresses {t.rows} rows and {_columns(column, t.columns)} of tensor"
        f" memory: address {address:#x} is lane {lane}, column {column}; {held} take {t.columns}"
        " columns of 32 bits."
    )
    within = next(
        (a for a in tm.allocations.values() if a.column <= column < a.column + a.columns), None
    )
    if lane not in lanes:
        why = f"{what} start at lane {' or '.join(map(str, lanes))}, not at lane {lane}."
    elif within is not None:
        end = within.column + within.columns
        why = (
            f"The allocation holds {_held(within)}: {column} + {t.columns} = {column + t.columns}"
            f" is {column + t.columns - end} too many."
        )
    else:
        before = next(
            (f for f in tm.freed.values() if f[0].column <= column < f[0].column + f[0].columns),
            None,
        )
        why = (
            ""
            if before is None
            else f"{_held(before[0])} were freed by {before[1]} at {before[2].loc.short}. "
        )
        why += f"Allocated now: {holders(tm)}."
    return f"{head}\n  {why}\n  Use the address that the allocation wrote, plus columns inside it."


def not_allocated(ag: Actor, site: Site, tm: TensorMemory, address: int, columns: int) -> str:
    """A dealloc of what is not exactly one live allocation."""
    head = f"{site.what}: {ag} frees {columns} columns of tensor memory from address {address:#x}"
    found, freed = tm.allocations.get(address), tm.freed.get(address)
    if found is not None and found.columns != columns:
        return (
            f"{head}, but the allocation there has {found.columns}: {_held(found)}. Free all of it,"
            " once, with the number it was allocated with."
        )
    if found is not None:
        return (
            f"{head}, which the even CTA of the pair has allocated, but whose address no alloc of"
            " this CTA has given yet."
        )
    if freed is not None:
        by, where = freed[1], freed[2]
        return (
            f"{head} a second time: {by} freed them at {where.loc.short}. Free an allocation once,"
            " by one warp."
        )
    return (
        f"{head}, where no allocation starts: {holders(tm)}. Free the address that the allocation"
        " wrote."
    )


def unequal_pair(one: Call, given: Allocation) -> str:
    """The two allocs of a pair disagree."""
    return (
        f"{one.site.what}: the even CTA of a pair allocates tensor memory for both, but {one.agent}"
        f" asks for {one.columns} columns and {given.agent} has allocated {given.columns}"
        f" ({given.site.loc.short}). Give the same number in both."
    )


def freed_before_the_peer(ag: Actor, site: Site, found: Allocation, peer: TensorMemory) -> str:
    """The leader of a pair frees columns while the alloc of the odd CTA may still be under way."""
    twin = found.twin
    made = twin is not None and twin.claimed
    whose = f"CTA {peer.cta.block_id}, which has not come to it yet,"
    if twin is not None and made:
        whose = f"{twin.agent} ({twin.site.loc.short})"
    return (
        f"{site.what}: {ag} frees {_columns(found.column, found.columns)}, but nothing says that"
        f" the alloc of {whose} is through: nothing orders the one after the other.\n"
        "  With cta_group=2 the even CTA allocates for both and does not wait for the odd one, and"
        " a dealloc waits for no CTA; freed before the odd CTA's alloc has returned, the launch"
        " fails (NVIDIA/cutlass issue 3435).\n"
        f"  After its alloc, CTA {peer.cta.block_id} must arrive on a barrier that {ag} waits on"
        f" before it frees.{_dealloc(ag.cta.words)}"
    )


def never_claimed(allocation: Allocation, name: str) -> str:
    """The odd CTA of a pair ends without the alloc to which its leader's belongs."""
    return (
        f"{name} ends without an alloc of its own: {allocation.agent} has allocated"
        f" {_columns(allocation.column, allocation.columns)} for both CTAs of the pair"
        f" ({allocation.site.loc.short}).\n"
        "  With cta_group=2 one warp of each CTA allocates, and frees."
    )


def leak(tm: TensorMemory, allocation: Allocation, name: str) -> str:
    """A CTA ends with columns allocated."""
    return (
        f"tensor memory leak: {name} exits with {allocation.columns} columns allocated:"
        f" {_held(allocation)}. They are lost to the CTAs that come to this SM later, whose"
        " allocations then wait for ever.\n"
        f"  Free them before the {tm.cta.words['warp']} ends (tcgen05.dealloc), when every access"
        " to them is over."
    )


def waits_for(call: Call, tm: TensorMemory, peer: TensorMemory | None) -> str:
    """The columns that a blocked alloc is missing."""
    if peer is not None and tm.cta.rank & 1:
        return (
            f"the alloc of CTA {peer.cta.block_id}, the even one of the pair, which allocates for"
            " both"
        )
    full = max(
        (tm, *([] if peer is None else [peer])),
        key=lambda place: sum(a.columns for a in place.allocations.values()),
    )
    used = sum(a.columns for a in full.allocations.values())
    where = "" if full is tm else f" in CTA {full.cta.block_id}"
    return f"{call.columns} of {COLUMNS} columns, {used} held{where}: {holders(full)}"


# -- order -----------------------------------------------------------------------------


def not_published(m: Machine, tm: TensorMemory, old: Access, new: Access) -> None:
    """The thread that made an access did not execute the fence before it synchronised."""
    m.world.finding(
        rules.TENSOR_FENCES,
        _between(m, tm, old, new, "before_thread_sync", "the first and the arrive"),
        new.site.loc,
        f"{_FENCES}: after its wait ({_wait(old)}), every thread of {old.agent} that made the"
        f" access must execute {tm.cta.words['tcgen05.fence::before_thread_sync']} before it"
        " arrives.",
        first=old.site.loc,
    )


def not_received(m: Machine, tm: TensorMemory, old: Access, new: Access) -> None:
    """The thread that makes an access did not execute the fence after it synchronised."""
    m.world.finding(
        rules.TENSOR_FENCES,
        _between(m, tm, old, new, "after_thread_sync", "the wait and the second"),
        new.site.loc,
        f"{_FENCES}: {new.agent} must execute {tm.cta.words['tcgen05.fence::after_thread_sync']}"
        " after the wait by which it learns of the first.",
        first=old.site.loc,
    )


def not_pipelined(m: Machine, tm: TensorMemory, old: Access, new: Access) -> None:
    """Two ops of one thread whose order the tensor core keeps, and the PTX ISA does not promise."""
    text = _pair(
        m,
        rules.TENSOR_ORDER,
        tm,
        old,
        new,
        "the order of issue alone orders the two accesses, and these ops form no pipeline",
    )
    m.world.finding(rules.TENSOR_ORDER, text, new.site.loc,
        f"Let {new.agent} wait for a commit of the first before it issues the second, or give the"
        " two columns of their own.", first=old.site.loc,
    )  # fmt: skip


def _between(m: Machine, tm: TensorMemory, old: Access, new: Access, fence: str, place: str) -> str:
    return _pair(
        m,
        rules.TENSOR_FENCES,
        tm,
        old,
        new,
        f"a barrier orders the two accesses, but no tcgen05.fence::{fence} stands between {place}",
    )


def _pair(
    m: Machine, rule: rules.Rule, tm: TensorMemory, old: Access, new: Access, why: str
) -> str:
    """Two accesses: at length in a fault, in one line in advice."""
    if not m.world.asks(rule):
        return (
            f"on {_where(tm)}, {old.site.what} at {old.site.loc.short} and {new.site.what} at"
            f" {new.site.loc.short}: {why}"
        )
    return f"race on {_where(tm)}: {why}.\n  first:  {_who(old)}\n  second: {_who(new)}"


def _wait(a: Access) -> str:
    return a.agent.cta.words["tcgen05.wait::st" if a.is_write else "tcgen05.wait::ld"]


def remedy(m: Machine, old: Access, new: Access) -> str:
    """The advice to order `new` after `old`, an access by a tcgen05 op."""
    if old.site.facts.unit is Unit.TENSOR_MEMORY:
        return _after_registers(m, old, new)
    freeing = _freeing(m, old, new) if new.site.frees else ""
    if freeing:
        return other_thread(m, old) or freeing
    works = (
        "works on its tiles and its accumulator"
        if old.site.shape is not None
        else "reads its tile and writes tensor memory"
    )
    return other_thread(m, old) or (
        f"The tensor core {works} until a commit by the same thread has arrived"
        f" ({old.agent.cta.words['tcgen05.commit']}): {new.agent} must wait for the barrier of that"
        " commit."
    )


def _warp(a: Access) -> int:
    """The warp of its agent that made an access of one warp."""
    return (a.mask.bit_length() - 1) // 32


def _after_registers(m: Machine, old: Access, new: Access) -> str:
    """Which of the wait, the fence and the barrier `old`'s warp has yet to execute before `new`.
    Within a warp program order suffices after the wait; a dealloc needs no fence.
    """
    what = "store to" if old.is_write else "load from"
    over = f"A {what} tensor memory is over when its warp has executed {_wait(old)}"
    by_use = m.world.program.addressed and not old.is_write  # the rule LOADED_REGISTERS
    if by_use:
        over += ", or has used what it loads"
    frees, library = new.site.frees, _dealloc(new.agent.cta.words)
    if old.agent is new.agent and _warp(old) == _warp(new):
        others = (
            " Where other warps read, too, they must signal the one that"
            f" frees{':' if library else '.'}{library}"
            if frees
            else ""
        )
        return (
            f"{over}: put that between the two. After it the same warp needs no fence and no"
            f" barrier.{others}"
        )
    known, others = old.agent.known(old.mask), library if frees else ""
    fence = old.agent.cta.words["tcgen05.fence::before_thread_sync"]
    steps = [] if frees or old.fenced & known else [fence]
    who = f"warp {_warp(new)} of {new.agent}" if old.agent is new.agent else str(new.agent)
    arrive = f"an arrive on a barrier that {who} waits on before its access"
    missing = " and ".join([*steps, arrive])
    if not old.bit & known:
        return f"{over}; then {missing}.{others}"
    done = "This one is over" if by_use else "It has executed that"
    if not (steps or frees):
        done += f", and {fence} executed" if by_use else f" and {fence}"
    return f"{over}. {done}, but nothing after that signals {who}: {missing} must follow.{others}"


def _dealloc(words: Wording) -> str:
    """The front end's own way to free columns that others read; empty where it has none."""
    return words.get("freeing after reads", "")


def _freeing(m: Machine, old: Access, new: Access) -> str:
    """What a warp that frees columns under an MMA waits for, where others still read them; empty
    where none does.
    """
    readers: dict[str, str] = {}
    for site in m.world.program.sites:
        if site.facts.issues is Group.TMEM_LOADS and site.role != new.agent.role_name:
            readers.setdefault(site.role, site.loc.short)
    if not readers:
        return ""
    warp = new.agent.cta.words["warp"]
    read = ", ".join(f"{warp} '{name}' ({line})" for name, line in readers.items())
    return (
        "The tensor core works on the columns until a commit by the same thread has arrived"
        f" ({old.agent.cta.words['tcgen05.commit']}), and then they are still to be read: {read}."
        f" Every {warp} that reads must wait for that commit, read, and arrive on a barrier that"
        f" {new.agent} waits on before it frees.{_dealloc(new.agent.cta.words)}"
    )


def other_thread(m: Machine, old: Access) -> str:
    """The cause, where an MMA or a copy has not been committed by its own thread but another thread
    has committed.
    """
    lane = old.mask.bit_length() - 1
    state = m.agents[old.agent.uid].tensor
    if state is None or lane not in state.queues or not state.queues[lane].uncommitted:
        return ""
    for agent in sorted(m.agents, key=lambda a: (a is not old.agent, a.cta is not old.agent.cta)):
        for other, queue in (agent.tensor.queues if agent.tensor is not None else {}).items():
            if queue.committed is not None and (agent, other) != (old.agent, lane):
                return (
                    f"{old.site.what} was issued by lane {lane % 32} of {old.agent}, and committed"
                    f" by lane {other % 32} of {agent} ({queue.committed.loc.short}): a commit"
                    " covers only what its own thread issued. Issue and commit under one"
                    f" {agent.cta.words['elect.sync']}, or the same lane condition."
                )
    return ""


def over_at_exit(m: Machine, a: Access, name: str, place: str) -> str:
    """A CTA ends while the tensor core may still work on its memory."""
    cta = m.agents[a.agent.uid].cta
    words, ring = cta.words, any(bar.side and bar.side.ring for bar in cta.bars)
    drain = words.get("draining a ring at a commit", "") if ring else ""
    why = other_thread(m, a) or (
        f"Commit it ({words['tcgen05.commit']}) and let a {words['warp']} of this CTA wait for the"
        f" barrier before it ends{drain}."
    )
    return (
        f"{name} exits while the tensor cores may still use {place}: {a.site.what}, issued by"
        f" {a.agent}, is not known to be over.\n  {why}"
    )


def poison(a: Access) -> str:
    """The advice about words that nothing has written."""
    if a.is_write:
        return (
            "The MMA adds to them: let the first one overwrite"
            f" ({a.agent.cta.words['scale-d false']}). Columns hold nothing when they are"
            " allocated."
        )
    return (
        "Wait for the commit of the MMA, or for the store, that fills them. Columns hold nothing"
        " when they are allocated."
    )
