"""Registers that hold one constant all the time: compilers load even the arguments of `shfl.sync`
into registers, and a definition can say more of an operand that it can see.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilepipe.ptx.syntax.nodes import (
    Address,
    Arguments,
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


def with_constants(instructions: list[Instruction]) -> list[Instruction]:
    """The instructions, with each register that a `mov` of an integer alone writes replaced by the
    integer wherever it is read.
    """
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
    if not constants:
        return instructions
    return [_replaced(i, constants) for i in instructions]


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
