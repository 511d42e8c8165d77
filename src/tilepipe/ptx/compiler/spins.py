"""Which tests of a barrier are waits: those after which, where they fail, comes nothing but the
same test again.

`mbarrier.try_wait` may fail at any time, and programs put it in a loop. Where a walk from a failed
test leads back to it, and on the way there are only registers that get the same values each time,
the loop is a wait. Compilers put what stands after the wait, and what its address comes from, into
that loop: instructions of the test's own block are executed whatever the answer is, so these may
compute values of all kinds. Elsewhere on the way, registers are computed from the failure alone,
and nothing may read them afterwards: they would tell that the test has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilepipe.ptx.compiler.control_flow import ControlFlow
from tilepipe.ptx.compiler.liveness import Liveness
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
    known: dict[Operand, Any] = dict.fromkeys(_destinations(test), False)
    own = flow.of_instruction[number]
    at = number + 1
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
        at += 1
        if not taken or isinstance(op, Nothing):
            continue
        path.append(at - 1)
        if isinstance(op, Jump) and op.index is None:
            at = instruction.targets[0]
        elif isinstance(op, Compute):
            found = _computed(op, known)
            if not found:
                if flow.of_instruction[at - 1] != own or instruction.guard is not None:
                    return False
                for leaf in _destinations(op):
                    known.pop(leaf, None)
            known |= found
        else:
            return False
    return False


def _computed(op: Compute, known: dict[Operand, Any]) -> dict[Operand, Any]:
    """The result of an instruction, where the failure alone decides it; else nothing."""
    values = [_value(operand, known) for operand, _ in op.sources]
    register = op.results[0][0]
    if (
        not isinstance(op.scalar, str)
        or len(op.results) != 1
        or not isinstance(register, Register)
        or any(v is None for v in values)
    ):
        return {}
    return {register: eval(op.scalar.format(*values), dict(SCALAR_FUNCTIONS))}


def _same_again(
    flow: ControlFlow, operations: Sequence[Operation], path: Sequence[int], test: int
) -> bool:
    """Whether what stands in the block of the test gives the same values each time, and nothing
    else shows afterwards that the test has failed.

    An instruction gives the same values where it reads nothing that the way changes, but for what
    was written before it in the block. What stands after the test may read its answer as well: it
    is executed again after the test that succeeds, and nothing before the test reads it.
    """
    block = flow.blocks[flow.of_instruction[test]]
    always = [at for at in path if flow.of_instruction[at] == block.number]
    always = [at for at in sorted(always) if flow.instructions[at].guard is None]
    sometimes = {leaf for at in set(path) - set(always) for leaf in _destinations(operations[at])}
    changed = {leaf for at in (test, *path) for leaf in _destinations(operations[at])}
    written_again: set[Operand] = set()
    for at in always:
        if at > test:
            written_again |= _destinations(operations[test])
        op = operations[at]
        if isinstance(op, Compute):
            if op.active or op.members is not None:
                return False
            for leaf in reads(op):
                if isinstance(leaf, SpecialRegister) or (leaf in changed - written_again):
                    return False
        written_again |= _destinations(op)
    if not sometimes:
        return True
    live = Liveness(flow, operations).before(block.begin)
    return not any(isinstance(r, Register) and live >> r.number & 1 for r in sometimes)


def _destinations(op: Operation) -> set[Operand]:
    return {leaf for operand, _ in written(op) for leaf in leaves(operand)}


def _executes(instruction: Instruction, known: dict[Operand, Any]) -> bool | None:
    """Whether the guard lets it run; None where that depends on more than the failed test."""
    if instruction.guard is None:
        return True
    value = known.get(instruction.guard.register)
    return None if value is None else bool(value) is not instruction.guard.negated


def _value(operand: Operand, known: dict[Operand, Any]) -> Any:
    match operand:
        case Register():
            return known.get(operand)
        case Integer(value):
            return value
        case Not(inner):
            value = _value(inner, known)
            return None if value is None else not value
    return None
