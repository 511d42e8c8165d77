"""Uses of registers that a tcgen05.ld loads with no tcgen05.wait::ld between on some way (PTX ISA,
"tcgen05.wait").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilepipe.ir.facts import Group
from tilepipe.ptx.compiler.control_flow import EXIT, Block, ControlFlow
from tilepipe.ptx.compiler.uniformity import reads, results
from tilepipe.ptx.definition import Operation, Perform, where
from tilepipe.ptx.syntax.nodes import Instruction, Register

Use = tuple[Instruction, Register]
_Loading = frozenset[tuple[Register, int]]  # each with the number of its tcgen05.ld


WAIT_OF_LOAD = "Put tcgen05.wait::ld before the first use of what tcgen05.ld loads."


def early_use(instruction: Instruction, register: Register) -> str:
    """The finding of one such use, for messages."""
    return f"{where(instruction)}: {instruction}: {register} is used before its wait"


class EarlyUses(NamedTuple):
    """The uses of registers before the wait.

    Attributes:
        uses: the first such use of each register in each block.
        registers: number of an instruction -> those of its registers of which it is such a use.
        ends: number of an instruction -> the tcgen05.ld that are over by the time it is executed,
            as it uses a register that they load. A `mov` is none: ptxas renames the register.
    """

    uses: list[Use]
    registers: dict[int, list[Register]]
    ends: dict[int, frozenset[int]]


def early_uses(
    flow: ControlFlow, instructions: Sequence[Instruction], operations: Sequence[Operation]
) -> EarlyUses:
    """The uses before the wait in a function."""
    found = EarlyUses([], {}, {})
    if not any(_group(op) is Group.TMEM_LOADS for op in operations):
        return found
    before: dict[int, _Loading] = {block.number: frozenset() for block in flow.blocks}
    pending = [block.number for block in flow.blocks]
    while pending:
        block = flow.blocks[pending.pop()]
        loading = _after(
            block, before[block.number], instructions, operations, EarlyUses([], {}, {})
        )
        for successor in block.successors:
            if successor != EXIT and not loading <= before[successor]:
                before[successor] |= loading
                pending.append(successor)
    for block in flow.blocks:
        _after(block, before[block.number], instructions, operations, found)
    found.uses.sort(key=lambda use: use[0].line)
    return found


def _after(
    block: Block, loading: _Loading, instructions: Sequence[Instruction],
    operations: Sequence[Operation], found: EarlyUses,
) -> _Loading:  # fmt: skip
    """The registers that are loading after a block; adds its early uses to `found`."""
    seen: set[Register] = set()
    for number in range(block.begin, block.end):
        instruction, operation = instructions[number], operations[number]
        sources = {r for r in reads(operation) if isinstance(r, Register)}
        written = {r for r in results(operation) if isinstance(r, Register)}
        loads = _group(operation) is Group.TMEM_LOADS
        used = {(r, load) for r, load in loading if r in sources} if not loads else set()
        for register in sorted({r for r, _ in used} - seen, key=lambda r: r.number):
            seen.add(register)
            found.uses.append((instruction, register))
            found.registers.setdefault(number, []).append(register)
        if instruction.guard is None:
            loading = frozenset((r, load) for r, load in loading if r not in written)
        if used and instruction.opcode == "mov":
            loading |= {(r, load) for r in written for _, load in used}
        elif used:
            over = frozenset(load for _, load in used)
            found.ends[number] = over
            if instruction.guard is None:
                loading = frozenset((r, load) for r, load in loading if load not in over)
        if loads:
            loading |= {(r, number) for r in written}
        elif isinstance(operation, Perform) and operation.facts.awaits is Group.TMEM_LOADS:
            loading = frozenset()
    return loading


def _group(operation: Operation) -> Group | None:
    return operation.facts.issues if isinstance(operation, Perform) else None
