"""What an op reads and what it binds, for passes over a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilepipe.ir import expressions as exprs
from tilepipe.ir import ops
from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.memory import BarrierRef, Element, Tile, Tmem, TmemScales, Variable
from tilepipe.ir.program import walk

# The locals that an op binds, by field.
_BINDS: dict[type[ops.Op], tuple[str, ...]] = {
    ops.Let: ("local",), ops.Read: ("local",), ops.CursorRead: ("stage", "phase"), ops.For: ("index",),
    ops.PerWarp: ("index",), ops.MbarTryWait: ("result",), ops.Load: ("result",), ops.AtomicAdd: ("result",),
    ops.ClcQuery: ("valid", "cluster"), ops.FragmentAny: ("result",),
}  # fmt: skip


def _parts(x: object) -> Iterator[object]:
    """An operand and the operands inside it."""
    yield x
    match x:
        case tuple():
            inner: tuple[object, ...] = x
        case BarrierRef():
            inner = (x.index, x.cta)
        case Tile():
            inner = (x.index, x.row, x.col, x.cta)
        case Element():
            inner = (x.base, x.index)
        case Tmem():
            inner = (x.address,)
        case TmemScales():
            inner = (x.address, x.first)
        case _:
            return
    for y in inner:
        yield from _parts(y)


def operands(op: ops.Op) -> Iterator[object]:
    """Everything an op itself reads (not what its body reads): expressions, tiles, barriers,
    elements.
    """
    bound = _BINDS.get(type(op), ())
    for name in op.__dataclass_fields__:
        if name != "loc" and name not in bound:
            value = getattr(op, name)
            if not isinstance(value, ops.Block):
                yield from _parts(value)


def elements(op: ops.Op) -> Iterator[Element]:
    """The elements an op loads or stores."""
    return (x for x in operands(op) if isinstance(x, Element))


def nodes(e: Expr) -> Iterator[Expr]:
    """An expression and every expression inside it."""
    yield e
    for child in exprs.children(e):
        yield from nodes(child)


def leaves(op: ops.Op) -> Iterator[Expr]:
    """Every expression node an op reads."""
    for x in operands(op):
        if isinstance(x, Expr):
            yield from nodes(x)


def bound(op: ops.Op) -> tuple[Local, ...]:
    """The locals an op binds."""
    return tuple(getattr(op, name) for name in _BINDS.get(type(op), ()))


def needed(blocks: Iterable[ops.Block]) -> set[Local | Variable]:
    """The names and variables whose values something reads that is no mere definition, in these
    blocks.
    """
    inside = [op for block in blocks for op in walk(block)]
    sources: dict[Local | Variable, list[ops.Op]] = {}
    waiting: list[Local | Variable] = []
    for op in inside:
        match op:
            case ops.Let() | ops.Read():
                sources.setdefault(op.local, []).append(op)
            case ops.Define() | ops.Assign():
                sources.setdefault(op.var, []).append(op)
            case _:
                waiting += reads(op)
    found = set(waiting)
    while waiting:
        for source in sources.get(waiting.pop(), ()):
            more = [x for x in reads(source) if x not in found]
            found.update(more)
            waiting += more
    return found


def is_idle(op: ops.Op, names: set[Local | Variable]) -> bool:
    """Whether an op only defines a name that is not among the `needed` ones."""
    match op:
        case ops.Let() | ops.Read():
            return op.local not in names
        case ops.Define() | ops.Assign():
            return op.var not in names
    return False


def reads(op: ops.Op) -> list[Local | Variable]:
    """The names that an op takes values from."""
    found: list[Local | Variable] = [leaf for leaf in leaves(op) if isinstance(leaf, Local)]
    if isinstance(op, ops.Read | ops.While):
        found.append(op.var)
    return found
