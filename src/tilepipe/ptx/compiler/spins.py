"""Which tests of a barrier are waits: those after which, where they fail, comes nothing but the
same test again.

`mbarrier.try_wait` may fail at any time, and programs put it in a loop. Where a walk from a failed
test leads back to it, and on the way there is nothing but registers that are computed from the
failure alone, the loop is a wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilepipe.ptx.compiler.control_flow import ControlFlow
from tilepipe.ptx.compiler.uniformity import reads, written
from tilepipe.ptx.definition import Compute, Jump, Nothing, Operation, Perform
from tilepipe.ptx.numerics.scalars import SCALAR_FUNCTIONS
from tilepipe.ptx.syntax.nodes import (
    Instruction,
    Integer,
    Not,
    Operand,
    Register,
    SpecialRegister,
    leaves,
)

_LONGEST = 64  # instructions on the way back to the test


def spins(flow: ControlFlow, operations: Sequence[Operation], number: int) -> bool:
    """Whether instruction `number`, a test, is tried again and again until it succeeds."""
    test = operations[number]
    assert isinstance(test, Perform)
    known: dict[Register, Any] = {
        destination: False for destination, _ in test.results if isinstance(destination, Register)
    }
    at = number + 1
    begin = flow.blocks[flow.of_instruction[number]].begin
    path: list[int] = []
    for _ in range(_LONGEST):
        if at == number:
            return _same_again(flow, operations, path, number)
        if at >= len(operations):
            return False
        instruction, op = flow.instructions[at], operations[at]
        taken = _executes(instruction, known)
        if taken is None:
            return False
        path.append(at)
        at += 1
        if not taken or isinstance(op, Nothing):
            continue
        if isinstance(op, Jump) and op.index is None:
            at = instruction.targets[0]
        elif isinstance(op, Compute) and isinstance(op.scalar, str) and len(op.results) == 1:
            values = [_value(operand, known) for operand, _ in op.sources]
            destination = op.results[0][0]
            if not isinstance(destination, Register):
                return False
            if any(v is None for v in values):
                if not begin <= at - 1 < number:
                    return False
                known.pop(destination, None)
                continue
            known[destination] = eval(op.scalar.format(*values), dict(SCALAR_FUNCTIONS))
        else:
            return False
    return False


def _same_again(
    flow: ControlFlow, operations: Sequence[Operation], path: Sequence[int], test: int
) -> bool:
    """Whether what stands right before the test, on the way back to it, gives the same values each
    time: it reads nothing that the way changes, but for what it has written itself.
    """
    begin = flow.blocks[flow.of_instruction[test]].begin
    changed = {leaf for at in (test, *path) for leaf in _destinations(operations[at])}
    own: set[Operand] = set()
    for at in path:
        if not begin <= at < test:
            continue
        op, instruction = operations[at], flow.instructions[at]
        if isinstance(op, Compute):
            if instruction.guard is not None or op.active or op.members is not None:
                return False
            for leaf in reads(op):
                if isinstance(leaf, SpecialRegister) or (leaf in changed and leaf not in own):
                    return False
        own |= _destinations(op)
    return True


def _destinations(op: Operation) -> set[Operand]:
    return {leaf for operand, _ in written(op) for leaf in leaves(operand)}


def _executes(instruction: Instruction, known: dict[Register, Any]) -> bool | None:
    """Whether the guard lets it run; None where that depends on more than the failed test."""
    if instruction.guard is None:
        return True
    value = known.get(instruction.guard.register)
    return None if value is None else bool(value) is not instruction.guard.negated


def _value(operand: Operand, known: dict[Register, Any]) -> Any:
    match operand:
        case Register():
            return known.get(operand)
        case Integer(value):
            return value
        case Not(inner):
            value = _value(inner, known)
            return None if value is None else not value
    return None
