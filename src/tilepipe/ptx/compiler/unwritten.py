"""Instructions at which a register may hold nothing yet: no instruction has written it, or those
that do have not been executed. Compilers leave such reads where the value means nothing: the upper
half of a pair of registers, an operand whose result a `selp` drops.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.ptx.compiler.control_flow import EXIT, ControlFlow
from tilepipe.ptx.compiler.liveness import Liveness
from tilepipe.ptx.compiler.uniformity import operands_read, results
from tilepipe.ptx.definition import Operation
from tilepipe.ptx.syntax.nodes import Instruction, Register


def unwritten(
    flow: ControlFlow,
    instructions: Sequence[Instruction],
    operations: Sequence[Operation],
    liveness: Liveness,
) -> dict[int, list[int]]:
    """Number of an instruction -> numbers of the registers that it reads, or writes for what may be
    a part of the lanes, and that may hold nothing when it does; of those that some path reads
    before it writes them.
    """
    read_first = liveness.before(0)
    if not read_first:
        return {}
    before = [0] * len(flow.blocks)
    first = flow.of_instruction[0]
    before[first] = read_first
    pending = [first]
    seen = {first}
    found: dict[int, list[int]] = {}
    while pending:
        block = flow.blocks[pending.pop()]
        empty = before[block.number]
        for number in range(block.begin, block.end):
            instruction, operation = instructions[number], operations[number]
            writes = {r.number for r in results(operation)}
            uses = {r.number for r in operands_read(operation) if isinstance(r, Register)}
            if instruction.guard is not None:
                uses.add(instruction.guard.register.number)
            if here := [n for n in sorted(uses | writes) if empty >> n & 1]:
                found[number] = here
            for n in uses if instruction.guard is not None else uses | writes:
                empty &= ~(1 << n)  # from here on it holds something, if poison
        for successor in block.successors:
            if successor != EXIT and (successor not in seen or empty & ~before[successor]):
                before[successor] |= empty
                seen.add(successor)
                pending.append(successor)
    return found
