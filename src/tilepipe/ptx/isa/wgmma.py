"""wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").

The accumulator stands in registers that the tensor core reads and writes after the instruction has
been issued. While it may, they hold `IN_FLIGHT`, so that an instruction that uses one is a fault
and not a wrong number.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tilepipe.errors import SimFault
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
from tilepipe.machine.memory.matrix_operands import MatrixDescriptor, MatrixOperand
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
)
from tilepipe.ptx.execution.requests import Value, one, per_lane
from tilepipe.ptx.execution.warp import IN_FLIGHT, Warp
from tilepipe.ptx.lanes import FULL
from tilepipe.ptx.syntax.nodes import Instruction, Integer, Operand, Register, Vector

_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_TYPES: dict[str, DType] = {
    "f16": dtypes.float16, "bf16": dtypes.bfloat16, "tf32": dtypes.float32,
    "e4m3": dtypes.float8_e4m3, "e5m2": dtypes.float8_e5m2,
}  # fmt: skip
_ROWS = 16
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
                return wgmma.wgmma_wait, (site, mask, pending)

            facts = Facts(awaits=Group.WGMMA, noticed=True)
            return Perform((), (), wait, _retire, facts, members=Integer(FULL))
        case "commit_group":
            modifiers.end()

            def commit(w: Warp, site: Site, mask: int) -> Any:
                return wgmma.wgmma_commit, (site, mask)

            facts = Facts(commits=Group.WGMMA, noticed=True)
            return Perform((), (), commit, None, facts, members=Integer(FULL))
        case _:
            modifiers.end()

            def fence(w: Warp, site: Site, mask: int) -> Any:
                return wgmma.wgmma_fence, (site, mask)

            facts = Facts(orders=Order.REGISTERS)
            return Perform((), (), fence, None, facts, members=Integer(FULL))


def _retire(w: Warp, answer: None) -> tuple[()]:
    """After a wgmma.wait_group: the accumulators of finished wgmma are back in their registers."""
    for numbers in [n for n, frag in w.fragments.items() if not frag.writers]:
        values = to_registers(w.fragments.pop(numbers).data)
        for number, value in zip(numbers, values, strict=True):
            w.registers[number] = value.view(w.code.content[number])
    return ()


def _multiply(instruction: Instruction, modifiers: Modifiers) -> Operation:
    shape = _SHAPE.fullmatch(modifiers.any())
    to, a_type, b_type = modifiers.any(), modifiers.any(), modifiers.any()
    modifiers.end()
    if shape is None or to != "f32" or a_type not in _TYPES or b_type not in _TYPES:
        not_modelled(instruction, "this combination of shape and types")
    cols, depth = int(shape[1]), int(shape[2])
    accumulator, a, b, *rest = instruction.operands
    registers = accumulator.items if isinstance(accumulator, Vector) else ()
    numbers = tuple(r.number for r in registers if isinstance(r, Register))
    if len(numbers) != cols // 2:
        not_modelled(instruction, f"an accumulator of {len(registers)} registers")
    adds: Operand = rest[0] if rest else Integer(1)
    constants = [constant(instruction, o) for o in rest[1:]]
    if constants[:2] not in ([], [1, 1]):
        not_modelled(instruction, "a negated operand")
    transposed = constants[2:]
    a_in_registers = isinstance(a, Vector)
    b_is_transposed = bool(transposed[-1]) if transposed else False
    a_is_transposed = bool(transposed[0]) if len(transposed) == 2 else False
    a_operands = a.items if isinstance(a, Vector) else (a,)
    dtype_a, dtype_b = _TYPES[a_type], _TYPES[b_type]

    def start(w: Warp, site: Site, mask: int, add: Value, b_bits: Value, *a_values: Value) -> Any:
        operand_b = _operand(site, mask, b_bits, dtype_b, cols, b_is_transposed)
        operand_a: MatrixOperand | Frag
        if a_in_registers:
            operand_a = _fragment_a(a_values, dtype_a, depth)
        else:
            operand_a = _operand(site, mask, a_values[0], dtype_a, 64, a_is_transposed)
        frag = w.fragments.get(numbers)
        adding = bool(one(site, mask, add))
        if frag is None:
            frag = w.fragments[numbers] = _accumulator(w, numbers, cols, adding)
        return wgmma.wgmma, (site, mask, frag, operand_a, None, operand_b, None, adding)

    add_type = "pred" if isinstance(adds, Register) else "u32"
    kind = "b32" if a_in_registers else "u64"
    return Perform(
        (), ((adds, add_type), (b, "u64"), *typed(a_operands, kind)), start, None, _MMA,
        in_place=typed(registers, "f32"), members=Integer(FULL),
        site=(("flops", 2 * 16 * cols * depth),),
    )  # fmt: skip


def _operand(
    site: Site, mask: int, bits: Value, dtype: DType, rows: int, transposed: bool
) -> MatrixOperand:
    descriptor = MatrixDescriptor.of_wgmma(one(site, mask, bits))
    return MatrixOperand(descriptor, dtype, rows, not transposed)


def _accumulator(w: Warp, numbers: tuple[int, ...], cols: int, adding: bool) -> Frag:
    """The registers of an accumulator, from now on the tensor core's."""
    frag = Frag(WarpMatrix("accumulator", dtypes.float32, _ROWS, cols))
    values = [w.registers[n] for n in numbers]
    if adding:
        if any(v is IN_FLIGHT for v in values):
            raise SimFault(
                "some registers of the accumulator belong to another one that is in flight"
            )
        frag.data = from_registers(np.stack([v.view(np.float32) for v in values]))
        frag.defined = frag.all_columns
    for n in numbers:
        w.registers[n] = IN_FLIGHT
    return frag


def _fragment_a(values: tuple[Value, ...], dtype: DType, depth: int) -> Frag:
    frag = Frag(WarpMatrix("A", dtype, _ROWS, depth))
    raw = np.stack([per_lane(v).astype(np.uint32) for v in values])
    elements = raw.view(dtype.numpy).reshape(len(values), 32, -1)
    frag.data = np.zeros((_ROWS, depth), storage(dtype))
    frag.data[operand_a_places(dtype.nbytes)] = elements
    frag.defined = frag.all_columns
    return frag
