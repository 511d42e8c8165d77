"""Operands of a function that nothing defines: names that no declaration has, addresses that the
reader has not, and operands that hold no value.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from tilepipe.errors import PtxError
from tilepipe.ptx.compiler.uniformity import written
from tilepipe.ptx.definition import Compute, Operation, Perform, Typed, operation, where
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.special_registers import MODELLED
from tilepipe.ptx.syntax.nodes import (
    Float,
    Function,
    Instruction,
    Integer,
    Name,
    Not,
    Operand,
    Register,
    Sink,
    SpecialRegister,
    Sum,
    Variable,
    leaves,
)

Finding = tuple[Instruction, str]
_MAY_BE_WIDER = {"cvt", "ld", "ldu"}
_NAME_LABELS = {"bra", "brx", "call"}  # opcodes of which an operand is a label or a function


def operations_of(function: Function, functions: Container[str]) -> list[Operation]:
    """The operation of each instruction. `functions`: the names of those of the module.

    Raises:
        PtxError: one is not modelled, or uses what nothing defines; the first of these.
    """
    found = [operation(i) for i in function.instructions]
    for instruction, reason in undefined(function, found, functions):
        raise PtxError(f"{where(instruction)}: {instruction}: {reason}")
    return found


def findings(function: Function, functions: Container[str]) -> list[Finding]:
    """All instructions that are not modelled, or that use what nothing defines, each with the
    first reason, in the order of the text.
    """
    operations: list[Operation | None] = []
    refused: dict[Instruction, str] = {}
    for instruction in function.instructions:
        try:
            operations.append(operation(instruction))
        except PtxError as error:
            operations.append(None)
            # the message names the line, which a finding has apart
            refused[instruction] = str(error).removeprefix(f"{where(instruction)}: ")
    for instruction, reason in undefined(function, operations, functions):
        refused.setdefault(instruction, f"{instruction}: {reason}")
    return [(i, refused[i]) for i in function.instructions if i in refused]


def undefined(
    function: Function, operations: Sequence[Operation | None], functions: Container[str]
) -> Iterator[Finding]:
    """Instructions that use what nothing defines. `operations`: None for an instruction that is
    not modelled. A register that nothing writes is no such thing: compilers leave some where the
    value means nothing (`compiler.unwritten`).
    """
    unplaced = {v for v in function.variables if v.space not in ("shared", "local")}
    for instruction, op in zip(function.instructions, operations, strict=True):
        for reason in (
            *_names(instruction, unplaced, functions),
            *(() if op is None else _operands(instruction, op)),
        ):
            yield instruction, reason


def _names(
    instruction: Instruction, unplaced: Container[Variable], functions: Container[str]
) -> Iterator[str]:
    """Names without a declaration, and variables without an address (`unplaced`)."""
    for operand in instruction.operands:
        for leaf in leaves(operand):
            match leaf:
                case Name(name) if instruction.opcode in _NAME_LABELS:
                    pass
                case Name(name) if name in functions:
                    yield f"the address of the function '{name}' is not modelled"
                case Name(name):
                    yield f"'{name}' is not declared"
                case Variable(space="global" | "const", external=True):
                    yield f"the variable '{leaf}' is defined in another module: link it first"
                case Variable(space=space) if leaf in unplaced:
                    yield f"the variable '{leaf}' in .{space} memory of a function is not modelled"
                case SpecialRegister(name) if name not in MODELLED:
                    yield f"the special register {leaf} is not modelled"


def _operands(instruction: Instruction, op: Operation) -> Iterator[str]:
    """Operands of a wrong kind."""
    sources: list[Typed] = []
    if isinstance(op, Compute | Perform):
        sources += op.sources
        if op.members is not None:
            sources.append((op.members, "u32"))
    for operand, kind in sources:
        if isinstance(operand, Name) and instruction.opcode in _NAME_LABELS:
            yield f"'{operand}' is not declared"
        elif not _is_value(operand):
            yield f"{operand} is not a value"
        elif isinstance(operand, Register) and not _fits(operand, kind, instruction, op):
            yield f"{operand} is a .{operand.type} register, and the instruction reads a .{kind}"
    for destination, kind in written(op):
        if not isinstance(destination, Register | Sink):
            yield f"{destination} is not a register, and the instruction writes it"
        elif isinstance(destination, Register) and not _fits(destination, kind, instruction, op):
            register = f"{destination} is a .{destination.type} register"
            yield f"{register}, and the instruction writes a .{kind}"


def _fits(register: Register, kind: str, instruction: Instruction, op: Operation) -> bool:
    """True if a register has the width of the type in which it is used. Those of accesses and
    conversions may be wider (PTX ISA, "Operand Size Exceeding Instruction-Type Size").
    """
    if isinstance(op, Perform) or instruction.opcode in _MAY_BE_WIDER or register.type == "pred":
        return (register.type == "pred") == (kind == "pred")
    return TYPES[register.type].bits == TYPES[kind].bits


def _is_value(operand: Operand) -> bool:
    match operand:
        case Sum(base) | Not(base):
            return _is_value(base)
        case Register() | Integer() | Float() | SpecialRegister() | Variable():
            return True
    return isinstance(operand, Name)  # which has been refused as such
