"""Loads and stores (PTX ISA, "Data Movement and Conversion Instructions": ld, ldu, st), and hints
to the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilepipe.errors import PtxError, SimFault
from tilepipe.ir.facts import Facts
from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.memory_order import Scope, Strong
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import load_bytes, store_bytes, zero_bytes
from tilepipe.machine.memory.device_memory import load_global, store_global
from tilepipe.machine.memory.poison import Loaded, Origin
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in
from tilepipe.ptx.address_spaces import OFFSET_MASK, RANK_SHIFT, SHARED, WINDOW_BITS, WINDOWS
from tilepipe.ptx.definition import (
    Compute,
    Modifiers,
    Nothing,
    Operation,
    Perform,
    Spread,
    Typed,
    constant,
    defines,
    elements,
    inside,
    not_modelled,
    operands,
    where as line_of,
)
from tilepipe.ptx.isa import remote_stores
from tilepipe.ptx.isa.requests import Value, grouped, per_lane, place, rows_of
from tilepipe.ptx.lanes import Array
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Instruction, Operand, Register, Sum, Variable
from tilepipe.ptx.warp_protocol import Warp

SCOPES = {
    "cta": Scope.CTA, "cluster": Scope.CLUSTER, "gpu": Scope.GPU, "sys": Scope.SYS,
}  # fmt: skip
_L1 = (
    "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
    "L1::no_allocate",
)  # fmt: skip
_L2 = ("L2::evict_normal", "L2::evict_first", "L2::evict_last")
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


class Access(NamedTuple):
    """The modifiers of a load or store.

    Attributes:
        space: "" for a generic address. order: "weak", "volatile", "relaxed", ... scope: or "".
        constant: it takes what it loads for read-only (.nc).
        hinted: the last operand is a cache policy. length, kind: of the vector.
    """

    space: str
    order: str
    scope: str
    hinted: bool
    length: int
    kind: str
    constant: bool = False

    @property
    def strong(self) -> Strong | None:
        return None if self.order == "weak" else strong(self.order, self.scope, self.kind)

    @property
    def watches(self) -> bool:
        """True if a load may see what other clusters write during the launch."""
        return self.space in ("", "global") and self.order != "weak"

    @property
    def nbytes(self) -> int:
        return TYPES[self.kind].bits // 8 * self.length

    @property
    def address_type(self) -> str:
        return "u32" if self.space in SHARED else "u64"

    def operands(self, instruction: Instruction) -> tuple[Operand, Operand]:
        """The first two; the policy changes no number."""
        first, second, *_ = operands(instruction, 3 if self.hinted else 2)
        return first, second


def strong(order: str, scope: str, kind: str) -> Strong:
    """A strong access by the names of its order and its scope; a volatile one has none (PTX ISA,
    ld.volatile: relaxed, of the scope of the system).
    """
    return Strong(
        SCOPES[scope or "sys"], TYPES[kind].bits // 8, order in ("acquire", "acq_rel"),
        order in ("release", "acq_rel"), order == "volatile",
    )  # fmt: skip


def wide(access: Strong) -> bool:
    """True if the scope of an access has threads of other clusters."""
    return access.scope >= Scope.GPU


def _access(instruction: Instruction) -> Access:
    """The modifiers of ld, st or ldu. The space may stand before the order, as in the
    `ld.global.acquire.gpu` of CUTLASS; the others stand in the order of the ISA.
    """
    modifiers = Modifiers(instruction)
    loads = instruction.opcode != "st"
    mmio = modifiers.flag("mmio")
    orders = ("weak", "volatile", "relaxed", "acquire" if loads else "release")
    spaces = ("param", "param::entry", "param::func", "global", "local", *SHARED)
    order, scope, space = modifiers.in_any_order(
        ("relaxed",) if mmio else orders,
        ("sys",) if mmio else tuple(SCOPES),
        (*spaces, *(("const",) if loads else ())),
    )
    if mmio and not order:
        modifiers.need("relaxed")
    order = order or "weak"
    if order not in ("weak", "volatile"):
        scope = scope or modifiers.need(*(("sys",) if mmio else SCOPES))
    elif scope:
        not_modelled(instruction, f"the modifier '.{scope}'")
    caching = modifiers.take(*(("ca", "cg", "cs", "lu", "cv") if loads else
                               ("wb", "cg", "cs", "wt")))  # fmt: skip
    constant = loads and modifiers.flag("nc")
    if constant and space != "global":
        not_modelled(instruction, "'.nc' of another space than .global")
    evicts = ""
    if not caching:
        modifiers.take(*_L1)
        evicts = modifiers.take(*_L2)
    hinted = modifiers.flag("L2::cache_hint")
    if loads:
        modifiers.take("L2::64B", "L2::128B", "L2::256B")
    count = _VECTORS.get(modifiers.take(*_VECTORS), 1)
    kind = modifiers.need(*(name for name, t in TYPES.items() if t.kind in _MOVED))
    modifiers.end()
    nbytes = TYPES[kind].bits // 8 * count
    most = 32 if space == "global" and not caching else 16
    if evicts and nbytes != 32:
        not_modelled(instruction, f"'.{evicts}' of other than .v8.b32 and .v4.b64")
    if nbytes > most or (count == 8 and nbytes != 32):
        not_modelled(instruction, f"a vector of {nbytes} bytes")
    return Access(space, order, scope, hinted, count, kind, constant)


_MOVED = ("unsigned", "signed", "bits", "float")


@defines("ld", "ldu")
def _ld(instruction: Instruction) -> Operation:
    access = _access(instruction)
    destination, where = access.operands(instruction)
    address = inside(instruction, where)
    targets = elements(instruction, destination, access.length)
    results = tuple((target, access.kind) for target in targets)
    if access.space.startswith("param") and _names_parameter(address):
        return _load_parameter(instruction, address, results)

    def start(w: Warp, site: Site, mask: int, at: Value) -> Any:
        return load(w, site, mask, access.space, at, access.nbytes, access.strong, access.constant)

    # one address in local memory is another byte in each lane, and a generic one may be of it
    spread: Spread = "lanes" if access.space in ("", "local") else "memory"
    return Perform(
        results, ((address, access.address_type),), start, _split(access.kind, access.length),
        Facts(noticed=access.strong is not None), spread=spread, watches=access.watches,
        strong=access.strong is not None,
    )  # fmt: skip


def load(
    w: Warp,
    site: Site,
    mask: int,
    space: str,
    at: Value,
    nbytes: int,
    strong: Strong | None = None,
    constant: bool = False,
) -> Any:
    """The request of a load; an address of no space is generic."""
    space, at = space_of(w, site, mask, space, at)
    if space in SHARED:
        addresses, cta = shared_places(w, mask, at)
        return load_bytes, (site, mask, addresses, nbytes, cta, strong)
    if space == "local":
        return local_load, (site, mask, w, per_lane(at), nbytes)
    if space.startswith("param"):
        return parameter_load, (site, mask, w, per_lane(at), nbytes)
    return load_global, (site, mask, w.launch.memory, per_lane(at), nbytes, strong, constant)


def store(
    w: Warp,
    site: Site,
    mask: int,
    space: str,
    at: Value,
    rows: Array,
    strong: Strong | None = None,
) -> Any:
    """The request of a store of a row of bytes by each lane."""
    space, at = space_of(w, site, mask, space, at)
    if space in SHARED:
        addresses, cta = shared_places(w, mask, at)
        return store_bytes, (site, mask, addresses, rows, cta, strong)
    if space == "local":
        return local_store, (site, mask, w, per_lane(at), rows)
    return store_global, (site, mask, w.launch.memory, per_lane(at), rows, strong)


def space_of(w: Warp, site: Site, mask: int, space: str, at: Value) -> tuple[str, Value]:
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


def in_shared(w: Warp, site: Site, mask: int, space: str, at: Value) -> Value:
    """The address in the window of shared memory, of an operand that must lie there. Without a
    space the address is generic, and has 64 bits (`address_type`).

    Raises:
        SimFault: it lies elsewhere.
    """
    kind, found = space_of(w, site, mask, space, at)
    if kind not in SHARED:
        address = (
            int(at) if not isinstance(at, np.ndarray) else int(at[(mask & -mask).bit_length() - 1])
        )
        raise SimFault(
            f"{site.what}: the generic address {address:#x} lies in {kind} memory; the operand is"
            " in shared memory. Give the instruction the space, or convert the address with"
            " cvta.shared.",
            site.loc,
        )
    return found


def address_type(space: str) -> str:
    """The type of an address operand: those of shared memory have 32 bits, generic ones 64."""
    return "u32" if space else "u64"


def local_load(
    m: Machine, ag: Agent, site: Site, mask: int, w: Warp, addresses: Array, nbytes: int
) -> Array:
    """ld.local: each thread's own memory, which no other can reach."""
    out = np.zeros((32, nbytes), np.uint8)
    marks: Array | None = None
    for lane in lanes_in(mask):
        at = int(addresses[lane])
        out[lane] = _own(w, site, lane, at, nbytes)
        if not (there := w.written[lane, at : at + nbytes]).all():
            if marks is None:
                marks = np.zeros_like(out)
            marks[lane] = np.where(there, 0, 0xFF)
    if marks is not None:
        ag.poison = Loaded(_read_first(ag, site, w, addresses, marks), marks)
    return out


def _read_first(ag: Agent, site: Site, w: Warp, addresses: Array, marks: Array) -> Origin:
    """Where poison in local memory was read first: here, or before it was stored there."""
    lane = int(marks.any(axis=1).argmax())
    at = int(addresses[lane])
    stored = w.carried.get((lane, at + int(marks[lane].argmax())))
    if stored is not None:
        return stored
    return Origin(
        f"{ag} reads local memory (thread {lane}: bytes {at:#x}..{at + marks.shape[1] - 1:#x}) with"
        f" {site.what}, but {np.count_nonzero(marks[lane])} of {marks.shape[1]} bytes were never"
        " written. Fill them first.",
        site,
    )


def local_store(
    m: Machine, ag: Agent, site: Site, mask: int, w: Warp, addresses: Array, rows: Array
) -> None:
    """st.local."""
    for lane in lanes_in(mask):
        at = int(addresses[lane])
        _own(w, site, lane, at, rows.shape[1])[:] = rows[lane]
        w.written[lane, at : at + rows.shape[1]] = True


def local_store_poison(
    m: Machine, ag: Agent, site: Site, mask: int, w: Warp, addresses: Array, rows: Array,
    marks: Array, origin: Origin,
) -> None:  # fmt: skip
    """st.local of values of which `marks` has bits that are poison."""
    local_store(m, ag, site, mask, w, addresses, rows)
    for lane in lanes_in(mask):
        for byte in np.flatnonzero(marks[lane]).tolist():
            at = int(addresses[lane]) + byte
            w.written[lane, at] = False
            w.carried[lane, at] = origin


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
        if at + nbytes > len(raw):
            raise SimFault(
                f"{site.what}: thread {lane} reads {nbytes} bytes at {at:#x} of the kernel's"
                f" {len(raw)} bytes of parameters",
                site.loc,
            )
        out[lane] = raw[at : at + nbytes]
    return out


def _names_parameter(address: Operand) -> bool:
    return isinstance(address.base if isinstance(address, Sum) else address, Variable)


def _load_parameter(
    instruction: Instruction, address: Operand, results: tuple[Typed, ...]
) -> Compute:
    """A parameter of the kernel, which the launch has fixed: a constant of the run."""
    base, offset = (address.base, address.offset) if isinstance(address, Sum) else (address, 0)
    size = TYPES[results[0][1]].bits // 8
    assert isinstance(base, Variable)
    if not 0 <= offset <= base.nbytes - size * len(results):
        said = (
            f"{line_of(instruction)}: {instruction}: it reads {size * len(results)} bytes at offset"
            f" {offset} of the parameter '{base}', which has {base.nbytes}"
        )
        fault = f"w.fault({said!r})".replace("{", "{{").replace("}", "}}")
        return Compute(results, ((base, "u64"),), fault, (fault,) * len(results))
    template = tuple(
        f"w.parameter({{0}} + {offset + size * i}, {size})" for i in range(len(results))
    )

    # for a register that other instructions write, too, and that varies between lanes
    one = f"w.parameter_value({{0}} + {offset}, '{results[0][1]}')"

    def several(*_: Array) -> Array:
        raise PtxError(f"ld.param of {len(results)} values to registers that vary: not modelled")

    lanes = one if len(results) == 1 else several
    return Compute(results, ((base, "u64"),), lanes, template)


def shared_places(w: Warp, mask: int, address: Value) -> tuple[Array, int | None]:
    """Offsets of the lanes in shared memory, and the CTA in which they all are; None: this one."""
    at = per_lane(address).astype(np.int64)
    rank = int(at[(mask & -mask).bit_length() - 1]) >> RANK_SHIFT
    return at & OFFSET_MASK, None if rank == w.rank else rank


def _split(kind: str, count: int) -> Callable[..., Any]:
    """The bytes of each lane as the values of a vector."""
    dtype = TYPES[kind].dtype

    def finish(w: Warp, raw: Array) -> tuple[Array, ...]:
        values = raw.view(dtype)
        return tuple(values[:, i] for i in range(count))

    return finish


@defines("st")
def _st(instruction: Instruction) -> Operation:
    if instruction.modifiers[:1] == ("async",):
        return remote_stores.store(instruction)
    if instruction.modifiers[:1] == ("bulk",):
        return _zeros(instruction)
    access = _access(instruction)
    where, source = access.operands(instruction)
    address = inside(instruction, where)
    sources = elements(instruction, source, access.length)
    dtype = TYPES[access.kind].dtype

    def start(w: Warp, site: Site, mask: int, at: Value, *values: Value) -> Any:
        return store(w, site, mask, access.space, at, rows_of(values, dtype), access.strong)

    if access.space.startswith("param"):
        not_modelled(instruction, "a store to a parameter of the kernel")
    return Perform(
        (), ((address, access.address_type), *((s, access.kind) for s in sources)), start, None,
        Facts(noticed=access.strong is not None), site=(("writes", True),),
        strong=access.strong is not None, carries=1,
    )  # fmt: skip


def _zeros(instruction: Instruction) -> Operation:
    """st.bulk: zeros to shared memory."""
    modifiers = Modifiers(instruction)
    modifiers.need("bulk")
    modifiers.flag("weak")
    space = modifiers.take("shared::cta")
    modifiers.end()
    where, size, value = operands(instruction, 3)
    if constant(instruction, value) != 0:
        not_modelled(instruction, f"the value {value}")

    def start(w: Warp, site: Site, mask: int, at: Value, size: Value) -> Any:
        def zeros(lanes: int, at: int, size: int) -> Any:
            rank, offset = place(int(in_shared(w, site, lanes, space, at)))
            return zero_bytes, (site, lanes, offset, size, None if rank == w.rank else rank)

        return grouped(site, mask, zeros, at, size)

    wide = "u32" if isinstance(size, Register) and size.type.endswith("32") else "u64"
    sources = ((inside(instruction, where), address_type(space)), (size, wide))
    return Perform((), sources, start, None, site=(("writes", True),))


# -- hints -------------------------------------------------------------------------------


@defines("prefetch", "prefetchu")
def _prefetch(instruction: Instruction) -> Operation:
    (where,) = operands(instruction, 1)
    inside(instruction, where)
    modifiers = Modifiers(instruction)
    if instruction.opcode == "prefetchu":
        modifiers.need("L1")
    elif modifiers.take("const", "param", "param::entry"):
        modifiers.need("tensormap")
    elif not modifiers.flag("tensormap"):
        modifiers.take("global", "local")
        modifiers.need("L1", "L2", "L2::evict_last", "L2::evict_normal")
    modifiers.end()
    return Nothing()


@defines("applypriority", "discard")
def _of_a_line(instruction: Instruction) -> Operation:
    """`discard` leaves the bytes of a line undefined; what they were is one legal value."""
    where, size = operands(instruction, 2)
    inside(instruction, where)
    modifiers = Modifiers(instruction)
    modifiers.flag("global")
    modifiers.need("L2::evict_normal" if instruction.opcode == "applypriority" else "L2")
    modifiers.end()
    if constant(instruction, size) != 128:
        not_modelled(instruction, f"a size of {size} bytes")
    return Nothing()


@defines("createpolicy")
def _policy(instruction: Instruction) -> Operation:
    """A cache policy, which changes no number: 0."""
    modifiers = Modifiers(instruction)
    form = modifiers.need("fractional", "range", "cvt")
    if form == "cvt":
        modifiers.need("L2")
    else:
        if form == "range":
            modifiers.flag("global")
        modifiers.need(*_L2, "L2::evict_unchanged")
        modifiers.take("L2::evict_first", "L2::evict_unchanged")
    modifiers.need("b64")
    modifiers.end()
    destination, *_ = operands(instruction, *{"range": (4,), "cvt": (2,)}.get(form, (1, 2)))
    return Compute(((destination, "b64"),), (), "0", "0")
