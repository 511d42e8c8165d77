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
from tilepipe.ptx.definition import Compute, Jump, Nothing, Operation, Perform
from tilepipe.ptx.numerics.scalars import SCALAR_FUNCTIONS
from tilepipe.ptx.syntax.nodes import Instruction, Integer, Not, Operand, Register

_LONGEST = 64  # instructions on the way back to the test


def spins(flow: ControlFlow, operations: Sequence[Operation], number: int) -> bool:
    """Whether instruction `number`, a test, is tried again and again until it succeeds."""
    test = operations[number]
    assert isinstance(test, Perform)
    known: dict[Register, Any] = {
        destination: False for destination, _ in test.results if isinstance(destination, Register)
    }
    at = number + 1
    for _ in range(_LONGEST):
        if at == number:
            return True
        if at >= len(operations):
            return False
        instruction, op = flow.instructions[at], operations[at]
        taken = _executes(instruction, known)
        if taken is None:
            return False
        at += 1
        if not taken or isinstance(op, Nothing):
            continue
        if isinstance(op, Jump) and op.index is None:
            at = instruction.targets[0]
        elif isinstance(op, Compute) and isinstance(op.scalar, str) and len(op.results) == 1:
            values = [_value(operand, known) for operand, _ in op.sources]
            destination = op.results[0][0]
            if any(v is None for v in values) or not isinstance(destination, Register):
                return False
            known[destination] = eval(op.scalar.format(*values), dict(SCALAR_FUNCTIONS))
        else:
            return False
    return False


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
