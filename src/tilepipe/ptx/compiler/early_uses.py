"""Uses of registers that a tcgen05.ld loads with no tcgen05.wait::ld between on some way (PTX ISA,
"tcgen05.wait").
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.ir.facts import Group
from tilepipe.ptx.compiler.control_flow import EXIT, ControlFlow
from tilepipe.ptx.compiler.uniformity import reads, written
from tilepipe.ptx.definition import Operation, Perform
from tilepipe.ptx.syntax.nodes import Instruction, Register

Use = tuple[Instruction, Register]


def early_uses(
    flow: ControlFlow, instructions: Sequence[Instruction], operations: Sequence[Operation]
) -> list[Use]:
    """The first such use of each register in each block."""
    if not any(_group(op) is Group.TMEM_LOADS for op in operations):
        return []
    before: dict[int, frozenset[Register]] = {block.number: frozenset() for block in flow.blocks}
    uses: dict[tuple[int, Register], Use] = {}
    pending = [block.number for block in flow.blocks]
    while pending:
        block = flow.blocks[pending.pop()]
        loading = before[block.number]
        for number in range(block.begin, block.end):
            operation = operations[number]
            early = loading.intersection(r for r in reads(operation) if isinstance(r, Register))
            if early and _group(operation) is not Group.TMEM_LOADS:
                for register in early:
                    uses.setdefault((block.number, register), (instructions[number], register))
                loading -= early
            match operation:
                case Perform(in_place=items) if _group(operation) is Group.TMEM_LOADS:
                    loading |= {r for r, _ in items if isinstance(r, Register)}
                case Perform(facts=facts) if facts.awaits is Group.TMEM_LOADS:
                    loading = frozenset()
                case _:
                    loading -= {r for r, _ in written(operation) if isinstance(r, Register)}
        for successor in block.successors:
            if successor != EXIT and not loading <= before[successor]:
                before[successor] |= loading
                pending.append(successor)
    return sorted(uses.values(), key=lambda use: use[0].line)


def _group(operation: Operation) -> Group | None:
    return operation.facts.issues if isinstance(operation, Perform) else None
