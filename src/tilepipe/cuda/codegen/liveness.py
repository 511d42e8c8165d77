"""Whether the registers of a fragment hold something at a place in a role: a value that is read
before it is replaced, or what a wgmma in flight reads or writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from tilepipe.ir import def_use, ops
from tilepipe.ir.expressions import Const, FragmentRead
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.program import walk

# (block, position in it) of each block around a place, outermost first
Path = Sequence[tuple[ops.Block, int]]


class _Next(Enum):
    """The first thing that is done to a fragment."""

    READ = "it is read"
    REPLACED = "all of it is replaced"
    NOTHING = "nothing, on some way"


def holds(f: Fragment, path: Path) -> bool:
    """True if a fragment holds something before the op at the end of a path."""
    return _is_read(f, path) or _in_flight(f, path)


def _blocks(op: ops.Op) -> list[ops.Block]:
    return [getattr(op, name) for name in op.blocks]


def _names(op: ops.Op, f: Fragment) -> bool:
    """True if an op itself reads or writes a fragment."""
    own = (*def_use.operands(op), *(x for x, _ in def_use.used(op)))
    read = (x.fragment for x in def_use.leaves(op) if isinstance(x, FragmentRead))
    return any(x is f for x in own) or any(x is f for x in read)


# -- forwards: is the value read? ------------------------------------------------------


def _is_read(f: Fragment, path: Path) -> bool:
    inner: ops.Block | None = None
    for block, position in reversed(path):
        again = inner is not None and isinstance(block.ops[position], ops.For | ops.While)
        if again and inner is not None and _first(f, inner.ops) is _Next.READ:  # the next round
            return True
        after = block.ops[position if inner is None else position + 1 :]
        found = _first(f, after)
        if found is not _Next.NOTHING:
            return found is _Next.READ
        inner = block
    return False


def _first(f: Fragment, body: Iterable[ops.Op]) -> _Next:
    columns: set[int] = set()  # that have been set, each by the first of eight
    for op in body:
        if inside := _blocks(op):
            found = {_first(f, block.ops) for block in inside}
            if _Next.READ in found or _names(op, f):
                return _Next.READ
            if isinstance(op, ops.If) and found == {_Next.REPLACED}:
                return _Next.REPLACED
        elif _names(op, f):
            if _reads(op, f):
                return _Next.READ
            columns |= _columns(op, f)
            if columns.issuperset(range(0, f.cols, 8)):
                return _Next.REPLACED
    return _Next.NOTHING


def _reads(op: ops.Op, f: Fragment) -> bool:
    """True unless an op that names a fragment does nothing but set some of it."""
    match op:
        case ops.FragmentDefine() | ops.FragmentLoad() | ops.FragmentLoadGlobal():
            return False
        case ops.FragmentSet():
            leaves = def_use.leaves(op)
            return any(isinstance(x, FragmentRead) and x.fragment is f for x in leaves)
        case ops.Wgmma():
            fresh = isinstance(op.accumulate, Const) and not op.accumulate.value
            return op.acc is not f or op.a is f or not fresh
    return True


def _columns(op: ops.Op, f: Fragment) -> set[int]:
    """The columns that an op sets, each by the first of eight."""
    if not isinstance(op, ops.FragmentSet):
        return set(range(0, f.cols, 8))
    count = op.value.shape[1] if op.value.shape and op.value.shape[1] > 1 else f.cols - op.col
    return set(range(op.col, op.col + count, 8))


# -- backwards: is a wgmma in flight? --------------------------------------------------


def _in_flight(f: Fragment, path: Path) -> bool:
    # so many more groups must have been closed before a place for those before it to be over
    missing: int | None = None
    inner: ops.Block | None = None
    for block, position in reversed(path):
        again = inner is not None and isinstance(block.ops[position], ops.For | ops.While)
        if again and inner is not None and _issued(f, inner.ops, missing)[0]:  # a round before
            return True
        issued, missing = _issued(f, block.ops[:position], missing)
        if issued or missing == 0:
            return issued
        inner = block
    return False


def _issued(f: Fragment, body: Sequence[ops.Op], missing: int | None) -> tuple[bool, int | None]:
    """Whether one of these ops may have issued a wgmma that uses a fragment and is in flight behind
    them; and `missing` before them. Groups and waits in blocks inside only make more of them over.
    """
    for op in reversed(body):
        if missing == 0:
            return False, 0
        if isinstance(op, ops.WgmmaWait):
            missing = op.pending + 1 if missing is None else min(missing, op.pending + 1)
        elif isinstance(op, ops.WgmmaCommit):
            missing = None if missing is None else missing - 1
        elif isinstance(op, ops.FragmentDefine) and op.fragment is f:
            return False, 0
        elif any(isinstance(x, ops.Wgmma) and _names(x, f) for x in walk(ops.Block([op]))):
            return True, missing
    return False, missing
