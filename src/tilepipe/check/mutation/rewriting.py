"""Rewriting a kernel: a changed copy that shares its unchanged blocks with the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from tilepipe.ir import def_use, ops
from tilepipe.ir.expressions import Local
from tilepipe.ir.memory import Cursor, Variable
from tilepipe.ir.program import Kernel, Role, blocks, bodies, walk

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """The place of an op in a kernel.

    Attributes:
        role: its role; None in set-up.
        block, index: `block.ops[index]` is the op.
        parents: the blocks around its block, outermost first, each with the index of the op that
            holds the next one.
    """

    role: Role | None
    block: ops.Block
    index: int
    parents: tuple[tuple[ops.Block, int], ...] = ()

    @property
    def op(self) -> ops.Op:
        return self.block.ops[self.index]

    @property
    def who(self) -> str:
        """`role 'load'`, or `set-up`."""
        return f"role '{self.role.name}'" if self.role is not None else "set-up"

    @property
    def enclosing(self) -> ops.Op | None:
        """The op in whose body it is."""
        return self.parents[-1][0].ops[self.parents[-1][1]] if self.parents else None


def places(kernel: Kernel) -> Iterator[Place]:
    """Every op of a kernel, set-up first, in program order."""
    for role, block in blocks(kernel):
        yield from _places(role, block, ())


def _places(
    role: Role | None, block: ops.Block, parents: tuple[tuple[ops.Block, int], ...]
) -> Iterator[Place]:
    for index, op in enumerate(block.ops):
        yield Place(role, block, index, parents)
        for body in bodies(op):
            yield from _places(role, body, (*parents, (block, index)))


def with_ops(kernel: Kernel, changed: Mapping[ops.Block, Sequence[ops.Op]]) -> Kernel:
    """The kernel with other ops in some blocks."""

    def inside(block: ops.Block) -> ops.Block:
        held = changed.get(block)
        before = block.ops if held is None else held
        after = [_with_bodies(op, inside) for op in before]
        same = held is None and all(x is y for x, y in zip(before, after, strict=True))
        return block if same else ops.Block(after)

    roles = [replace(role, body=inside(role.body)) for role in kernel.roles]
    return replace(kernel, setup=inside(kernel.setup), roles=roles)


def with_op(kernel: Kernel, place: Place, *instead: ops.Op) -> Kernel:
    """The kernel with other ops in the place of one op."""
    held = place.block.ops
    return with_ops(
        kernel, {place.block: [*held[: place.index], *instead, *held[place.index + 1 :]]}
    )


def without(kernel: Kernel, gone: Sequence[Place]) -> Kernel:
    """The kernel without some ops."""
    dropped = {id(place.op) for place in gone}
    return with_ops(
        kernel,
        {place.block: [op for op in place.block.ops if id(op) not in dropped] for place in gone},
    )


def mapped(kernel: Kernel, change: Callable[[ops.Op], ops.Op]) -> Kernel:
    """The kernel with `change(op)` in the place of each op; a changed op keeps its body."""
    every = [place.block for place in places(kernel)]
    return with_ops(kernel, {block: [change(op) for op in block.ops] for block in every})


def _with_bodies(op: ops.Op, inside: Callable[[ops.Block], ops.Block]) -> ops.Op:
    new: dict[str, Any] = {name: inside(getattr(op, name)) for name in op.blocks}
    same = all(block is getattr(op, name) for name, block in new.items())
    return op if same else replace(op, **new)


def substituted(x: T, old: object, new: object) -> T:
    """A copy of an op or an operand with `new` in the place of `old`; `x` itself if it does not
    refer to `old`.
    """
    if x is old:
        return new  # type: ignore[return-value]
    if isinstance(x, ops.Op):
        changes = {
            f.name: y
            for f in fields(x)
            if (y := substituted(getattr(x, f.name), old, new)) is not getattr(x, f.name)
        }
        return replace(x, **changes) if changes else x
    return x


# -- moving ----------------------------------------------------------------------------


def acts(op: ops.Op) -> bool:
    """True if an op, or one inside it, synchronises or touches memory or an asynchronous unit."""
    return any(x.acts for x in everything(op))


def later(place: Place) -> tuple[list[ops.Op], ops.Op] | None:
    """The ops of the block with this one moved after the next op that acts, and that op; None if
    there is no such op.
    """
    held, at = place.block.ops, place.index
    for i in range(at + 1, len(held)):
        if acts(held[i]):
            return [*held[:at], *held[at + 1 : i + 1], held[at], *held[i + 1 :]], held[i]
    return None


def earlier(place: Place) -> tuple[list[ops.Op], ops.Op] | None:
    """The ops of the block with this one, and the definitions that it needs, moved before the last
    op that acts, and that op. None if there is no such op, or if the moved op would then refer to
    another stage or value.
    """
    held, at = place.block.ops, place.index
    for i in range(at - 1, -1, -1):
        if acts(held[i]):
            taken = _taken_along(held[i:at], held[at])
            if taken is None:
                return None
            stays = [op for op in held[i:at] if op not in taken]
            return [*held[:i], *taken, held[at], *stays, *held[at + 1 :]], held[i]
    return None


def _taken_along(passed: Sequence[ops.Op], op: ops.Op) -> list[ops.Op] | None:
    """The definitions that an op needs among the ops that it is moved past; None if one of them
    cannot be moved.
    """
    needs = {x for x in def_use.leaves(op) if isinstance(x, Local)}
    taken: list[ops.Op] = []
    stepped: set[Any] = {getattr(op, "cursor", None)} - {None}
    for before in reversed(passed):
        if any(x in stepped for x, _ in def_use.used(before) if isinstance(x, Cursor)):
            return None
        if needs & set(def_use.bound(before)):
            if not def_use.defines(before):
                return None
            taken.insert(0, before)
            needs |= {x for x in def_use.leaves(before) if isinstance(x, Local)}
    # what a definition reads must not change between its new place and its old place
    for i, before in enumerate(passed):
        read = {x for x, _ in def_use.used(before) if isinstance(x, Variable | Cursor)}
        if before in taken and read:
            between = (inner for other in passed[:i] for inner in everything(other))
            if any(read & set(def_use.assigned(inner)) for inner in between):
                return None
    return taken


def everything(op: ops.Op) -> Iterator[ops.Op]:
    """An op and every op inside it."""
    yield op
    for body in bodies(op):
        yield from walk(body)


def out_of(place: Place) -> dict[ops.Block, list[ops.Op]] | None:
    """The blocks with this op moved out of the `Elect` or `If` around it: before it if no op that
    acts precedes it in there, otherwise after it. None if there is none around it, or if the op
    needs a definition in there.
    """
    around = place.enclosing
    if not isinstance(around, (ops.Elect, ops.If)):
        return None
    held, op = place.block.ops, place.op
    inner = {x for o in held for x in def_use.bound(o)}
    if inner & {x for x in def_use.leaves(op) if isinstance(x, Local)}:
        return None
    outer, at = place.parents[-1]
    first = not any(acts(x) for x in held[: place.index])
    kept = [*held[: place.index], *held[place.index + 1 :]]
    pair = [op, around] if first else [around, op]
    return {place.block: kept, outer: [*outer.ops[:at], *pair, *outer.ops[at + 1 :]]}
