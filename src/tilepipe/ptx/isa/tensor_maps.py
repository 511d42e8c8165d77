"""Tensor maps in memory: where a copy finds one, and how a kernel changes and publishes one (PTX
ISA, "tensormap.replace", "tensormap.cp_fenceproxy", "fence.proxy.tensormap").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.errors import LimitError, RaceError, SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.byte_events import ByteEvent, Runs
from tilepipe.machine.happens_before.global_memory import runs
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory import tensor_map
from tilepipe.machine.memory.byte_access import load_bytes, store_bytes
from tilepipe.machine.memory.device_memory import DeviceMemory, load_global, store_global
from tilepipe.machine.memory.tensor_map import FIELDS, MAP_BYTES, TensorMapFields
from tilepipe.machine.sites import Site
from tilepipe.ptx.address_spaces import PARAM_WINDOW, WINDOW_BITS
from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    Perform,
    constant,
    defines,
    inside,
    not_modelled,
    operands,
)
from tilepipe.ptx.isa.memory import space_of
from tilepipe.ptx.isa.requests import Value, one, place
from tilepipe.ptx.lanes import FULL
from tilepipe.ptx.syntax.nodes import Instruction, Integer, Operand
from tilepipe.ptx.warp_protocol import Warp


def map_at(
    m: Machine, ag: Agent, w: Warp, site: Site, mask: int, address: int
) -> tuple[TensorMapFields, ByteEvent | None]:
    """The tensor map at a generic address: among the parameters, or in global or constant memory;
    then with the read of it, which is over when the copy is.

    Raises:
        SimFault: there is none. RaceError: this launch has changed it, and the CTA has executed no
        fence.proxy.tensormap on it since.
    """
    if address >> WINDOW_BITS == PARAM_WINDOW >> WINDOW_BITS:
        (raw, name), event = w.launch.map_bytes(address - PARAM_WINDOW), None
    else:
        raw, name, event = _in_memory(m, ag, w, site, mask, address)
    if address % 64 or len(raw) != MAP_BYTES:
        raise SimFault(
            f"{site.what}: there is no tensor map at {address:#x}: one has {MAP_BYTES} bytes at a"
            " multiple of 64, in parameters, global or constant memory",
            site.loc,
        )
    try:
        return tensor_map.decode(raw, name), event
    except LimitError as error:
        raise SimFault(f"{site.what}: {error}", site.loc) from None


def _in_memory(
    m: Machine, ag: Agent, w: Warp, site: Site, mask: int, address: int
) -> tuple[bytes, str, ByteEvent | None]:
    memory: DeviceMemory = w.launch.memory
    found = memory.at(address, address + MAP_BYTES)
    if found is None:
        return b"", "", None
    offset = address - found.start
    order = found.order
    last = int(order.writers[offset // order.grain : (offset + MAP_BYTES) // order.grain].max())
    if last and last > w.launch.fenced_maps.get((ag.cta.block_id, address), 0):
        raise RaceError(
            f"{site.what}: the tensor map at {address:#x} ('{found.name}') was changed by this"
            " launch, and the CTA has executed no fence.proxy.tensormap::generic.acquire on it"
            f" since: the copy may use the old one.\n  changed by {order.history[last - 1].who}:"
            f" {order.history[last - 1].site.what}",
            site.loc,
        )
    raw = found.data[offset : offset + MAP_BYTES].tobytes()
    touched = Runs(np.array([offset], np.int64), MAP_BYTES)
    event = runs(m, order, ag, site, mask, touched, is_write=False, later=True)
    return raw, f"the tensor map at {address:#x} ('{found.name}')", event


@defines("tensormap")
def _tensormap(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if modifiers.need("replace", "cp_fenceproxy") == "cp_fenceproxy":
        return _copied(instruction, modifiers)
    modifiers.need("tile")
    field = modifiers.need(*FIELDS)
    space = modifiers.take("global", "shared::cta")
    modifiers.need("b1024")
    wide = modifiers.need("b32", "b64")
    modifiers.end()
    where, *rest = operands(instruction, 2, 3)
    ordinal = constant(instruction, rest[0]) if len(rest) == 2 else 0
    if (len(rest) == 2) != bool(FIELDS[field][2]):
        not_modelled(instruction, f"{len(rest)} operands after the address")

    def start(w: Warp, site: Site, mask: int, at: Value, value: Value) -> Any:
        return _replace, (
            site, mask, w, space, one(site, mask, at), field, ordinal, one(site, mask, value),
        )  # fmt: skip

    sources = (
        (inside(instruction, where), "u32" if space.startswith("shared") else "u64"),
        (rest[-1], wide),
    )
    return Perform((), sources, start, None, site=(("writes", True),))


def _replace(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    w: Warp,
    space: str,
    address: int,
    field: str,
    ordinal: int,
    value: int,
) -> None:
    """tensormap.replace: an ordinary access to the 128 bytes."""
    mask &= -mask
    kind, found = space_of(w, site, mask, space, address)
    at = int(found)
    shared = kind.startswith("shared")
    where = np.full(32, place(at)[1] if shared else at, np.int64)
    if shared:
        raw = load_bytes(m, ag, site, mask, where, MAP_BYTES)
    else:
        raw = load_global(m, ag, site, mask, w.launch.memory, where, MAP_BYTES)
    lane = mask.bit_length() - 1
    try:
        changed = tensor_map.replaced(raw[lane].tobytes(), field, ordinal, value)
    except ValueError as error:
        raise SimFault(f"{site.what}: {error}", site.loc) from None
    raw[lane] = np.frombuffer(changed, np.uint8)
    if shared:
        store_bytes(m, ag, site, mask, where, raw)
    else:
        store_global(m, ag, site, mask, w.launch.memory, where, raw)


def _copied(instruction: Instruction, modifiers: Modifiers) -> Operation:
    """tensormap.cp_fenceproxy: a warp copies a tensor map to global memory, and publishes it."""
    for name in ("global", "shared::cta", "tensormap::generic", "release"):
        modifiers.need(name)
    modifiers.need("cta", "cluster", "gpu", "sys")
    modifiers.need("sync")
    modifiers.need("aligned")
    modifiers.end()
    to, source, size = operands(instruction, 3)
    _is_whole(instruction, size)

    def start(w: Warp, site: Site, mask: int, at: Value, source: Value) -> Any:
        return _copy, (site, mask, w, one(site, mask, at), one(site, mask, source))

    sources = ((inside(instruction, to), "u64"), (inside(instruction, source), "u32"))
    return Perform((), sources, start, None, site=(("writes", True),), members=Integer(FULL))


def _copy(m: Machine, ag: Agent, site: Site, mask: int, w: Warp, address: int, source: int) -> None:
    ag.converge(mask)
    one_lane = mask & -mask
    raw = load_bytes(m, ag, site, one_lane, np.full(32, place(source)[1], np.int64), MAP_BYTES)
    where = np.full(32, address, np.int64)
    store_global(m, ag, site, one_lane, w.launch.memory, where, raw)
    ag.converge(mask)


def _is_whole(instruction: Instruction, size: Operand) -> None:
    if constant(instruction, size) != MAP_BYTES:
        not_modelled(instruction, f"{size} bytes of a tensor map")


def fence(instruction: Instruction, modifiers: Modifiers) -> Operation:
    """fence.proxy.tensormap::generic.{acquire [address], 128; release}."""
    action = modifiers.need("acquire", "release")
    modifiers.need("cta", "cluster", "gpu", "sys")
    modifiers.end()
    if action == "release":
        operands(instruction, 0)
        return Perform((), (), lambda w, site, mask: (_publish, (site, mask)), None)
    where, size = operands(instruction, 2)
    _is_whole(instruction, size)

    def start(w: Warp, site: Site, mask: int, at: Value) -> Any:
        return _acquire, (site, mask, w, one(site, mask, at))

    return Perform((), ((inside(instruction, where), "u64"),), start, None)


def _publish(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """The next release of the thread publishes its writes to tensor maps."""


def _acquire(m: Machine, ag: Agent, site: Site, mask: int, w: Warp, address: int) -> None:
    """Copies of the CTA that come after it use the tensor map as the thread sees it: it must know
    of the writes. That the copies come after it, and after the writes, the order of accesses shows.
    """
    where = np.full(32, address, np.int64)
    found = w.launch.memory.at(address, address + MAP_BYTES)
    if found is None:
        return
    load_global(m, ag, site, mask & -mask, w.launch.memory, where, MAP_BYTES)
    w.launch.fenced_maps[ag.cta.block_id, address] = len(found.order.history)
