"""Which values of a block can be printed where they are used, without a name of their own."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.ir import ops
from tilepipe.ir.def_use import assigned, bound, leaves, nodes
from tilepipe.ir.expressions import FragmentRead, Local
from tilepipe.ir.facts import Control
from tilepipe.ir.memory import Cursor, Variable
from tilepipe.ir.program import bodies, walk


@dataclass
class _Uses:
    """The loops around each use of each local."""

    loops: dict[Local, list[tuple[ops.Op, ...]]] = field(default_factory=dict)

    def collect(self, block: ops.Block, loops: tuple[ops.Op, ...] = ()) -> None:
        for op in block.ops:
            for leaf in leaves(op):
                if isinstance(leaf, Local):
                    self.loops.setdefault(leaf, []).append(loops)
            inner = (*loops, op) if op.facts.control is Control.LOOP else loops
            for body in bodies(op):
                self.collect(body, inner)


def inlinable(block: ops.Block) -> set[Local]:
    """The locals whose `Let` need not be printed: those that are used at most once, in the same
    loops as they are bound, and read no fragment, cursor or variable.
    """
    uses = _Uses()
    uses.collect(block)
    reads = {
        x for op in walk(block) if isinstance(op, ops.CursorRead | ops.Read) for x in bound(op)
    }
    found: set[Local] = set()

    def visit(b: ops.Block, loops: tuple[ops.Op, ...]) -> None:
        for op in b.ops:
            if isinstance(op, ops.Let) and not op.expr.shape:
                where = uses.loops.get(op.local, [])
                pure = not any(isinstance(n, FragmentRead) or n in reads for n in nodes(op.expr))
                if pure and (not where or where == [loops]):
                    found.add(op.local)
            inner = (*loops, op) if op.facts.control is Control.LOOP else loops
            for body in bodies(op):
                visit(body, inner)

    visit(block, ())
    return found


def _writes(op: ops.Op, source: Cursor | Variable) -> bool:
    """Whether an op, or an op nested in it, advances the cursor or sets the variable."""
    return any(x is source for inner in walk(ops.Block([op])) for x in assigned(inner))


def reads_through(block: ops.Block, at: int) -> bool:
    """Whether the values read at `block.ops[at]` can be printed as the cursor or variable itself,
    because no use of them follows a write to it.
    """
    read = block.ops[at]
    assert isinstance(read, ops.CursorRead | ops.Read)
    source = read.cursor if isinstance(read, ops.CursorRead) else read.var
    names = set(bound(read))
    written = False
    for op in block.ops[at + 1 :]:
        writes = _writes(op, source)
        used = any(leaf in names for inner in walk(ops.Block([op])) for leaf in leaves(inner))
        if used and (written or (writes and bodies(op))):
            return False
        written = written or writes
    return True
