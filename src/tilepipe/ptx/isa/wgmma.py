"""wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").

The accumulator stands in registers that the tensor core reads and writes after the instruction has
been issued. While it may, they hold `IN_FLIGHT`, so that an instruction that uses one is a fault
and not a wrong number. Those of A it reads: each later instruction of a wgmma looks whether they
still hold what they held.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tilepipe.errors import PtxError, SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.facts import Facts, Group, Order, Scope, Unit
from tilepipe.machine.memory.fragments import (
    Frag,
    WarpMatrix,
    from_registers,
    operand_a_places,
    to_registers,
)
from tilepipe.machine.memory.matrix_operands import K_BYTES, MatrixDescriptor, MatrixOperand
from tilepipe.machine.memory.poison import Origin, PoisonedMatrix
from tilepipe.machine.memory.storage import storage
from tilepipe.machine.sites import Site
from tilepipe.machine.units import wgmma
from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    Perform,
    constant,
    defines,
    not_modelled,
    operands,
    typed,
    where,
)
from tilepipe.ptx.isa.requests import Value, one, per_lane
from tilepipe.ptx.lanes import FULL, WARP, Array
from tilepipe.ptx.syntax.nodes import Instruction, Integer, Operand, Register, Vector
from tilepipe.ptx.warp_protocol import IN_FLIGHT, Warp

_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_BY_8 = range(8, 257, 8)


class _Kind(NamedTuple):
    """The forms for a type of A (PTX ISA, wgmma: Matrix shape; wgmma.mma_async, Syntax).

    Attributes:
        dtype: of its elements. partners: types of B. accumulators: of D. cols: N.
    """

    dtype: DType
    partners: tuple[str, ...]
    accumulators: tuple[str, ...] = ("f32",)
    cols: range | tuple[int, ...] = _BY_8

    @property
    def depth(self) -> int:
        """K of one instruction."""
        return K_BYTES // self.dtype.nbytes


# The PTX ISA's table of types has both of .s8 or both of .u8; its syntax and CUTLASS mix them.
_INTEGER = (("s8", "u8"), ("s32",), (8, 16, 24, *range(32, 257, 16)))
_FP8 = (("e4m3", "e5m2"), ("f32", "f16"))
_KINDS = {
    "f16": _Kind(dtypes.float16, ("f16",), ("f32", "f16")),
    "bf16": _Kind(dtypes.bfloat16, ("bf16",)),
    "tf32": _Kind(dtypes.float32, ("tf32",)),
    "e4m3": _Kind(dtypes.float8_e4m3, *_FP8), "e5m2": _Kind(dtypes.float8_e5m2, *_FP8),
    "s8": _Kind(dtypes.int8, *_INTEGER), "u8": _Kind(dtypes.uint8, *_INTEGER),
}  # fmt: skip
_ACCUMULATORS = {"f32": dtypes.float32, "f16": dtypes.float16, "s32": dtypes.int32}
_ROWS = 16
_ALL_BITS = np.uint64(0xFFFFFFFF)
_MMA = Facts(unit=Unit.TENSOR_CORE, issues=Group.WGMMA, together=Scope.WARPGROUP)


@defines("wgmma")
def _wgmma(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    action = modifiers.need("fence", "commit_group", "wait_group", "mma_async")
    modifiers.need("sync")
    modifiers.need("aligned")
    match action:
        case "mma_async":
            return _multiply(instruction, modifiers)
        case "wait_group":
            modifiers.end()
            pending = constant(instruction, *operands(instruction, 1))

            def wait(w: Warp, site: Site, mask: int) -> Any:
                w.wgmma.operands_must_be_unchanged()
                return wgmma.wgmma_wait, (site, mask, pending)

            facts = Facts(awaits=Group.WGMMA, noticed=True)
            return Perform((), (), wait, _retire, facts, members=Integer(FULL))
        case "commit_group":
            modifiers.end()

            def commit(w: Warp, site: Site, mask: int) -> Any:
                w.wgmma.operands_must_be_unchanged()
                return wgmma.wgmma_commit, (site, mask)

            facts = Facts(commits=Group.WGMMA, noticed=True)
            return Perform((), (), commit, None, facts, members=Integer(FULL))
        case _:
            modifiers.end()

            def fence(w: Warp, site: Site, mask: int) -> Any:
                w.wgmma.unfenced.clear()
                return wgmma.wgmma_fence, (site, mask)

            facts = Facts(orders=Order.REGISTERS)
            return Perform((), (), fence, None, facts, members=Integer(FULL))


def _retire(w: Warp, answer: None) -> tuple[()]:
    """After a wgmma.wait_group: the accumulators of finished wgmma are back in their registers."""
    for numbers in [n for n, frag in w.fragments.items() if not frag.writers]:
        frag = w.fragments.pop(numbers)
        values = to_registers(frag.data)
        if frag.ir.dtype is dtypes.float16:  # two columns in each register
            pairs = values.astype(np.float16).reshape(-1, 2, WARP).transpose(0, 2, 1)
            values = np.ascontiguousarray(pairs).view(np.uint32)[..., 0]
        for number, value in zip(numbers, values, strict=True):
            w.registers[number] = value.view(w.code.content[number])
        if frag.poison is not None:
            marks: Array = to_registers(frag.poison.marks)
            if frag.ir.dtype is dtypes.float16:
                marks = np.logical_or(marks[::2], marks[1::2])
            w.poison.put(numbers, np.where(marks, _ALL_BITS, 0), frag.poison.origin)
    return ()


def _multiply(instruction: Instruction, modifiers: Modifiers) -> Operation:
    shape = _SHAPE.fullmatch(modifiers.any())
    saturates = modifiers.flag("satfinite")
    to = modifiers.need(*_ACCUMULATORS)
    a_type, b_type = modifiers.need(*_KINDS), modifiers.need(*_KINDS)
    modifiers.end()
    dtype, given, dtype_b = _ACCUMULATORS[to], _KINDS[a_type], _KINDS[b_type].dtype
    dtype_a, integers = given.dtype, given.dtype.is_integer
    cols, depth = (int(shape[1]), int(shape[2])) if shape is not None else (0, 0)
    steps = "multiples of 8" if given.cols is _BY_8 else "8, 24 and multiples of 16"
    for field, value, allowed, said in (
        ("the type of B", b_type, given.partners, ", ".join(given.partners)),
        ("the type of D", to, given.accumulators, ", ".join(given.accumulators)),
        ("K", depth, (given.depth,), str(given.depth)),
        ("N", cols, given.cols, f"{steps} up to 256"),
    ):
        if value not in allowed:
            _lacks(instruction, a_type, field, value, said)
    if saturates and not integers:
        _lacks(instruction, a_type, "a modifier", ".satfinite", "none; it is for integers")
    accumulator, a, b, *rest = instruction.operands
    registers = accumulator.items if isinstance(accumulator, Vector) else ()
    numbers = tuple(r.number for r in registers if isinstance(r, Register))
    if len(numbers) != cols // (4 if to == "f16" else 2):
        not_modelled(instruction, f"an accumulator of {len(registers)} registers")
    adds: Operand = rest[0] if rest else Integer(1)
    constants = [constant(instruction, o) for o in rest[1:]]
    a_in_registers = isinstance(a, Vector)
    turned = 0 if dtype_a.nbytes != 2 else 1 if a_in_registers else 2
    if len(constants) not in ((0,) if integers else (2 + turned,)):
        not_modelled(instruction, f"{len(instruction.operands)} operands")
    if any(c not in (1, -1) for c in constants[:2]) or any(c not in (0, 1) for c in constants[2:]):
        not_modelled(instruction, f"the constants {constants}")
    negated = [c == -1 for c in constants[:2]] or [False, False]
    transposed = constants[2:]
    b_is_transposed = bool(transposed[-1]) if transposed else False
    a_is_transposed = bool(transposed[0]) if len(transposed) == 2 else False
    a_operands = a.items if isinstance(a, Vector) else (a,)
    if a_in_registers and len(a_operands) != 4:
        not_modelled(instruction, f"A in {len(a_operands)} registers")
    a_registers = [r for r in a_operands if isinstance(r, Register)]

    def start(w: Warp, site: Site, mask: int, add: Value, b_bits: Value, *a_values: Value) -> Any:
        w.wgmma.must_be_fenced(site)
        operand_b = _operand(site, mask, b_bits, dtype_b, cols, b_is_transposed)
        operand_a: MatrixOperand | Frag
        if a_in_registers:
            w.wgmma.operands_must_be_unchanged()
            operand_a = _fragment_a(a_values, dtype_a, depth)
            found = w.poison.of([r.number for r in a_registers])
            if found is not None:
                operand_a.poison = _poison_of_a(operand_a, *found)
            w.wgmma.keep(a_registers, operand_a, site)
            if negated[0]:
                operand_a.data = -operand_a.data
        else:
            operand_a = _operand(site, mask, a_values[0], dtype_a, 64, a_is_transposed)
            operand_a = operand_a._replace(negated=negated[0])
        operand_b = operand_b._replace(negated=negated[1])
        frag = w.fragments.get(numbers)
        adding = bool(one(site, mask, add))
        if frag is None:
            frag = w.fragments[numbers] = _accumulator(w, numbers, dtype, cols, adding)
        operands = frag, operand_a, None, operand_b, None, adding, saturates
        return wgmma.wgmma, (site, mask, *operands)

    add_type = "pred" if isinstance(adds, Register) else "u32"
    kind = "b32" if a_in_registers else "u64"
    return Perform(
        (), ((adds, add_type), (b, "u64"), *typed(a_operands, kind)), start, None, _MMA,
        in_place=typed(registers, "b32" if to == "f16" else to), members=Integer(FULL),
        carries=2, site=(("flops", 2 * 16 * cols * depth),),
    )  # fmt: skip


def _lacks(
    instruction: Instruction, a_type: str, field: str, value: object, allowed: str
) -> NoReturn:
    """Raises PtxError for a field with a value that the type of A does not have."""
    raise PtxError(
        f"{where(instruction)}: {instruction.name}: {field} is {value}; allowed with A of"
        f" .{a_type}: {allowed} (PTX ISA, wgmma.mma_async)"
    )


def _operand(
    site: Site, mask: int, bits: Value, dtype: DType, rows: int, transposed: bool
) -> MatrixOperand:
    descriptor = MatrixDescriptor.of_wgmma(one(site, mask, bits))
    return MatrixOperand(descriptor, dtype, rows, not transposed)


def _accumulator(w: Warp, numbers: tuple[int, ...], dtype: DType, cols: int, adding: bool) -> Frag:
    """The registers of an accumulator, from now on the tensor core's."""
    frag = Frag(WarpMatrix("accumulator", dtype, _ROWS, cols))
    values = [w.registers[n] for n in numbers]
    if adding:
        if any(v is IN_FLIGHT for v in values):
            raise SimFault(
                "some registers of the accumulator belong to another one that is in flight"
            )
        if dtype is dtypes.float16:
            raw = np.stack([v.view(np.uint32) for v in values])[..., None].view(np.float16)
            elements = raw.transpose(0, 2, 1).reshape(-1, WARP).astype(np.float32)
        else:
            elements = np.stack([v.view(dtype.numpy) for v in values])
        frag.data = from_registers(elements)
        frag.defined = frag.all_columns
        if (found := w.poison.of(numbers)) is not None:
            marks = np.repeat(found[0] != 0, 2 if dtype is dtypes.float16 else 1, axis=0)
            frag.poison = PoisonedMatrix(found[1], from_registers(marks))
    w.poison.put(numbers, None, None)
    for n in numbers:
        w.registers[n] = IN_FLIGHT
    return frag


def _poison_of_a(frag: Frag, marks: Array, origin: Origin) -> PoisonedMatrix:
    """The poisoned elements of an A in four registers. `marks`: the poisoned bits of these."""
    size = frag.ir.dtype.nbytes
    parts = np.ascontiguousarray(marks.astype(np.uint32))[..., None].view(f"u{size}")
    found = np.zeros(frag.data.shape, np.bool_)
    found[operand_a_places(size)] = parts != 0
    return PoisonedMatrix(origin, found)


def _fragment_a(values: tuple[Value, ...], dtype: DType, depth: int) -> Frag:
    frag = Frag(WarpMatrix("A", dtype, _ROWS, depth))
    raw = np.stack([per_lane(v).astype(np.uint32) for v in values])
    elements = raw.view(dtype.numpy).reshape(len(values), 32, -1)
    frag.data = np.zeros((_ROWS, depth), storage(dtype))
    frag.data[operand_a_places(dtype.nbytes)] = elements
    frag.defined = frag.all_columns
    return frag
