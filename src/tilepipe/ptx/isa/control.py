"""Branches and exits (PTX ISA, "Control Flow Instructions"), and miscellaneous instructions."""

from __future__ import annotations

from tilepipe.ptx.definition import (
    Compute,
    Jump,
    Leave,
    Modifiers,
    Nothing,
    Operation,
    constant,
    defines,
    not_modelled,
    operands,
)
from tilepipe.ptx.lanes import FULL
from tilepipe.ptx.numerics.types import Unsupported
from tilepipe.ptx.syntax.nodes import Instruction, Integer


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


@defines("setmaxnreg")
def _setmaxnreg(instruction: Instruction) -> Operation:
    """Register counts decide nothing here; the count must be one that the hardware takes, and the
    whole warp executes it.
    """
    modifiers = Modifiers(instruction)
    modifiers.need("inc", "dec")
    modifiers.need("sync")
    modifiers.need("aligned")
    modifiers.need("u32")
    modifiers.end()
    (count,) = operands(instruction, 1)
    registers = constant(instruction, count)
    if registers % 8 or not 24 <= registers <= 256:
        not_modelled(instruction, f"{registers} registers (a multiple of 8 in 24..256)")
    return Compute((), (), "", (), members=Integer(FULL))
