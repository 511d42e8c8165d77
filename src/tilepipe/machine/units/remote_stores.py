"""st.async and red.async: stores to shared memory of the cluster that happen later, and credit
their bytes to an mbarrier there (PTX ISA, st.async). Unlike copies they are of the generic proxy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.machine import cost
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import remote
from tilepipe.machine.barriers.state import TmaLoadUnit
from tilepipe.machine.happens_before.memory_order import RELAXED
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import Combine, asynchronous, reduced
from tilepipe.machine.memory.byte_sets import Bytes, LaneBytes
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site
from tilepipe.machine.units.tma import credit_copy, depart


@dataclass(eq=False, repr=False, slots=True)
class RemoteStoreUnit(TmaLoadUnit):
    """Stores in flight to one CTA: a row of `rows` to each offset of `at`. `combine`: of a
    reduction.
    """

    at: Sequence[int] = field(kw_only=True)
    rows: Bytes = field(kw_only=True)
    combine: Combine | None = field(kw_only=True)


def land(m: Machine, unit: RemoteStoreUnit) -> None:
    """The stores happen, and the barrier gets their bytes."""
    space = unit.slot
    assert isinstance(space, ByteSpace)
    for at, row in zip(unit.at, unit.rows, strict=True):
        where = np.arange(at, at + len(row))
        new = row if unit.combine is None else unit.combine(space.memory[where], row)
        space.put(where, new)
        if unit.combine is not None:
            reduced(m, space, at, len(row), len(row))
    credit_copy(m, unit)


def store_later(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    parts: Mapping[tuple[int, int], Sequence[int]],
    offsets: npt.NDArray[np.int64],
    rows: Bytes,
    combine: Combine | None,
) -> None:
    """st.async, red.async. `parts`: (CTA rank, address of the mbarrier there) -> lanes. `offsets`,
    `rows`: where each lane stores, and what.
    """
    nbytes = rows.shape[1]
    for (rank, bar), lanes in parts.items():
        b = remote(m, ag, site, rank, bar)
        space = m.ctas[rank].bytes()
        for lane in lanes:
            if offsets[lane] % nbytes:
                raise SimFault(
                    f"{site.what}: thread {lane} of {ag} stores {nbytes} bytes at"
                    f" {ag.cta.names.exactly(int(offsets[lane]))}, which is no multiple of"
                    f" {nbytes}",
                    site.loc,
                )
        part = sum(1 << lane for lane in lanes)
        touched = LaneBytes((1 << lane, int(offsets[lane]), nbytes) for lane in lanes)
        write = asynchronous(m, ag, site, part, space, touched, is_write=True)
        write.by_proxy = False
        write.strong = RELAXED if combine is not None else None
        m.order.add_fences(write, rank)
        unit = RemoteStoreUnit(
            ag, site, (), space, write, nbytes * len(lanes), b, None, ag.time + cost.TMA_LATENCY,
            at=[int(offsets[lane]) for lane in lanes], rows=rows[list(lanes)], combine=combine,
        )  # fmt: skip
        depart(m, unit, ag.known(part))
