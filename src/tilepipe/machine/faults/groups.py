"""Waits for groups that have left the group of an access pending, or that wait for less than was
meant.
"""

from __future__ import annotations

from tilepipe.machine.actors import Actor
from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.units.in_flight import GroupWait, StoreQueue

_READ = "cp.async.bulk.wait_group.read of a number"
_WRITTEN = "cp.async.bulk.wait_group of a number"
_WGMMA = "wgmma.wait_group of a number"
_COPIES = "cp.async.wait_group of a number"


def pending_read(agent: Agent, store: Access) -> str:
    """The wait that left the group of a bulk store pending, which reads shared memory; a sentence,
    or "".
    """
    for queue in agent.stores.values():
        for index, group in enumerate(queue.groups):
            if any(unit.read is store for unit in group):
                return _sentence(agent, queue.waited, index, _READ)
    return ""


def under_way(agent: Actor, store: Event) -> bool:
    """True if the thread that issued a bulk store has not waited until it has written."""
    queues = agent.stores.values() if isinstance(agent, Agent) else ()
    return any(
        unit.written_bits & store.bit
        for queue in queues
        for group in (queue.open, *queue.groups, *queue.unwritten)
        for unit in group
    )


def is_open(agent: Actor, store: Event) -> bool:
    """True if a bulk store is in no committed group."""
    queues = agent.stores.values() if isinstance(agent, Agent) else ()
    return any(unit.written_bits & store.bit for queue in queues for unit in queue.open)


def pending_write(agent: Actor, store: Event) -> str:
    """The wait that left the group of a bulk store pending, which writes global memory, or that was
    for its reading alone; a sentence, or "".
    """
    if not isinstance(agent, Agent):
        return ""
    for queue in agent.stores.values():
        groups = [*queue.unwritten, *queue.groups]
        for index, group in reversed(list(enumerate(groups))):
            if not any(unit.written_bits & store.bit for unit in group):
                continue
            left = _sentence(agent, queue.waited_written, index, _WRITTEN)
            if left or index < len(queue.unwritten):
                return left or _reading(agent, queue)
            return _sentence(agent, queue.waited, index - len(queue.unwritten), _WRITTEN)
    return ""


def _reading(agent: Agent, queue: StoreQueue) -> str:
    """That the last wait for a group was for the reads of its stores."""
    wait = queue.waited
    if wait is None or not wait.reading:
        return ""
    return (
        f"{_form(agent, _READ, wait.pending)} at {wait.site.loc.short} waits until the store has"
        " read shared memory, and not until it has written global memory: write"
        f" {_form(agent, _WRITTEN, wait.pending)}. "
    )


def pending_wgmma(agent: Agent, operand: Access) -> str:
    """The wait that left the group of a wgmma pending which reads an operand; a sentence, or ""."""
    for index, group in enumerate(agent.wgmma_groups):
        if any(by is agent and unit.bits & operand.bit for by, unit in group.units):
            return _sentence(agent, agent.wgmma_waited, index, _WGMMA)
    return ""


def pending_registers(agent: Agent, frag: Frag) -> str:
    """The wait that left the last group pending of which a wgmma uses registers; a clause, or
    "".
    """
    for index, group in reversed(list(enumerate(agent.wgmma_groups))):
        if any(by is agent and frag in (unit.acc, unit.a) for by, unit in group.units):
            return _clause(agent, agent.wgmma_waited, index, _WGMMA, "the wgmma")
    return ""


def pending_copy(agent: Agent, copy: Access) -> str:
    """The wait that left the group of a cp.async pending; a sentence, or ""."""
    copies = agent.copies
    for index, (_, writes) in enumerate(copies.groups if copies is not None else ()):
        if copy in writes and copies is not None:
            return _sentence(agent, copies.waited, index, _COPIES)
    return ""


def _sentence(agent: Agent, wait: GroupWait | None, index: int, name: str) -> str:
    """What a wait left pending, and the one to write. `name`: of the instruction that it takes to
    wait for the access.
    """
    said = _READ if name == _WRITTEN and wait is not None and wait.reading else name
    clause = _clause(agent, wait, index, said, "the first access")
    if not clause or wait is None:
        return ""
    enough = _form(agent, name, wait.left - 1 - index)
    return f"{clause}: write {enough} there, or wait again before the second access. "


def _clause(agent: Agent, wait: GroupWait | None, index: int, said: str, of: str) -> str:
    """What a wait left pending of which a group is number `index`, oldest first; "" where the group
    was committed after it. `said`: the instruction. `of`: what is in that group.
    """
    if wait is None or index >= wait.left:
        return ""
    later = wait.left - 1 - index
    if wait.pending == 1:
        which = f"the last group pending, and that is the one of {of}"
    else:
        place = "last" if later == 0 else f"last but {later}"
        which = f"the last {wait.pending} groups pending, and the one of {of} is the {place} of"
        which += " them"
    return f"{_form(agent, said, wait.pending)} at {wait.site.loc.short} leaves {which}"


def _form(agent: Agent, name: str, pending: int) -> str:
    """A wait as the program writes it."""
    return agent.cta.words.get(name, name.replace("of a number", "{}")).format(pending)
