"""Accesses to registers from which some way leads to a wgmma that names the register, with no
wgmma.fence between (PTX ISA, "wgmma.fence").

Most kernels have none, by any way. Those that a function has are noted as they are executed, so
that a fault is reported on the way that the program takes, and on no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tilepipe.ir.facts import Group, Order
from tilepipe.ptx.compiler.control_flow import EXIT, ControlFlow
from tilepipe.ptx.compiler.uniformity import reads, results
from tilepipe.ptx.definition import Operation, Perform
from tilepipe.ptx.syntax.nodes import Instruction, Register


class Unfenced(NamedTuple):
    """Accesses that are to be noted, and what the wgmma of the function name.

    Attributes:
        accesses: number of an instruction -> the registers, each with that number.
        names: number of a wgmma -> number of a register -> which operand of which shape it is, as
            "A" or "D of m64n64k16". The ISA orders accesses to an accumulator by wgmma of one
            shape.
    """

    accesses: Mapping[int, dict[int, int]]
    names: Mapping[int, dict[int, str]]


def unfenced_registers(
    flow: ControlFlow, instructions: Sequence[Instruction], operations: Sequence[Operation]
) -> Unfenced:
    """The registers of wgmma that may be accessed with no wgmma.fence before the wgmma."""
    names = {i: found for i, op in enumerate(operations) if (found := _named(instructions[i], op))}
    as_what: dict[int, set[str]] = {}
    for found in names.values():
        for register, what in found.items():
            as_what.setdefault(register, set()).add(what)
    tracked = _bits(as_what)
    if not tracked:
        return Unfenced({}, {})
    accessed = [0 if i in names else _accessed(op) & tracked for i, op in enumerate(operations)]
    hit = _reach(flow, operations, accessed, {i: _bits(found) for i, found in names.items()})
    # of an operand of several shapes, what other wgmma do counts, too
    hit |= _bits(register for register, what in as_what.items() if len(what) > 1)
    accesses = {}
    for i, op in enumerate(operations):
        if met := hit & (_bits(names[i]) if i in names else _accessed(op)):
            accesses[i] = {register: i for register in as_what if met >> register & 1}
    return Unfenced(accesses, names)


def _named(instruction: Instruction, op: Operation) -> dict[int, str]:
    """The registers that a wgmma names, which the tensor core reads or writes; {} of others."""
    if not isinstance(op, Perform) or op.facts.issues is not Group.WGMMA:
        return {}
    shape = next(m for m in instruction.modifiers if m.startswith("m64"))
    of_a = {r.number: "A" for r, kind in op.sources if isinstance(r, Register) and kind == "b32"}
    return of_a | {r.number: f"D of {shape}" for r, _ in op.in_place if isinstance(r, Register)}


def _accessed(op: Operation) -> int:
    return _bits(r.number for r in (*reads(op), *results(op)) if isinstance(r, Register))


def _reach(
    flow: ControlFlow,
    operations: Sequence[Operation],
    accessed: Sequence[int],
    named: Mapping[int, int],
) -> int:
    """The registers that are accessed on some way to a wgmma that names them, with no fence after
    the access.
    """
    before = [0] * len(flow.blocks)
    pending = [block.number for block in flow.blocks]
    hit = 0
    while pending:
        block = flow.blocks[pending.pop()]
        since = before[block.number]
        for i in range(block.begin, block.end):
            op = operations[i]
            hit |= since & named.get(i, 0)
            since |= accessed[i]
            if isinstance(op, Perform) and op.facts.orders is Order.REGISTERS:
                since = 0
        for successor in block.successors:
            if successor != EXIT and since & ~before[successor]:
                before[successor] |= since
                pending.append(successor)
    return hit


def _bits(numbers: Iterable[int]) -> int:
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits
