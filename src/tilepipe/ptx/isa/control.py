"""Branches and exits (PTX ISA, "Control Flow Instructions"), and hints that change nothing."""

from __future__ import annotations

from tilepipe.ptx.definition import (
    Jump,
    Leave,
    Modifiers,
    Nothing,
    Operation,
    constant,
    defines,
    operands,
)
from tilepipe.ptx.numerics.types import Unsupported
from tilepipe.ptx.syntax.nodes import Instruction


@defines("bra")
def _bra(instruction: Instruction) -> Operation:
    operands(instruction, 1)
    modifiers = Modifiers(instruction)
    modifiers.flag("uni")
    modifiers.end()
    return Jump()


@defines("brx")
def _brx(instruction: Instruction) -> Operation:
    index, _ = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    modifiers.need("idx")
    modifiers.flag("uni")
    modifiers.end()
    return Jump(index)


@defines("ret", "exit")
def _ret(instruction: Instruction) -> Operation:
    operands(instruction, 0)
    modifiers = Modifiers(instruction)
    if instruction.opcode == "ret":
        modifiers.flag("uni")
    modifiers.end()
    return Leave()


@defines("trap", "brkpt")
def _trap(instruction: Instruction) -> Operation:
    operands(instruction, 0)
    Modifiers(instruction).end()
    return Leave(fault=instruction.opcode)


@defines("nanosleep")
def _nanosleep(instruction: Instruction) -> Operation:
    operands(instruction, 1)
    modifiers = Modifiers(instruction)
    modifiers.need("u32")
    modifiers.end()
    return Nothing()


@defines("pmevent")
def _pmevent(instruction: Instruction) -> Operation:
    """An event for a profiler: there is none."""
    (number,) = operands(instruction, 1)
    modifiers = Modifiers(instruction)
    most = 0xFFFF if modifiers.flag("mask") else 15
    modifiers.end()
    if not 0 <= constant(instruction, number) <= most:
        raise Unsupported(f"an event from 0 to {most}, not {number}")
    return Nothing()
