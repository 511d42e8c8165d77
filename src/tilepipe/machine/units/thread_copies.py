"""cp.async: copies of 4 to 16 bytes from global to shared memory by each thread, in groups (PTX
ISA, "Non-bulk copy"). They are of the generic proxy. Those of a warp act in the order of issue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.machine.actors import BLOCKED, Blocked
from tilepipe.machine.agents import Agent, ThreadCopies
from tilepipe.machine.barriers.mbarrier import arrived
from tilepipe.machine.barriers.state import LIVE, Mbarrier, MbarrierArrival
from tilepipe.machine.faults import mbarriers as faults
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.conflicts import access
from tilepipe.machine.journal import Touch
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import Addresses, asynchronous
from tilepipe.machine.memory.byte_sets import Bytes, LaneBytes
from tilepipe.machine.memory.device_memory import DeviceMemory, load_global
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in
from tilepipe.machine.units.in_flight import GroupWait


@dataclass(eq=False, repr=False, slots=True)
class ThreadCopyUnit:
    """The copies of one instruction: rows of bytes to offsets in shared memory."""

    agent: Agent
    space: ByteSpace
    places: npt.NDArray[np.int64]
    rows: Bytes
    write: Access

    def forget(self, dead: int) -> None:
        """It holds no knowledge."""


@dataclass(eq=False, repr=False, slots=True)
class ThreadArrivalUnit:
    """cp.async.mbarrier.arrive: arrivals when the copies before it are made. `bits`: of these."""

    agent: Agent
    site: Site
    bar: Mbarrier
    count: int
    bits: int

    def forget(self, dead: int) -> None:
        self.bits &= ~dead


def copy(m: Machine, unit: ThreadCopyUnit) -> None:
    """The copies of an instruction are made."""
    unit.space.put(unit.places, unit.rows)
    copies = of(unit.agent)
    copies.made += 1
    agent = unit.agent
    if agent.parked and agent.request is not None and agent.request[0] is wait:
        agent.parked = False
        m.wake([agent])


def arrive(m: Machine, unit: ThreadArrivalUnit) -> None:
    """The copies before an arrival are made: it takes effect."""
    bar = unit.bar
    if unit.count > bar.pending:
        faults.cannot_arrive(m, bar, unit.site, unit.agent, unit.count)
    bar.acc |= unit.bits
    if m.journal is not None:
        m.journal.touch(Touch.ARRIVE, bar, bar.phase, 0)
    arrived(m, bar, MbarrierArrival(unit.agent, unit.site, unit.count, -1), unit.agent.time)


def of(ag: Agent) -> ThreadCopies:
    """The copies of an agent, made when first needed."""
    if ag.copies is None:
        ag.copies = ThreadCopies()
    return ag.copies


# -- ops -------------------------------------------------------------------------------


def issue(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    offsets: Addresses,
    memory: DeviceMemory,
    addresses: Addresses,
    nbytes: int,
    sizes: Addresses,
) -> None:
    """cp.async: of the `nbytes` bytes at `offsets[thread]` the first `sizes[thread]` come from
    `addresses[thread]`, and the rest are zeros.
    """
    lanes = lanes_in(mask)
    rows = np.zeros((32 * ag.warps, nbytes), np.uint8)
    for size in sorted({int(sizes[lane]) for lane in lanes}):
        part = sum(1 << lane for lane in lanes if sizes[lane] == size)
        if not 0 <= size <= nbytes:
            raise SimFault(f"{site.what}: {size} of {nbytes} bytes are to be copied", site.loc)
        if size:
            width = size & -size
            for at in range(0, size, width):
                moved = [int(a) + at for a in addresses]
                rows[:, at : at + width] |= load_global(m, ag, site, part, memory, moved, width)
    for lane in lanes:
        if offsets[lane] % nbytes or (sizes[lane] and addresses[lane] % nbytes):
            raise SimFault(
                f"{site.what}: thread {lane} of {ag} copies {nbytes} bytes from"
                f" {memory.exactly(addresses[lane])} to {ag.cta.names.exactly(offsets[lane])};"
                f" both must be multiples of {nbytes}",
                site.loc,
            )
    space = ag.cta.bytes()
    touched = LaneBytes((1 << lane, int(offsets[lane]), nbytes) for lane in lanes)
    write = asynchronous(m, ag, site, mask, space, touched, is_write=True)
    write.by_proxy = False
    m.order.add_fences(write, ag.cta.rank)
    access(m, space, write, ag.known(mask))
    copies = of(ag)
    places = np.array([int(offsets[lane]) for lane in lanes])[:, None] + np.arange(nbytes)
    copies.open.append(write)
    copies.issued += 1
    m.issue(copies, ThreadCopyUnit(ag, space, places, rows[lanes], write))


def commit(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """cp.async.commit_group."""
    copies = of(ag)
    copies.groups.append((copies.issued, copies.open))
    copies.open = []


def wait(m: Machine, ag: Agent, site: Site, mask: int, pending: int | None) -> Blocked | None:
    """cp.async.wait_group: blocks until at most `pending` groups are under way; None, of
    cp.async.wait_all: until nothing is.
    """
    copies = of(ag)
    if pending is None:
        if not ag.blocked:
            commit(m, ag, site, mask)
        pending = 0
    late = len(copies.groups) - pending
    if late <= 0:
        copies.waited = GroupWait(site, pending, len(copies.groups))
        return None
    if copies.made < copies.groups[late - 1][0]:
        ag.waits = copies, None
        return BLOCKED
    for _, writes in copies.groups[:late]:
        for write in writes:
            write.asynchronous = False  # each thread's own part comes before what it does next
            ag.made(write.mask, write.bit)
    del copies.groups[:late]
    copies.waited = GroupWait(site, pending, pending)
    return None


def arrive_later(m: Machine, ag: Agent, site: Site, mask: int, bar: int, increments: bool) -> None:
    """cp.async.mbarrier.arrive: each thread arrives when its copies so far are made. `increments`:
    the pending count of the phase is first raised by as many (no .noinc).
    """
    b = ag.cta.bars[bar]
    if b.state != LIVE:
        faults.not_live(m, b, site, ag)
    copies = of(ag)
    bits = ag.publish(mask)
    for writes in (copies.open, *(writes for _, writes in copies.groups)):
        for write in writes:
            bits |= write.bit
    if increments:
        b.pending += mask.bit_count()
    m.issue(copies, ThreadArrivalUnit(ag, site, b, mask.bit_count(), bits))
