"""The condition code: a register that add.cc writes and addc reads, and no instruction names (PTX
ISA, "Extended-Precision Integer Arithmetic Instructions").
"""

from __future__ import annotations

from dataclasses import replace

from tilepipe.ptx.syntax.nodes import Function, Instruction, Pair, Register

_OPCODES = {"add", "addc", "sub", "subc", "mad", "madc"}


def with_condition_code(function: Function) -> Function:
    """The function with a predicate for the condition code, as a last operand `cc|cc` of the
    instructions that use it.
    """
    if not any(_uses(i) for i in function.instructions):
        return function
    code = Register("%cc", "pred", len(function.registers))
    named = Pair(code, code)
    found = [
        replace(i, operands=(*i.operands, named)) if _uses(i) else i for i in function.instructions
    ]
    return replace(function, instructions=found, registers=[*function.registers, code])


def _uses(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    return opcode in _OPCODES and (opcode[-1] == "c" or "cc" in instruction.modifiers)
