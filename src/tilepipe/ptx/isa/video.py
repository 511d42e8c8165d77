"""SIMD video instructions (PTX ISA, "SIMD Video Instructions"), which compilers emit for intrinsics
such as `__vabsdiffu4`. Those on selected bytes, and masks of parts, are not modelled.
"""

from __future__ import annotations

from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    compute,
    defines,
    not_modelled,
    operands,
)
from tilepipe.ptx.numerics import video
from tilepipe.ptx.syntax.nodes import Instruction, Name

_OPERATIONS = ("add", "sub", "avrg", "absdiff", "min", "max")
_WORDS = ("u32", "s32")


@defines(*(f"v{name}{count}" for name in _OPERATIONS for count in (2, 4)))
def _parts(instruction: Instruction) -> Operation:
    _refuse_selectors(instruction)
    modifiers = Modifiers(instruction)
    to, a, b = modifiers.need(*_WORDS), modifiers.need(*_WORDS), modifiers.need(*_WORDS)
    end = modifiers.take("sat", "add")
    modifiers.end()
    lanes = video.parts(
        instruction.opcode[1:-1], int(instruction.opcode[-1]), to, a, b, sat=end == "sat",
        accumulate=end == "add",
    )  # fmt: skip
    return compute(instruction, "b32", lanes, None)


@defines("vset2", "vset4")
def _compared(instruction: Instruction) -> Operation:
    _refuse_selectors(instruction)
    modifiers = Modifiers(instruction)
    a, b = modifiers.need(*_WORDS), modifiers.need(*_WORDS)
    comparison = modifiers.need("eq", "ne", "lt", "le", "gt", "ge")
    accumulate = modifiers.flag("add")
    modifiers.end()
    count = int(instruction.opcode[-1])
    lanes = video.compared(comparison, count, a, b, accumulate=accumulate)
    return compute(instruction, "b32", lanes, None)


def _refuse_selectors(instruction: Instruction) -> None:
    for operand in operands(instruction, 4):
        if isinstance(operand, Name):
            not_modelled(instruction, f"the selector of parts of {operand}")
