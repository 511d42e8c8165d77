"""TMA copies between a tensor and an address in shared memory, by tensor map."""

from __future__ import annotations

from tilepipe.errors import SimFault
from tilepipe.ir.hardware.tma import broken_coordinate_rule
from tilepipe.machine import cost
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import remote
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.cta import Cta
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.happens_before.global_memory import box
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_order import order, record
from tilepipe.machine.memory.tensor_map import ALIGNMENT, TensorMap
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import BoxLoadUnit, BoxStoreUnit, StoreQueue
from tilepipe.machine.units.tma import credit_copy, depart, end_store, one_lane

Coords = tuple[int, ...]


def tma_load_box(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    tensor_map: TensorMap,
    coords: Coords,
    address: int,
    bar: int,
    multicast: int | None = None,
) -> None:
    """cp.async.bulk.tensor from global to shared memory: the box at `coords` (elements, outermost
    first) goes to `address` in this CTA, or in each CTA of a mask, and its bytes to the mbarrier
    at address `bar` there.
    """
    one_lane(ag, site, mask)
    _check(m, site, tensor_map, coords, address, store=False)
    known = ag.known(mask) if ag.split else ag.k
    tensor = m.world.tensors[tensor_map.tensor]
    seen = None
    if tensor.order is not None:
        seen = _touch(m, ag, site, mask, tensor_map, coords, is_write=False)
    busy = _occupy(ag, tensor_map)
    if multicast is None:
        _send(
            m,
            ag,
            site,
            mask,
            tensor_map,
            coords,
            address,
            ag.cta,
            ag.cta.bars[bar],
            known,
            seen,
            busy,
        )
        return
    if not 0 < multicast < 1 << len(m.ctas):
        raise SimFault(
            f"{site.what}: multicast mask {multicast:#b} for a cluster of {len(m.ctas)} CTA(s)",
            site.loc,
        )
    for cta in m.ctas:
        if multicast >> cta.rank & 1:
            there = remote(m, ag, site, cta.rank, bar)
            _send(m, ag, site, mask, tensor_map, coords, address, cta, there, known, seen, busy)


def _send(
    m: Machine, ag: Agent, site: Site, mask: int, tensor_map: TensorMap, coords: Coords, address: int, cta: Cta, bar: Mbarrier,
    known: int, seen: Event | None, busy: float,
) -> None:  # fmt: skip
    space = cta.bytes()
    touched = tensor_map.touched(address)
    write = record(m, ag, site, mask, space, touched, is_write=True, asynchronous=True)
    end = busy + cost.TMA_LATENCY
    depart(
        m, BoxLoadUnit(ag, site, coords, space, bar, write, seen, end, tensor_map, address), known
    )


def tma_store_box(
    m: Machine, ag: Agent, site: Site, mask: int, tensor_map: TensorMap, coords: Coords, address: int
) -> None:  # fmt: skip
    """cp.async.bulk.tensor from shared to global memory, into this thread's open group."""
    lane = one_lane(ag, site, mask)
    _check(m, site, tensor_map, coords, address, store=True)
    known = ag.known(mask) if ag.split else ag.k
    space = ag.cta.bytes()
    touched = tensor_map.touched(address)
    read = record(m, ag, site, mask, space, touched, is_write=False, asynchronous=True)
    order(m, space, read, known)
    write = _touch(m, ag, site, mask, tensor_map, coords, is_write=True)
    end = _occupy(ag, tensor_map) + cost.TMA_LATENCY
    unit = BoxStoreUnit(ag, site, coords, space, read, write, end, tensor_map, address)
    ag.stores.setdefault(lane, StoreQueue()).open.append(unit)
    m.pending.append(unit)
    if m.world.on_event is not None:
        m.world.on_event(ag, site, ag.time, unit.end)


def land_box(m: Machine, unit: BoxLoadUnit) -> None:
    """A copy lands: the box is in shared memory, and the barrier gets its bytes."""
    tensor_map = unit.tensor_map
    raw = m.world.tensors[tensor_map.tensor].read_raw(unit.coords, tensor_map.box)
    m.ctas[unit.slot.cta.rank].bytes().put(tensor_map.places(unit.address), raw)
    credit_copy(m, unit)


def write_box(m: Machine, unit: BoxStoreUnit) -> None:
    """A store reads shared memory and writes the tensor; out of bounds is clipped."""
    tensor_map = unit.tensor_map
    raw = unit.space.memory[tensor_map.places(unit.address)]
    m.world.tensors[tensor_map.tensor].write_raw(unit.coords, tensor_map.box, raw)
    end_store(m, unit)


def _occupy(ag: Agent, tensor_map: TensorMap) -> float:
    """When the TMA unit of the CTA has sent the box, by the cost model."""
    busy = max(ag.time, ag.cta.tma_free) + tensor_map.nbytes / cost.TMA_BYTES_PER_CYCLE
    ag.cta.tma_free = busy
    return busy


def _touch(
    m: Machine, ag: Agent, site: Site, mask: int, tensor_map: TensorMap, coords: Coords, *, is_write: bool
) -> Event:  # fmt: skip
    """Orders the access to the tensor."""
    tensor = m.world.tensors[tensor_map.tensor]
    assert tensor.order is not None
    where = tensor.clip(coords, tensor_map.box)[0]
    return box(m, tensor.order, ag, site, mask, where, is_write, asynchronous=True)


def _check(
    m: Machine, site: Site, tensor_map: TensorMap, coords: Coords, address: int, *, store: bool
) -> None:
    """Raises SimFault where the hardware would refuse the copy."""
    tensor = m.world.tensors[tensor_map.tensor]
    if address % ALIGNMENT:
        raise SimFault(
            f"{site.what}: a box at {address:#x} of shared memory; its address is a multiple of"
            f" {ALIGNMENT} (PTX ISA, cp.async.bulk.tensor).",
            site.loc,
        )
    if len(coords) != len(tensor.shape) or len(tensor_map.box) != len(tensor.shape):
        raise SimFault(
            f"{site.what}: coordinates {coords} and a box {tensor_map.box} for a tensor of"
            f" {len(tensor.shape)} dimensions",
            site.loc,
        )
    axis = tensor.param.contiguous_axis
    broken = broken_coordinate_rule(coords, axis, tensor.param.dtype, store=store)
    if broken is not None:
        raise SimFault(f"{site.what}, tensor '{tensor.param.name}': {broken}", site.loc)
