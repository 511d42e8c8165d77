"""Which bits of the registers of a warp are poison: loaded from memory that nothing has written,
or made of such (`compiler.poison_flow` has the rules).

Poison is no fault where it is loaded: compilers load, and compute, before they know whether they
need to. It is one where it decides something (a branch, a guard, an address, the size or the mask
of an operation, an operand of a copy or of an atomic operation) or leaves (a store to global
memory). A warp keeps track only from its first load of poison on, and as long as a register that it
may still read holds some; otherwise it runs code that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np

from tilepipe.machine.faults import poison as poison_faults
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import store_bytes, store_matrix, store_poison
from tilepipe.machine.memory.device_memory import store_global
from tilepipe.machine.memory.poison import Loaded, Origin
from tilepipe.machine.sites import Site
from tilepipe.machine.units.tcgen05_by_address import store_words
from tilepipe.machine.units.wgmma import wgmma
from tilepipe.ptx.compiler.compiled_function import CompiledFunction
from tilepipe.ptx.compiler.poison_flow import Flow, Result, Source
from tilepipe.ptx.definition import Compute, Perform
from tilepipe.ptx.isa.matrices import width_of
from tilepipe.ptx.isa.memory import local_store, local_store_poison
from tilepipe.ptx.lanes import WARP, Array, Lanes, lanes_from_mask
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Vector
from tilepipe.ptx.warp_protocol import Launch

_NONE = np.zeros(WARP, np.uint64)


class Warp(Protocol):
    """The warp whose registers they are. `active`: the lanes that run; `first` of them."""

    active: Lanes
    launch: Launch
    code: CompiledFunction

    @property
    def first(self) -> int: ...


class Marked(NamedTuple):
    """The bits of a register that are poison in each lane, and where they were read."""

    bits: Array
    origin: Origin


class PoisonedRegisters:
    """The registers of a warp that hold poison.

    Attributes:
        marks: by number. loaded: poison in the answer that the next segment takes.
        machine: the cluster's.
    """

    def __init__(self, warp: Warp) -> None:
        self.marks: dict[int, Marked] = {}
        self.loaded: Loaded | None = None
        self.machine: Machine | None = None
        self._warp = warp

    def key(self, live: int = -1) -> Hashable:
        """The marks of live registers, for a state key."""
        if not self.marks:
            return ()
        return tuple((n, m.bits.tobytes()) for n, m in sorted(self.marks.items()) if live >> n & 1)

    def keep(self, live: int) -> None:
        """Forgets registers that are not live."""
        for number in [n for n in self.marks if not live >> n & 1]:
            del self.marks[number]

    def of(self, numbers: Sequence[int]) -> tuple[Array, Origin] | None:
        """The poison in registers, (registers, lanes), as bits of 64; None where there is none."""
        if not self.marks:
            return None
        found = [self.marks.get(n) for n in numbers]
        origin = next((m.origin for m in found if m is not None), None)
        if origin is None:
            return None
        return np.stack([_NONE if m is None else m.bits for m in found]), origin

    def put(self, numbers: Sequence[int], marks: Array | None, origin: Origin | None) -> None:
        """Registers hold poison where `marks`, (registers, lanes), has bits; None: nowhere."""
        for i, number in enumerate(numbers):
            self.marks.pop(number, None)
            if marks is not None and origin is not None and marks[i].any():
                self.marks[number] = Marked(marks[i].astype(np.uint64), origin)

    def fill(self, number: int, kind: str, origin: Origin) -> None:
        """A register of a type holds nothing but poison."""
        self.marks[number] = Marked(np.full(WARP, _mask(kind), np.uint64), origin)

    def take(self, numbers: Sequence[int], placed: Callable[[Array], Array]) -> None:
        """Registers hold an answer of the machine. `placed`: the answer's words in the registers,
        (registers, lanes).
        """
        loaded, self.loaded = self.loaded, None
        if loaded is not None and loaded.marks is not None:
            self.put(numbers, placed(loaded.marks), loaded.origin)
        elif self.marks:
            self.put(numbers, None, None)

    # -- faults ------------------------------------------------------------------------

    def used(self, origin: Origin, site: Site) -> None:
        """A request without a result has read poison."""
        assert self.machine is not None
        poison_faults.used(self.machine, origin, site.loc, f"{site.what} works with it")

    def _used(self, flow: Flow, origin: Origin, how: str) -> None:
        assert self.machine is not None
        instruction = flow.instruction
        loc = self._warp.launch.location(instruction)
        poison_faults.used(
            self.machine, origin, loc, f"{instruction} (PTX line {instruction.line}): {how}"
        )

    # -- instructions ------------------------------------------------------------------

    def compute(
        self, flow: Flow, lanes: Lanes | None, values: Callable[[], list[Array]] | None
    ) -> None:
        """An instruction that computes; it has not yet. `lanes`: that execute it, None for none.
        `values`: its sources.
        """
        marks = self.marks
        if not marks:
            return
        guard = marks.get(flow.guard)
        if lanes is not None:
            self._decides(flow, lanes)
            found = next((marks[n] for n in flow.reads if n in marks), None)
            if found is None:
                for result in flow.results:
                    if result.number in marks:
                        self._set(result, _NONE, lanes, marks[result.number].origin)
            else:
                passed = self._passed(flow, lanes, values)
                for result, bits in zip(flow.results, passed, strict=True):
                    self._set(result, bits, lanes, found.origin)
        if guard is not None:  # whether these lanes execute it is not known
            unknown = self._warp.active & (guard.bits != 0)
            for result in flow.results:
                self._set(result, _whole(result.kind, unknown), unknown, guard.origin)

    def check(self, flow: Flow, lanes: Lanes | None) -> None:
        """An instruction that does more than compute: its guard, and what decides what it does."""
        marks = self.marks
        if not marks:
            return
        guard = marks.get(flow.guard)
        if guard is not None and guard.bits[self._warp.active].any():
            self._used(flow, guard.origin, f"its guard {self._name(flow.guard)} decides")
        if lanes is not None:
            self._decides(flow, lanes)

    def answered(self, flow: Flow, lanes: Lanes) -> None:
        """A request has been answered, and its results are in their registers."""
        op, loaded = flow.op, self.loaded
        assert isinstance(op, Perform)
        self.loaded = None
        if loaded is None or loaded.marks is None or not flow.results:
            for result in flow.results:
                if result.number in self.marks:
                    self._set(result, _NONE, lanes, self.marks[result.number].origin)
            return
        assert op.finish is not None
        found = op.finish(self._warp, loaded.marks)
        for result in flow.results:
            self._set(result, _bits(found[result.index]), lanes, loaded.origin)

    def sent(self, flow: Flow, request: Any, again: Callable[..., Any]) -> Any:
        """The request of an instruction whose operands may hold poison. `again`: the request with
        other values for these.
        """
        op, (perform, args) = flow.op, request
        if not self.marks or perform is wgmma:
            return request
        assert isinstance(op, Perform)
        lanes = lanes_from_mask(args[1])
        carried = flow.sources[op.carries :]
        bits = [np.where(lanes, self._source(source), 0) for source in carried]
        if not any(b.any() for b in bits):
            return request
        origin = next(m.origin for n in flow.reads if (m := self.marks.get(n)) is not None)
        if perform in (store_bytes, store_matrix, local_store):
            values = [_as(kind.kind, b) for kind, b in zip(carried, bits, strict=True)]
            twin = again(*values)[1]
            if perform is local_store:
                return local_store_poison, (*args, twin[4], origin)
            return store_poison, (args[0], args[1], perform, args, twin[3], origin)
        places = {store_global: "global", store_words: "tensor"}
        place = places.get(perform)
        self._used(flow, origin, f"it is stored to {place} memory" if place else "it is an operand")
        return request

    # -- parts -------------------------------------------------------------------------

    def _decides(self, flow: Flow, lanes: Lanes) -> None:
        for number in flow.decides:
            found = self.marks.get(number)
            if found is not None and found.bits[lanes].any():
                self._used(flow, found.origin, f"{self._name(number)} decides")

    def _name(self, number: int) -> str:
        return str(self._warp.code.function.registers[number])

    def _set(self, result: Result, bits: Array, lanes: Lanes, origin: Origin) -> None:
        """Lanes of a register hold poison in some bits of what has been written to it."""
        number = result.number
        old = self.marks.get(number)
        if not result.varying:
            bits = np.full(WARP, bits[self._warp.first], np.uint64)
        elif old is not None:
            bits = np.where(lanes, bits, old.bits)
        else:
            bits = np.where(lanes, bits, _NONE)
        if not bits.any():
            self.marks.pop(number, None)
            return
        kind = TYPES[result.kind]
        if kind.kind == "signed" and kind.bits < result.bits:
            sign = bits >> np.uint64(kind.bits - 1) & np.uint64(1) != 0
            high = np.uint64((1 << result.bits) - (1 << kind.bits))
            bits = np.where(lanes & sign, bits | high, bits)
        self.marks[number] = Marked(bits, origin)

    def _source(self, source: Source) -> Array:
        """The bits of a source that are poison, as the type in which it is read has them."""
        found = _NONE
        for number in source.numbers:
            if (marked := self.marks.get(number)) is not None:
                found = found | marked.bits
        whole = _mask(source.kind)
        if source.plain or not found.any():
            return found & whole
        return np.where(found != 0, whole, np.uint64(0))

    def _passed(
        self, flow: Flow, lanes: Lanes, values: Callable[[], list[Array]] | None
    ) -> list[Array]:
        """The poison in each result, of the lanes that execute the instruction."""
        bits = [np.where(lanes, self._source(source), np.uint64(0)) for source in flow.sources]
        marked = [b.any() for b in bits]
        match flow.way:
            case "bits" if values is not None and not any(marked[i] for i in flow.controls):
                return self._by_bits(flow, values(), bits)
            case "shuffle" if not any(marked[1:]):
                return self._shuffled(flow, lanes, values, bits[0])
            case "product":
                return _product(flow, bits)
            case "elements":
                return [_by_element(result.kind, bits) for result in flow.results]
            case "warp" | "shuffle":
                everywhere = np.full(WARP, any(marked))
                return [_whole(result.kind, everywhere) for result in flow.results]
        some = np.logical_or.reduce([b != 0 for b in bits])
        return [_whole(result.kind, some) for result in flow.results]

    def _by_bits(self, flow: Flow, values: list[Array], bits: list[Array]) -> list[Array]:
        """A bit is poison if it changes as the poison does, each source's by itself."""
        function = flow.by_bits
        assert function is not None
        there = [i for i, b in enumerate(bits) if b.any()]
        first: list[Array] | None = None
        found = [_NONE] * len(flow.results)
        for ones in product((False, True), repeat=len(there)):
            given = list(values)
            for i, one in zip(there, ones, strict=True):
                given[i] = _filled(values[i], bits[i], one)
            made = function(*given)
            each = [_bits(made[r.index] if isinstance(made, tuple) else made) for r in flow.results]
            if first is None:
                first = each
            found = [f | (e ^ o) for f, e, o in zip(found, each, first, strict=True)]
        return found

    def _shuffled(
        self, flow: Flow, lanes: Lanes, values: Callable[[], list[Array]] | None, bits: Array
    ) -> list[Array]:
        """Poison goes where the values of other lanes go."""
        op = flow.op
        assert isinstance(op, Compute)
        assert values is not None
        assert not isinstance(op.lanes, str)
        _, chosen, bounds = values()
        found = []
        for value in (bits.astype(np.uint32), np.zeros(WARP, np.uint32)):
            made = op.lanes(lanes, value, chosen, bounds)
            found.append(made[0] if isinstance(made, tuple) else made)
        moved = (found[0] ^ found[1]).astype(np.uint64)
        return [moved if result.index == 0 else _NONE for result in flow.results]


def _mask(kind: str) -> np.uint64:
    """The bits of a type; of 128 those that 64 stand for."""
    return np.uint64((1 << min(TYPES[kind].bits, 64)) - 1)


def _whole(kind: str, lanes: Array) -> Array:
    """All bits of a type, in some lanes."""
    return np.where(lanes, _mask(kind), np.uint64(0))


def _bits(values: Array) -> Array:
    """The bits of values as numbers of 64; where they are wider, all if there are any."""
    values = np.ascontiguousarray(np.broadcast_to(values, (WARP,)))
    if values.dtype == np.bool_:
        return values.astype(np.uint64)
    if values.dtype.itemsize > 8:
        raw = values.view(np.uint8).reshape(WARP, -1)
        return np.where(raw.any(axis=1), ~np.uint64(0), np.uint64(0))
    bits: Array = values.view(f"u{values.dtype.itemsize}")
    return bits.astype(np.uint64)


def _as(kind: str, bits: Array) -> Array:
    """Bits as values of a type."""
    dtype = TYPES[kind].dtype
    if dtype == np.bool_:
        return bits.astype(np.bool_)
    if dtype.itemsize > 8:
        raw = np.where(bits != 0, np.uint8(0xFF), np.uint8(0))
        wide: Array = np.repeat(raw, dtype.itemsize).view(dtype)
        return wide
    found: Array = bits.astype(f"u{dtype.itemsize}").view(dtype)
    return found


def _filled(values: Array, bits: Array, ones: bool) -> Array:
    """Values with some bits set, or not."""
    values = np.ascontiguousarray(np.broadcast_to(values, (WARP,)))
    if values.dtype == np.bool_:
        return np.where(bits != 0, ones, values)
    unsigned = np.dtype(f"u{values.dtype.itemsize}")
    own, marked = values.view(unsigned), bits.astype(unsigned)
    found: Array = (own | marked if ones else own & ~marked).view(values.dtype)
    return found


def _by_element(kind: str, bits: list[Array]) -> Array:
    """The poison in a result of a packed type: of the elements of which those of a source have
    any.
    """
    count, width = TYPES[kind].count, TYPES[kind].bits // TYPES[kind].count
    found = _NONE
    for i in range(count):
        part = np.uint64(((1 << width) - 1) << (i * width))
        some = np.logical_or.reduce([b & part != 0 for b in bits])
        found = found | np.where(some, part, np.uint64(0))
    return found


def _product(flow: Flow, bits: list[Array]) -> list[Array]:
    """The poison in a product of matrices of floats: the NaNs in one of which the poison is NaN and
    the rest 0.
    """
    op = flow.op
    assert isinstance(op, Compute)
    assert not isinstance(op.lanes, str)
    kinds = flow.instruction.modifiers[-4:]
    of_c = flow.instruction.operands[3]
    registers_of_c = len(of_c.items) if isinstance(of_c, Vector) else 1
    given = []
    for left, (source, marked) in enumerate(zip(flow.sources, bits, strict=True), -len(bits)):
        size = width_of(kinds[1] if left < -registers_of_c else kinds[3]) // 8
        raw = _as(source.kind, marked)
        parts = raw.view(f"u{size}")
        whole = np.where(parts != 0, ~parts.dtype.type(0), parts.dtype.type(0))
        given.append(whole.view(raw.dtype))
    found = op.lanes(*given)
    return [np.where(_bits(found[r.index]) != 0, _mask(r.kind), np.uint64(0)) for r in flow.results]
