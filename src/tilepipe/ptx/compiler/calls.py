"""Calls of functions that the module defines: their instructions take the place of the call.

What a call passes stands in `.param` variables of the caller. They become local memory, and the
parameters of the function that is called become other names of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilepipe.errors import PtxError
from tilepipe.ptx.definition import not_modelled
from tilepipe.ptx.syntax.nodes import (
    Address,
    Arguments,
    Function,
    Guard,
    Instruction,
    Name,
    Not,
    Operand,
    Pair,
    Position,
    Register,
    Sum,
    Variable,
    Vector,
)

_MOST_INSTRUCTIONS = 1 << 16  # of all functions that a kernel calls, each time that it does
_MOST_NESTED = 64
_PARAM = {"param": "local", "param::func": "local", "param::entry": "local"}


def with_calls_inlined(function: Function, functions: Mapping[str, Function]) -> Function:
    """A kernel with the functions that it calls in the places of the calls.

    Raises:
        PtxError: a function calls itself, or passes what is not a `.param` variable.
    """
    if not any(i.opcode == "call" for i in function.instructions):
        return function
    work = _Inliner(functions)
    work.registers = list(function.registers)
    instructions = work.body(function, {r: r for r in function.registers}, {}, None)
    return replace(
        function,
        instructions=instructions,
        registers=work.registers,
        variables=list(work.variables),
    )


class _Inliner:
    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions
        self.registers: list[Register] = []
        self.variables: dict[Variable, None] = {}  # in order
        self.steps = 0
        self.calling: list[str] = []

    def body(
        self,
        function: Function,
        registers: dict[Register, Register],
        variables: dict[Variable, Variable],
        called_at: Position | None,
    ) -> list[Instruction]:
        """The instructions of a function, with targets among themselves. `registers`, `variables`:
        what stands for its own.
        """
        for variable in function.variables:
            kept = variable
            if variable.space == "param":
                kept = variables[variable] = replace(variable, space="local")
            self.variables[kept] = None
        found: list[Instruction] = []
        starts: list[int] = []
        own: list[int] = []  # instructions whose targets are those of the function
        for instruction in function.instructions:
            starts.append(len(found))
            self.steps += bool(self.calling)
            if self.steps > _MOST_INSTRUCTIONS:
                raise PtxError(
                    f"PTX line {instruction.line}: '{self.calling[0]}' with all that it calls has"
                    f" more than {_MOST_INSTRUCTIONS:,} instructions"
                )
            renamed = _renamed(instruction, registers, variables)
            if called_at is not None and renamed.position is not None:
                renamed = replace(renamed, position=_called(renamed.position, called_at))
            callee = self.callee(instruction)
            if callee is not None:
                found += self.call(renamed, callee, len(found))
                continue
            if renamed.targets:
                own.append(len(found))
            found.append(renamed)
        starts.append(len(found))
        for number in own:
            targets = tuple(starts[t] for t in found[number].targets)
            found[number] = replace(found[number], targets=targets)
        return found

    def callee(self, instruction: Instruction) -> Function | None:
        """The function of the module that an instruction calls."""
        if instruction.opcode != "call":
            return None
        names = [o.name for o in instruction.operands if isinstance(o, Name)]
        called = self.functions.get(names[0]) if names else None
        return None if called is None or called.declared_only else called

    def call(self, call: Instruction, callee: Function, at: int) -> list[Instruction]:
        """The instructions that replace a call, which is instruction `at`."""
        if callee.name in self.calling:
            raise PtxError(f"PTX line {call.line}: '{callee.name}' calls itself")
        if len(self.calling) > _MOST_NESTED:
            raise PtxError(f"PTX line {call.line}: more than {_MOST_NESTED} calls in each other")
        registers: dict[Register, Register] = {}
        for register in callee.registers:
            made = Register(register.name, register.type, len(self.registers))
            registers[register] = made
            self.registers.append(made)
        variables = dict(zip(_formal(callee), _actual(call, callee), strict=True))
        self.calling.append(callee.name)
        inside = self.body(callee, registers, variables, call.position)
        self.calling.pop()
        first = at + (call.guard is not None)
        end = first + len(inside)
        code = [_shifted(i, first, end) for i in inside]
        if call.guard is None:
            return code
        guard = Guard(call.guard.register, not call.guard.negated)
        return [_jump(call, guard, end), *code]


def _formal(callee: Function) -> list[Variable]:
    return [*callee.results, *callee.parameters]


def _actual(call: Instruction, callee: Function) -> list[Variable]:
    """The variables that a call passes: for results, then for parameters."""
    given: list[Operand] = []
    for operand in call.operands:
        if isinstance(operand, Arguments):
            given += operand.items
    if len(given) != len(_formal(callee)):
        not_modelled(call, f"{len(given)} arguments and results of '{callee.name}'")
    found = [v for v in given if isinstance(v, Variable)]
    if len(found) != len(given):
        not_modelled(call, "an argument that is not a .param variable")
    return found


def _shifted(instruction: Instruction, by: int, end: int) -> Instruction:
    """An instruction of a function that is called, `by` further on; its returns jump to `end`."""
    if instruction.opcode == "ret":
        return _jump(instruction, instruction.guard, end)
    if not instruction.targets:
        return instruction
    return replace(instruction, targets=tuple(t + by for t in instruction.targets))


def _jump(at: Instruction, guard: Guard | None, target: int) -> Instruction:
    return Instruction(
        "bra", ("uni",) if guard is None else (), (Name("return"),), guard, (target,), at.line,
        at.position,
    )  # fmt: skip


def _called(position: Position, at: Position) -> Position:
    """A position with the call at its outer end."""
    outer = at if position.called_at is None else _called(position.called_at, at)
    return replace(position, called_at=outer)


def _renamed(
    instruction: Instruction,
    registers: dict[Register, Register],
    variables: dict[Variable, Variable],
) -> Instruction:
    names_local = False

    def renamed(operand: Operand) -> Operand:
        nonlocal names_local
        match operand:
            case Register():
                return registers[operand]
            case Variable():
                names_local = names_local or operand in variables
                return variables.get(operand, operand)
            case Vector(items) | Address(items) | Arguments(items):
                return type(operand)(tuple(map(renamed, items)))
            case Pair(first, second):
                return Pair(renamed(first), renamed(second))
            case Not(inner):
                return Not(renamed(inner))
            case Sum(base, offset):
                return Sum(renamed(base), offset)
        return operand

    operands = tuple(map(renamed, instruction.operands))
    guard = instruction.guard
    if guard is not None:
        guard = Guard(registers[guard.register], guard.negated)
    modifiers = instruction.modifiers
    if names_local and instruction.opcode in ("ld", "st", "cvta"):
        modifiers = tuple(_PARAM.get(m, m) for m in modifiers)
    return replace(instruction, operands=operands, guard=guard, modifiers=modifiers)
