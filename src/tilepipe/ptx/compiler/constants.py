"""Registers that hold one constant all the time: compilers load even the arguments of `shfl.sync`
into registers, and a definition can say more of an operand that it can see.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilepipe.ptx.compiler.control_flow import ControlFlow
from tilepipe.ptx.syntax.nodes import (
    Address,
    Arguments,
    Function,
    Instruction,
    Integer,
    Not,
    Operand,
    Pair,
    Register,
    Sum,
    Vector,
    leaves,
)


def with_constants(function: Function) -> list[Instruction]:
    """The instructions of a function, with each register that a `mov` of an integer alone writes
    replaced by the integer wherever it is read, if every way there leads through the `mov`.
    """
    instructions = function.instructions
    writers = Counter(
        leaf
        for instruction in instructions
        for operand in instruction.operands[:1]
        if not isinstance(operand, Address)
        for leaf in leaves(operand)
        if isinstance(leaf, Register)
    )
    constants: dict[Register, Integer] = {}
    for instruction in instructions:
        match instruction:
            case Instruction(
                opcode="mov", guard=None, operands=(Register() as register, Integer() as value)
            ) if writers[register] == 1 and register.type != "pred":
                constants[register] = value
    if constants:
        constants = _always_written(ControlFlow(function), constants)
    if not constants:
        return instructions
    return [_replaced(i, constants) for i in instructions]


def _always_written(
    flow: ControlFlow, constants: dict[Register, Integer]
) -> dict[Register, Integer]:
    """Those of the registers that are written on every way to where they are read."""
    written: dict[Register, int] = {}
    read: dict[Register, list[int]] = {}
    for number, instruction in enumerate(flow.instructions):
        first = instruction.operands[0] if instruction.operands else None
        for operand in instruction.operands:
            for leaf in leaves(operand):
                if not isinstance(leaf, Register) or leaf not in constants:
                    continue
                if operand is first and instruction.opcode == "mov" and leaf is operand:
                    written[leaf] = number
                else:
                    read.setdefault(leaf, []).append(number)
    start = flow.of_instruction[0]
    around = {
        home: flow.reached(start, without=home)
        for home in {flow.of_instruction[at] for at in written.values()}
    }
    found = {}
    for register, value in constants.items():
        at = written[register]
        home = flow.of_instruction[at]
        if all(
            flow.of_instruction[use] not in around[home]
            and (flow.of_instruction[use] != home or use > at)
            for use in read.get(register, ())
        ):
            found[register] = value
    return found


def _replaced(instruction: Instruction, constants: dict[Register, Integer]) -> Instruction:
    first = instruction.operands[0] if instruction.operands else None
    written = isinstance(first, Register) and first in constants
    operands = [o if o is first and written else _in(o, constants) for o in instruction.operands]
    if all(a is b for a, b in zip(operands, instruction.operands, strict=True)):
        return instruction
    return replace(instruction, operands=tuple(operands))


def _in(operand: Operand, constants: dict[Register, Integer]) -> Operand:
    match operand:
        case Register():
            return constants.get(operand, operand)
        case Vector(items) | Address(items) | Arguments(items):
            found = tuple(_in(item, constants) for item in items)
            same = all(a is b for a, b in zip(found, items, strict=True))
            return operand if same else type(operand)(found)
        case Sum(base, offset):
            inner = _in(base, constants)
            if isinstance(inner, Integer):
                return Integer(inner.value + offset)
            return operand
        case Pair() | Not():
            return operand
    return operand
