"""What an op reads, writes and binds, for passes over a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilepipe.ir import expressions as exprs, ops
from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import Scope, Use
from tilepipe.ir.memory import (
    BarrierRef,
    Cursor,
    Element,
    TensorParam,
    Tile,
    Tmem,
    TmemScales,
    Variable,
)
from tilepipe.ir.program import Kernel, all_ops

# the fields of an operand that hold operands themselves
_INSIDE: dict[type, tuple[str, ...]] = {
    BarrierRef: ("index", "cta"),
    Tile: ("index", "row", "col", "cta"),
    Element: ("base", "index"),
    Tmem: ("address",),
    TmemScales: ("address", "first"),
}


def parts(*given: object) -> Iterator[object]:
    """Operands, each followed by the operands inside it."""
    # One generator for all of them: a generator for each operand took half as long again, and the
    # compiler for the simulator and the checker's data flow go through every operand repeatedly.
    waiting = list(reversed(given))
    while waiting:
        x = waiting.pop()
        yield x
        if isinstance(x, tuple):
            waiting += reversed(x)
        elif names := _INSIDE.get(type(x)):
            waiting += [getattr(x, name) for name in reversed(names)]


def operands(op: ops.Op) -> Iterator[object]:
    """Everything an op itself reads (not what its body reads): expressions, tiles, barriers,
    elements.
    """
    return parts(*[getattr(op, name) for name in op.given])


def used(op: ops.Op) -> Iterator[tuple[object, Use]]:
    """The operands whose contents an op reads or writes, and how."""
    for name, use in op.uses.items():
        if (value := getattr(op, name)) is not None:
            yield value, use


def assigned(op: ops.Op) -> list[Variable | Cursor]:
    """The variables and cursors that an op sets."""
    return [getattr(op, name) for name in op.sets]


def tensors(op: ops.Op) -> Iterator[tuple[TensorParam, Use]]:
    """The global tensors that an op reads or writes, and how."""
    for name, use in op.uses.items():
        x = getattr(op, name)
        base = x.base if isinstance(x, Element) else x
        if isinstance(base, TensorParam):
            yield base, use


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
    return tuple(getattr(op, name) for name in op.bound)


def defines(op: ops.Op) -> bool:
    """True if an op does nothing but give names values that each lane computes for itself."""
    alone = not op.acts and op.facts.scope is Scope.LANE
    return alone and bool(op.bound) and not op.blocks


def needed(every: Iterable[ops.Op]) -> set[Local | Variable]:
    """The names and variables that ops other than definitions read, directly or through
    definitions, among these ops.
    """
    sources: dict[Local | Variable, list[ops.Op]] = {}
    waiting: list[Local | Variable] = []
    for op in every:
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
    """True if an op only defines a name that is not among the `needed` ones."""
    match op:
        case ops.Let() | ops.Read():
            return op.local not in names
        case ops.Define() | ops.Assign():
            return op.var not in names
    return False


def reductions(kernel: Kernel) -> set[ops.Op]:
    """The atomic operations whose results nothing reads: they are printed as `red`."""
    atomics = [op for op in all_ops(kernel) if isinstance(op, ops.Atomic)]
    read = {name for op in all_ops(kernel) for name in reads(op)} if atomics else set()
    return {op for op in atomics if op.result not in read}


def reads(op: ops.Op) -> list[Local | Variable]:
    """The names that an op takes values from."""
    found: list[Local | Variable] = [leaf for leaf in leaves(op) if isinstance(leaf, Local)]
    if op.uses:
        found += [x for x, use in used(op) if use.reads and isinstance(x, Variable)]
    return found


def tensor_uses(kernel: Kernel) -> tuple[set[str], set[str]]:
    """Names of the tensor parameters that a kernel writes, and of those it reads."""
    uses = [(x.name, use) for op in all_ops(kernel) for x, use in tensors(op)]
    return {name for name, use in uses if use.writes}, {name for name, use in uses if use.reads}
