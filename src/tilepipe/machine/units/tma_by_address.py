"""TMA by address: copies between global memory and shared memory, and between the shared memories
of a cluster, of boxes that a tensor map describes or of consecutive bytes (`boxes`).

They act and are ordered as those of `tma`: a copy that completes on an mbarrier is live from its
issue on, and others learn of it through that barrier; one in a bulk group reads and writes at some
moment before the wait for its group returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilepipe.errors import BarrierError
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import named_by, remote
from tilepipe.machine.barriers.state import Mbarrier, TmaLoadUnit
from tilepipe.machine.happens_before.byte_events import ByteEvent
from tilepipe.machine.happens_before.conflicts import read
from tilepipe.machine.happens_before.memory_order import RELAXED
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory import byte_access, device_memory
from tilepipe.machine.memory.boxes import Box, Global, Shared, SharedBytes, Span, check_bulk
from tilepipe.machine.memory.byte_access import Combine, asynchronous
from tilepipe.machine.memory.elements import cta_of
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import TmaStoreUnit
from tilepipe.machine.units.tma import (
    credit_copy,
    depart,
    finished,
    noticed,
    occupy,
    one_lane,
    send,
    storing_lane,
)

# -- units -----------------------------------------------------------------------------


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class CopyIn(TmaLoadUnit):
    """A copy into the shared memory of a CTA, which credits its bytes to an mbarrier there.
    `map_read`: its read of a tensor map in global memory. `reduction`: what it does to what is
    there.
    """

    source: Global | Shared
    to: Shared
    map_read: ByteEvent | None = None
    reduction: Combine | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal in every execution: no object of one machine."""
        return self.source.key, self.to.key


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class CopyOut(TmaStoreUnit):
    """A copy out of the shared memory of a CTA, in a bulk group of the thread that issued it; a
    `reduction` is of bytes. `map_read`: as in `CopyIn`.
    """

    source: Shared
    to: Global
    map_read: ByteEvent | None = None

    @property
    def read_bits(self) -> int:
        return self.read.bit | (self.map_read.bit if self.map_read is not None else 0)


def land(m: Machine, unit: CopyIn) -> None:
    """The bytes are in shared memory, and the barrier gets them."""
    raw = unit.source.get()
    unit.to.put(raw if unit.reduction is None else unit.reduction(unit.to.get(), raw))
    if unit.reduction is not None and isinstance(unit.to, SharedBytes):
        byte_access.reduced(m, unit.to.space, unit.to.at, unit.to.nbytes, device_memory.ELEMENT)
    if unit.map_read is not None:
        unit.bar.acc |= unit.map_read.bit
    credit_copy(m, unit)


def write_out(m: Machine, unit: CopyOut) -> None:
    """The bytes are in global memory."""
    unit.to.put(unit.source.get(), unit.reduction)
    if unit.reduction is not None and unit.to.region is not None and m.world.looks:
        device_memory.reduced(m, unit.to.region)
        noticed(m, unit)
    finished(m, unit)


# -- copies that complete on an mbarrier -------------------------------------------------


class Completion(NamedTuple):
    """The mbarrier that a copy credits: the rank of its CTA, its address there. `pair`: the copy
    may name that of the other CTA of its pair (.cta_group::2).
    """

    rank: int
    address: int
    pair: bool = False


def load(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    what: Span | Box,
    at: int,
    to: Completion,
    ctas: int | None = None,
) -> None:
    """cp.async.bulk and cp.async.bulk.tensor global -> shared: to this CTA, or to each CTA of a
    mask, at the same address. With .cta_group::2 the barrier is that of the CTA in the
    destination's pair which has the same place there as the one that is named (PTX ISA).
    """
    one_lane(ag, site, mask)
    what.check(site, at, ag.cta.names)
    source = what.found(ag, site, store=False, whole=False)
    known = ag.known(mask) if ag.split else ag.k
    region = source.region
    seen = region.ordered(m, ag, site, mask, is_write=False) if region is not None else None
    end = occupy(ag, what.nbytes)
    if to.rank != ag.cta.rank and (not to.pair or to.rank >> 1 != ag.cta.rank >> 1):
        raise BarrierError(
            f"{site.what}: it signals a barrier of CTA rank {to.rank}, but is issued by CTA rank"
            f" {ag.cta.rank}: a copy signals one of its own CTA, or of its pair's with"
            " .cta_group::2.",
            site.loc,
        )
    for cta in [ag.cta] if ctas is None else named_by(m, site, ctas, "multicast mask"):
        if ctas is None and not to.pair:
            bar = cta.bars[to.address]
        else:
            rank = cta.rank & ~1 | to.rank & 1 if to.pair else cta.rank
            bar = remote(m, ag, site, rank, to.address)
        part = what.inside(cta.bytes(), at)
        write = asynchronous(m, ag, site, mask, part.space, part.touched(), is_write=True)
        unit = CopyIn(
            ag, site, source.coords, part.space, write, what.nbytes, bar, seen, end, source=source,
            to=part, map_read=what.map_read,
        )  # fmt: skip
        depart(m, unit, known)


def copy_to_cta(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    source: int,
    nbytes: int,
    rank: int,
    at: int,
    to: Completion,
    reduction: Combine | None = None,
) -> None:
    """cp.async.bulk and cp.reduce.async.bulk shared::cta -> shared::cluster, which completes on an
    mbarrier of the destination's CTA.
    """
    one_lane(ag, site, mask)
    for address in (source, at):
        check_bulk(site, nbytes, address, ag.cta.names.exactly)
    if to.rank != rank:
        raise BarrierError(
            f"{site.what}: its mbarrier is in CTA rank {to.rank}, and its destination in rank"
            f" {rank}: they are in one CTA",
            site.loc,
        )
    known = ag.known(mask) if ag.split else ag.k
    given = SharedBytes(ag.cta.bytes(), source, nbytes)
    seen = asynchronous(m, ag, site, mask, given.space, given.touched(), is_write=False)
    read(m, given.space, seen, known)
    cta = cta_of(m, ag, site, rank)
    part = SharedBytes(cta.bytes(), at, nbytes)
    write = asynchronous(m, ag, site, mask, part.space, part.touched(), is_write=True)
    if reduction is not None:
        write.strong = RELAXED
    bar = _barrier(m, ag, site, to)
    end = occupy(ag, nbytes)
    unit = CopyIn(
        ag, site, (at,), part.space, write, nbytes, bar, seen, end, source=given, to=part,
        reduction=reduction,
    )  # fmt: skip
    depart(m, unit, known)


def _barrier(m: Machine, ag: Agent, site: Site, to: Completion) -> Mbarrier:
    if to.rank == ag.cta.rank:
        return ag.cta.bars[to.address]
    return remote(m, ag, site, to.rank, to.address)


# -- copies in bulk groups ---------------------------------------------------------------


def store(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    what: Span | Box,
    at: int,
    reduction: Combine | None = None,
) -> None:
    """cp.async.bulk, cp.reduce.async.bulk and their .tensor forms shared -> global, into this
    thread's open group.
    """
    mask = storing_lane(m, ag, site, mask, reduction is not None)
    what.check(site, at, ag.cta.names)
    atomic = reduction is not None
    to = what.found(ag, site, store=True, whole=True)
    source = what.inside(ag.cta.bytes(), at)
    known = ag.known(mask) if ag.split else ag.k
    record = asynchronous(m, ag, site, mask, source.space, source.touched(), is_write=False)
    read(m, source.space, record, known)
    region = to.region
    event = (
        region.ordered(m, ag, site, mask, is_write=True, atomic=atomic)
        if region is not None
        else None
    )
    unit = CopyOut(
        ag, site, to.coords, source.space, record, event, occupy(ag, what.nbytes), 0, source=source,
        to=to, reduction=reduction, map_read=what.map_read,
    )  # fmt: skip
    send(m, ag, mask.bit_length() - 1, unit)
