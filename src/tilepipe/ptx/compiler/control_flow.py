"""The control-flow graph of a function: basic blocks, and where diverged lanes meet again.

Lanes that a branch separates meet at the branch's immediate post-dominator: the first block that
all paths from it come to. A block whose execution a branch decides is control dependent on it
(Ferrante, Ottenstein, Warren 1987): it lies between the branch and that meeting point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tilepipe.ptx.syntax.nodes import Function, Instruction

EXIT = -1  # the block after every way out of the function
_ENDS = {"ret", "exit", "trap"}


@dataclass(eq=False)
class Block:
    """Instructions `begin` .. `end - 1` of a function, which run one after another.

    Attributes:
        successors: numbers of the blocks that may come next; a conditional branch has its target
            first and then the block after it.
        predecessors: those it may come from.
        meets: the block at which lanes that its branch separates meet again; `EXIT` where they
            need not before the end.
    """

    number: int
    begin: int
    end: int
    successors: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)
    meets: int = EXIT


class ControlFlow:
    """The blocks of a function, in the order of the text."""

    def __init__(self, function: Function) -> None:
        self.instructions = function.instructions
        self.blocks = _blocks(function.instructions)
        self.of_instruction = [b.number for b in self.blocks for _ in range(b.begin, b.end)]
        _connect(self.blocks, function.instructions, self.of_instruction)
        for block, meets in zip(self.blocks, _post_dominators(self.blocks), strict=True):
            block.meets = meets

    def of(self, block: Block) -> list[Instruction]:
        """The instructions of a block."""
        return self.instructions[block.begin : block.end]

    def in_loops(self) -> set[int]:
        """The blocks that come after themselves on some way."""
        return {block.number for block in self.blocks if block.number in self._after(block)}

    def around(self, number: int) -> set[int]:
        """The blocks that are in a loop with this one, itself among them; none where it is in no
        loop.
        """
        after = self._after(self.blocks[number])
        if number not in after:
            return set()
        return {other for other in after if number in self._after(self.blocks[other])}

    def nest(self, at: int) -> list[list[Block]]:
        """The loops around an instruction, the innermost first, each as its blocks in the order of
        the text. A loop is a set of blocks that all come after each other; the loops inside it are
        what is left of it without the blocks by which it is entered.
        """
        loops: list[list[Block]] = []
        here, inside = self.of_instruction[at], set(range(len(self.blocks)))
        while here in inside:
            after = self._after(self.blocks[here], inside)
            if here not in after:
                break
            loop = {n for n in after if here in self._after(self.blocks[n], inside)}
            loops.insert(0, [self.blocks[n] for n in sorted(loop)])
            entered = {
                n for n in loop if n == 0 or not loop.issuperset(self.blocks[n].predecessors)
            }
            inside = loop - entered
        return loops

    def reached(self, start: int, without: int) -> set[int]:
        """The blocks that can be reached from one, itself among them, by ways that do not lead
        through the block `without`.
        """
        if start == without:
            return set()
        seen, work = {start}, [start]
        while work:
            for number in self.blocks[work.pop()].successors:
                if number not in (EXIT, without) and number not in seen:
                    seen.add(number)
                    work.append(number)
        return seen

    def _after(self, block: Block, inside: set[int] | None = None) -> set[int]:
        """The blocks that may come after one, by ways that stay `inside` a set of blocks."""
        seen: set[int] = set()
        work = list(block.successors)
        while work:
            number = work.pop()
            if number == EXIT or (inside is not None and number not in inside):
                continue
            if number not in seen:
                seen.add(number)
                work.extend(self.blocks[number].successors)
        return seen

    def decided_by(self, block: Block) -> Iterator[int]:
        """The blocks that are control dependent on the branch of this one: those on its paths up
        to where they meet.
        """
        seen: set[int] = set()
        work = [s for s in block.successors if s != block.meets]
        while work:
            number = work.pop()
            if number in seen or number in (EXIT, block.meets):
                continue
            seen.add(number)
            yield number
            work.extend(self.blocks[number].successors)


def with_return(function: Function) -> Function:
    """The function with a `ret` at its end, where lanes can run past its last instruction: that is
    an exit, as ptxas compiles it.
    """
    instructions = function.instructions
    last = instructions[-1] if instructions else None
    if last is not None and last.guard is None and (last.targets or ends(last)):
        count = len(instructions)
        if all(target < count for i in instructions for target in i.targets):
            return function
    line, position = (function.line, None) if last is None else (last.line, last.position)
    end = Instruction("ret", (), (), None, (), line, position)
    return replace(function, instructions=[*instructions, end])


def ends(instruction: Instruction) -> bool:
    """True if lanes that execute it leave the function."""
    return instruction.opcode in _ENDS


def _blocks(instructions: list[Instruction]) -> list[Block]:
    begins = {0}
    for number, instruction in enumerate(instructions):
        if instruction.targets or ends(instruction):
            begins.update(instruction.targets)
            begins.add(number + 1)
    begins = {b for b in begins if b < len(instructions)}
    starts = sorted(begins)
    return [
        Block(n, begin, end)
        for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(instructions)], strict=True))
        if begin < end
    ]


def _connect(blocks: list[Block], instructions: list[Instruction], of: list[int]) -> None:
    for block in blocks:
        last = instructions[block.end - 1]
        after = block.number + 1 if block.number + 1 < len(blocks) else EXIT
        goes_on = last.guard is not None or not (last.targets or ends(last))
        following = [of[t] for t in last.targets]
        if ends(last):
            following.append(EXIT)
        if goes_on:
            following.append(after)
        block.successors = list(dict.fromkeys(following))
    for block in blocks:
        for successor in block.successors:
            if successor != EXIT:
                blocks[successor].predecessors.append(block.number)


def _post_dominators(blocks: list[Block]) -> list[int]:
    """The immediate post-dominator of each block (Cooper, Harvey, Kennedy: A Simple, Fast
    Dominance Algorithm, 2001, on the reversed graph).

    A loop without a way out has none; its lanes never need to meet, and `EXIT` stands for it.
    """
    order = _from_exit(blocks)
    rank = {number: place for place, number in enumerate(order)}
    found: dict[int, int] = {EXIT: EXIT}
    changed = True
    while changed:
        changed = False
        for number in order:
            if number == EXIT:
                continue
            known = [s for s in blocks[number].successors if s in found]
            if not known:
                continue
            meet = known[0]
            for other in known[1:]:
                meet = _common(meet, other, found, rank)
            if found.get(number) != meet:
                found[number] = meet
                changed = True
    return [found.get(block.number, EXIT) for block in blocks]


def _common(a: int, b: int, found: dict[int, int], rank: dict[int, int]) -> int:
    while a != b:
        while rank[a] > rank[b]:
            a = found[a]
        while rank[b] > rank[a]:
            b = found[b]
    return a


def _from_exit(blocks: list[Block]) -> list[int]:
    """Blocks in reverse post-order of a walk against the edges, from the exit."""
    leaving = [b.number for b in blocks if EXIT in b.successors]
    done: set[int] = {EXIT}
    post: list[int] = []
    stack: list[tuple[int, Iterator[int]]] = [(EXIT, iter(leaving))]
    while stack:
        number, following = stack[-1]
        for predecessor in following:
            if predecessor not in done:
                done.add(predecessor)
                stack.append((predecessor, iter(blocks[predecessor].predecessors)))
                break
        else:
            stack.pop()
            post.append(number)
    return post[::-1]
