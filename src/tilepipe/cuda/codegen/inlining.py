"""Which values of a block can be printed where they are used, without a name of their own."""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.ir import ops
from tilepipe.ir.def_use import assigned, bound, leaves, nodes
from tilepipe.ir.expressions import Expr, FragmentRead, Local
from tilepipe.ir.facts import Control
from tilepipe.ir.program import bodies, walk

Loops = tuple[ops.Op, ...]


def _in_loops(block: ops.Block, loops: Loops = ()) -> Iterator[tuple[ops.Op, Loops]]:
    """Every op of a block, nested ones included, with the loops around it."""
    for op in block.ops:
        yield op, loops
        inner = (*loops, op) if op.facts.control is Control.LOOP else loops
        for body in bodies(op):
            yield from _in_loops(body, inner)


def inlinable(block: ops.Block) -> set[Local]:
    """The locals whose `Let` need not be printed: those that are used at most once, in the same
    loops as they are bound, and read no fragment, cursor or variable.
    """
    every = list(_in_loops(block))
    used: dict[Expr, list[Loops]] = {}
    for op, loops in every:
        for leaf in leaves(op):
            used.setdefault(leaf, []).append(loops)
    read = {x for op, _ in every if isinstance(op, ops.CursorRead | ops.Read) for x in bound(op)}
    return {
        op.local
        for op, loops in every
        if isinstance(op, ops.Let)
        and not op.expr.shape
        and used.get(op.local, [loops]) == [loops]
        and not any(isinstance(n, FragmentRead) or n in read for n in nodes(op.expr))
    }


def reads_through(block: ops.Block, at: int) -> bool:
    """True if the values read at `block.ops[at]` can be printed as the cursor or variable itself,
    because no use of them follows a write to it.
    """
    read = block.ops[at]
    assert isinstance(read, ops.CursorRead | ops.Read)
    source = read.cursor if isinstance(read, ops.CursorRead) else read.var
    names = set(bound(read))
    written = False
    for op in block.ops[at + 1 :]:
        inside = list(walk(ops.Block([op])))
        writes = any(x is source for inner in inside for x in assigned(inner))
        used = any(leaf in names for inner in inside for leaf in leaves(inner))
        if used and (written or (writes and bodies(op))):
            return False
        written = written or writes
    return True
