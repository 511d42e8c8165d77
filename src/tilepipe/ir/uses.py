"""What an op reads and what it binds, for passes over a program."""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.ir import exprs, ops
from tilepipe.ir.exprs import Expr, Local
from tilepipe.ir.memory import BarrierRef, Element, Tile, Tmem
from tilepipe.ir.program import bodies, walk

# The locals that an op binds, by field.
_BINDS: dict[type[ops.Op], tuple[str, ...]] = {
    ops.Let: ("local",), ops.Read: ("local",), ops.CursorRead: ("stage", "phase"), ops.For: ("index",),
    ops.PerWarp: ("index",), ops.MbarTryWait: ("result",), ops.Load: ("result",), ops.AtomicAdd: ("result",),
    ops.ClcQuery: ("valid", "cluster"),
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
        case _:
            return
    for y in inner:
        yield from _parts(y)


def operands(op: ops.Op) -> Iterator[object]:
    """Everything an op itself reads (not what its body reads): expressions, tiles, barriers, elements."""
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


def drop_unused(blocks: list[ops.Block]) -> None:
    """Takes out every `Let` whose name nothing reads, in these blocks or through another `Let`."""
    read = {leaf for block in blocks for op in walk(block) if not isinstance(op, ops.Let) for leaf in leaves(op) if isinstance(leaf, Local)}
    lets = {op.local: op.expr for block in blocks for op in walk(block) if isinstance(op, ops.Let)}
    waiting = list(read)
    while waiting:
        expr = lets.get(waiting.pop())
        for node in nodes(expr) if expr is not None else ():
            if isinstance(node, Local) and node not in read:
                read.add(node)
                waiting.append(node)
    for block in blocks:
        _drop(block, read)


def _drop(block: ops.Block, read: set[Local]) -> None:
    block.ops[:] = [op for op in block.ops if not isinstance(op, ops.Let) or op.local in read]
    for op in block.ops:
        for body in bodies(op):
            _drop(body, read)
