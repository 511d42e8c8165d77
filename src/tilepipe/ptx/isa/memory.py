"""Loads and stores (PTX ISA, "Data Movement and Conversion Instructions": ld, st, stmatrix)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import load_bytes, store_bytes, store_matrix
from tilepipe.machine.memory.device_memory import load_global, store_global
from tilepipe.machine.sites import Site
from tilepipe.ptx.address_spaces import OFFSET_MASK, RANK_SHIFT, WINDOW_BITS, WINDOWS
from tilepipe.ptx.definition import (
    Compute,
    Modifiers,
    Operation,
    Perform,
    Typed,
    defines,
    inside,
    not_modelled,
    operands,
)
from tilepipe.ptx.execution.requests import Value, lanes_in, per_lane
from tilepipe.ptx.execution.warp import Warp
from tilepipe.ptx.lanes import Array
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Instruction, Operand, Sum, Variable, Vector

_CACHE = (
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal", "L1::evict_unchanged",
    "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B",
)  # fmt: skip
_SHARED = ("shared", "shared::cta", "shared::cluster")


def _elements(instruction: Instruction, operand: Operand, count: int) -> tuple[Operand, ...]:
    found = operand.items if isinstance(operand, Vector) else (operand,)
    if len(found) != count:
        not_modelled(instruction, f"a vector of {len(found)}")
    return found


def _modifiers(instruction: Instruction) -> tuple[str, int, str]:
    """(space, elements of the vector, type) of a load or store."""
    modifiers = Modifiers(instruction)
    modifiers.take("weak", "volatile", "relaxed", "acquire", "release")
    modifiers.take("cta", "cluster", "gpu", "sys")
    space = modifiers.take("param", "param::entry", "global", "local", "const", *_SHARED)
    while modifiers.take(*_CACHE):
        pass
    count = int(modifiers.take("v2", "v4", "v8")[1:] or 1)
    kind = modifiers.any()
    modifiers.end()
    if kind not in TYPES and kind != "b128":
        not_modelled(instruction, f"the type '.{kind}'")
    return space, count, kind


@defines("ld")
def _ld(instruction: Instruction) -> Operation:
    destination, where = operands(instruction, 2)
    space, count, kind = _modifiers(instruction)
    address = inside(instruction, where)
    targets = _elements(instruction, destination, count)
    results = tuple((target, kind) for target in targets)
    if space.startswith("param"):
        return _load_parameter(instruction, address, results)
    nbytes = TYPES[kind].bits // 8 * count if kind in TYPES else 16
    wide = "u32" if space in _SHARED else "u64"

    def start(w: Warp, site: Site, mask: int, at: Value) -> Any:
        return load(w, site, mask, space, at, nbytes)

    return Perform(results, ((address, wide),), start, _split(kind, count))


def load(w: Warp, site: Site, mask: int, space: str, at: Value, nbytes: int) -> Any:
    """The request of a load; an address of no space is generic."""
    space, at = _space_of(w, site, mask, space, at)
    if space in _SHARED:
        addresses, cta = shared_places(w, mask, at)
        return load_bytes, (site, mask, addresses, nbytes, cta)
    if space == "local":
        return local_load, (site, mask, w, per_lane(at), nbytes)
    if space == "param":
        return parameter_load, (site, mask, w, per_lane(at), nbytes)
    return load_global, (site, mask, w.launch.memory, per_lane(at), nbytes)


def store(w: Warp, site: Site, mask: int, space: str, at: Value, rows: Array) -> Any:
    """The request of a store of a row of bytes by each lane."""
    space, at = _space_of(w, site, mask, space, at)
    if space in _SHARED:
        addresses, cta = shared_places(w, mask, at)
        return store_bytes, (site, mask, addresses, rows, cta)
    if space == "local":
        return local_store, (site, mask, w, per_lane(at), rows)
    return store_global, (site, mask, w.launch.memory, per_lane(at), rows)


def _space_of(w: Warp, site: Site, mask: int, space: str, at: Value) -> tuple[str, Value]:
    """The space and the address in it; of a generic address, by the window that it lies in."""
    if space:
        return space, at
    first = int(at) if not isinstance(at, np.ndarray) else int(at[(mask & -mask).bit_length() - 1])
    window = first >> WINDOW_BITS
    for name, start in WINDOWS.items():
        if window == start >> WINDOW_BITS:
            if isinstance(at, np.ndarray):
                mixed = any(int(at[lane]) >> WINDOW_BITS != window for lane in lanes_in(mask))
                if mixed:
                    raise SimFault(
                        f"{site.what}: lanes give generic addresses of different state spaces",
                        site.loc,
                    )
                return name, at.astype(np.int64) - start
            return name, at - start
    return "global", at


def local_load(
    m: Machine, ag: Agent, site: Site, mask: int, w: Warp, addresses: Array, nbytes: int
) -> Array:
    """ld.local: each thread's own memory, which no other can reach."""
    out = np.zeros((32, nbytes), np.uint8)
    for lane in lanes_in(mask):
        out[lane] = _own(w, site, lane, int(addresses[lane]), nbytes)
    return out


def local_store(
    m: Machine, ag: Agent, site: Site, mask: int, w: Warp, addresses: Array, rows: Array
) -> None:
    """st.local."""
    for lane in lanes_in(mask):
        _own(w, site, lane, int(addresses[lane]), rows.shape[1])[:] = rows[lane]


def _own(w: Warp, site: Site, lane: int, address: int, nbytes: int) -> Array:
    found: Array = w.local[lane, address : address + nbytes]
    if len(found) < nbytes:
        raise SimFault(
            f"{site.what}: thread {lane} accesses {nbytes} bytes at {address:#x} of its"
            f" {w.local.shape[1]} bytes of local memory",
            site.loc,
        )
    return found


def parameter_load(
    m: Machine, ag: Agent, site: Site, mask: int, w: Warp, addresses: Array, nbytes: int
) -> Array:
    """A load of the kernel's parameters by a generic address."""
    raw = np.frombuffer(w.launch.parameters, np.uint8)
    out = np.zeros((32, nbytes), np.uint8)
    for lane in lanes_in(mask):
        at = int(addresses[lane])
        out[lane] = raw[at : at + nbytes]
    return out


def _load_parameter(
    instruction: Instruction, address: Operand, results: tuple[Typed, ...]
) -> Compute:
    """A parameter of the kernel, which the launch has fixed: a constant of the run."""
    base, offset = (address.base, address.offset) if isinstance(address, Sum) else (address, 0)
    if not isinstance(base, Variable):
        not_modelled(instruction, "a parameter at an address that is computed")
    size = TYPES[results[0][1]].bits // 8
    template = tuple(
        f"w.parameter({{0}} + {offset + size * i}, {size})" for i in range(len(results))
    )
    kind = results[0][1]
    dtype = TYPES[kind].dtype

    def lanes(*_: Array) -> Array:
        raise AssertionError("parameters are equal in all lanes")

    assert dtype is not None
    return Compute(results, ((base, "u64"),), lanes, template)


def shared_places(w: Warp, mask: int, address: Value) -> tuple[Array, int | None]:
    """Offsets of the lanes in shared memory, and the CTA in which they all are; None: this one."""
    at = per_lane(address).astype(np.int64)
    rank = int(at[(mask & -mask).bit_length() - 1]) >> RANK_SHIFT
    return at & OFFSET_MASK, None if rank == w.rank else rank


def _split(kind: str, count: int) -> Callable[..., Any]:
    """The bytes of each lane as the values of a vector."""
    if kind == "b128":
        return lambda w, raw: (int.from_bytes(raw[w.first].tobytes(), "little"),)
    dtype = TYPES[kind].dtype

    def finish(w: Warp, raw: Array) -> tuple[Array, ...]:
        values = raw.view(dtype)
        return tuple(values[:, i] for i in range(count))

    return finish


@defines("st")
def _st(instruction: Instruction) -> Operation:
    where, source = operands(instruction, 2)
    space, count, kind = _modifiers(instruction)
    address = inside(instruction, where)
    sources = _elements(instruction, source, count)
    dtype = TYPES[kind].dtype

    def start(w: Warp, site: Site, mask: int, at: Value, *values: Value) -> Any:
        return store(w, site, mask, space, at, _rows(values, dtype))

    wide = "u32" if space in _SHARED else "u64"
    return Perform((), ((address, wide), *((s, kind) for s in sources)), start, None)


def _rows(values: tuple[Value, ...], dtype: np.dtype[Any]) -> Array:
    """The bytes that each lane stores."""
    rows = np.empty((32, len(values)), dtype)
    for i, value in enumerate(values):
        rows[:, i] = value
    return rows.view(np.uint8)


@defines("stmatrix")
def _stmatrix(instruction: Instruction) -> Operation:
    where, source = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    modifiers.need("aligned")
    modifiers.need("m8n8")
    count = int(modifiers.need("x1", "x2", "x4")[1:])
    transposed = modifiers.flag("trans")
    modifiers.need("shared", "shared::cta")
    modifiers.need("b16")
    modifiers.end()
    sources = _elements(instruction, source, count)

    def start(w: Warp, site: Site, mask: int, at: Value, *values: Value) -> Any:
        addresses, _ = shared_places(w, mask, at)
        registers = np.stack([per_lane(v).astype(np.uint32) for v in values])
        return store_matrix, (site, mask, addresses, registers, transposed)

    return Perform(
        (), ((inside(instruction, where), "u32"), *((s, "b32") for s in sources)), start, None
    )
