"""Lets an asynchronous unit act."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilepipe.machine.agents import ThreadCopies
from tilepipe.machine.barriers.state import Mbarrier, TmaLoadUnit
from tilepipe.machine.machine import Machine
from tilepipe.machine.units import (
    grid,
    remote_stores,
    tcgen05,
    tcgen05_by_address,
    thread_copies,
    tma,
    tma_by_address,
    wgmma,
)
from tilepipe.machine.units.in_flight import (
    CommitUnit,
    CopyUnit,
    MmaUnit,
    Queued,
    RepeatedLoad,
    ResponseUnit,
    TensorQueue,
    TmaStoreUnit,
    Unit,
    UnitQueue,
    WarpgroupQueue,
    WgmmaGroup,
)


def _oldest(m: Machine, queue: UnitQueue) -> None:
    unit = queue.waiting.popleft()
    _ACTS[type(unit)](m, unit)


_ACTS: dict[type, Callable[[Machine, Any], None]] = {
    TmaLoadUnit: tma.land,
    ResponseUnit: grid.respond,
    TmaStoreUnit: tma.write_out,
    RepeatedLoad: tma.land_again,
    remote_stores.RemoteStoreUnit: remote_stores.land,
    ThreadCopies: _oldest,
    thread_copies.ThreadCopyUnit: thread_copies.copy,
    thread_copies.ThreadArrivalUnit: thread_copies.arrive,
    tma_by_address.CopyIn: tma_by_address.land,
    tma_by_address.CopyOut: tma_by_address.write_out,
    UnitQueue: _oldest,
    WarpgroupQueue: _oldest,
    TensorQueue: _oldest,
    WgmmaGroup: wgmma.finish,
    MmaUnit: tcgen05.multiply,
    CopyUnit: tcgen05.copy,
    tcgen05_by_address.AddressedMma: tcgen05_by_address.multiply,
    tcgen05_by_address.AddressedCopy: tcgen05_by_address.copy,
    tcgen05_by_address.AddressedShift: tcgen05_by_address.shift,
    CommitUnit: tcgen05.arrive,
}


def act(m: Machine, unit: Unit | Queued) -> None:
    """Performs what a unit does, once; of a queue its oldest unit acts."""
    _ACTS[type(unit)](m, unit)


def signals(unit: Queued) -> tuple[Mbarrier, ...]:
    """The mbarriers on which a unit of a queue arrives when it acts."""
    match unit:
        case CommitUnit():
            return tuple(bar for bar, _ in unit.arrivals)
        case thread_copies.ThreadArrivalUnit():
            return (unit.bar,)
    return ()
