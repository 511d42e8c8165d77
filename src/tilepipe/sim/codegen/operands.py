"""Operands of ops as Python source: places of barriers and tiles, coordinates, elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tilepipe.errors import SimFault
from tilepipe.ir import expressions as e, ops
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import BarrierRef, Element, Tile
from tilepipe.ir.program import Kernel
from tilepipe.sim import runtime as support
from tilepipe.sim.codegen.expressions import Expressions
from tilepipe.sim.codegen.names import Names

Called = Callable[..., Any]  # what generated code calls


class Tables(Protocol):
    """What the functions of one kernel share: names in the generated module, and places in the
    CTA's flat lists (by object id). `elects`: the lane that is elected, None where it differs
    between launches.
    """

    kernel: Kernel
    namespace: dict[str, Any]
    bars: dict[int, int]
    slots: dict[int, int]
    named_base: dict[int, int]
    elects: int | None

    def site(self, op: ops.Op) -> str: ...

    def constant(self, value: object, wish: str) -> str: ...


class Operands:
    """The part of a function's source that is about one op's operands.

    Attributes:
        mask: the active threads, a constant or the name of a variable.
        body: the lines so far: depth, text, where in the kernel.
    """

    module: Tables
    x: Expressions
    names: Names
    mask: int | str
    body: list[tuple[int, str, Loc | None]]
    depth: int

    def emit(self, text: str, op: ops.Op | None = None) -> None:
        self.body.append((self.depth, text, op.loc if op is not None else None))

    def request(self, op: ops.Op, function: Called, *operands: object, result: str = "") -> None:
        """`yield function, (site, mask, operands...)`."""
        args = ", ".join([self.x.site, self.mask_text, *map(str, operands)])
        self.emit(f"{result + ' = ' if result else ''}yield {function.__name__}, ({args})", op)

    @property
    def mask_text(self) -> str:
        return (
            self.mask
            if isinstance(self.mask, str)
            else hex(self.mask)
            if self.mask > 9
            else str(self.mask)
        )

    def flat(self, base: int, index: e.Expr, size: int, op: ops.Op, what: str) -> str:
        """A place in a flat list of the CTA: `base` + an index, checked unless it is in range by
        construction.
        """
        if isinstance(index, e.Const):
            i = int(index.value)
            if not 0 <= i < size:
                raise SimFault(f"{what}[{i}]: there are {size}", op.loc)
            return str(base + i)
        text = self.x.scalar(index, f"the index of {what}", op)
        if self.x.ring.get(id(index), size + 1) > size:
            text = f"at({self.x.site}, {text}, {size}, {what!r})"
        return f"{base} + {text}" if base else text

    def bar(self, ref: BarrierRef, op: ops.Op) -> str:
        return self.flat(
            self.module.bars[id(ref.array)], ref.index, ref.array.size, op, ref.array.name
        )

    def remote(self, cta: e.Expr | None, op: ops.Op) -> list[str]:
        return [] if cta is None else [self.x.scalar(cta, "the rank of a CTA", op)]

    def targets(self, cta: e.Expr | None, op: ops.Op) -> tuple[bool, list[str]]:
        """Whether the threads name different CTAs, and the operands that say which."""
        if cta is not None and self.x(cta)[1]:
            self.x.whole(cta, "the rank of a CTA", op)
            return True, [self.x(cta)[0], str(self.x.base)]
        return False, self.remote(cta, op)

    def slot(self, tile: Tile, op: ops.Op) -> str:
        return self.flat(
            self.module.slots[id(tile.buffer)], tile.index, tile.buffer.count, op, tile.buffer.name
        )

    def rect(self, tile: Tile, op: ops.Op) -> str:
        """The rectangle of a tile: a literal where its place is static, hoisted where it never
        changes.
        """
        b = tile.buffer
        if isinstance(tile.row, e.Const) and isinstance(tile.col, e.Const):
            r, c = int(tile.row.value), int(tile.col.value)
            return str(
                support.tile_rect(
                    self.module.namespace[self.x.site], r, c, tile.rows, tile.cols, b.rows, b.cols
                )
            )
        row, col = (
            self.x.scalar(tile.row, "the row of a tile", op),
            self.x.scalar(tile.col, "the column of a tile", op),
        )
        text = (
            f"tile_rect({self.x.site}, {row}, {col}, {tile.rows}, {tile.cols}, {b.rows}, {b.cols})"
        )
        return (
            self.x.hoist(text, "rect")
            if self.x.constant_for_life(tile.row) and self.x.constant_for_life(tile.col)
            else text
        )

    def fragment(self, fragment: Fragment) -> str:
        return self.names(fragment, fragment.name)

    def place(self, tile: Tile, op: ops.Op) -> list[str]:
        """The two operands that name a tile: its slot and its rectangle."""
        return [self.slot(tile, op), self.rect(tile, op)]

    def coords(self, coords: tuple[e.Expr, ...], op: ops.Op) -> str:
        texts = [self.x.scalar(c, "a coordinate", op) for c in coords]
        return f"({', '.join(texts)},)"

    def element(self, element: Element, op: ops.Op) -> tuple[list[str], bool]:
        """The operands that name an element, and whether it differs between threads."""
        for i in element.index:
            self.x.whole(i, "the index of an element", op)
        index = [self.x(i) for i in element.index]
        texts, array = [t for t, _ in index], any(a for _, a in index)
        if not isinstance(element.base, Tile):
            return texts, array
        tile = element.base
        return [self.slot(tile, op), self.rect(tile, op), *texts, *self.remote(tile.cta, op)], array
