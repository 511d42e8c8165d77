"""The generator function of one role, op by op, as Python source; and the registry of what each op
becomes in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from tilepipe.errors import SimFault
from tilepipe.ir import expressions as e, ops
from tilepipe.ir.facts import Feature, Scope
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import BarrierRef, Element, Tile
from tilepipe.ir.program import Kernel, Role
from tilepipe.machine.thread_masks import WARP_MASK
from tilepipe.sim import runtime
from tilepipe.sim.codegen.expressions import Expressions, Names

AnOp = TypeVar("AnOp", bound=ops.Op)
Called = Callable[..., Any]  # what generated code calls

_DEFINITIONS: dict[type[ops.Op], Callable[[Function, Any], None]] = {}
CALLED: dict[str, Called] = {}  # by the generated code, by name
# their ops need to know how many CTAs share a tensor core
_TENSOR_MEMORY = (Feature.TCGEN05, Feature.TENSOR_MEMORY)


def defines(
    op: type[AnOp],
    *called: Called,
    operands: Callable[[Function, AnOp], Sequence[object]] = lambda f, op: (),
) -> Callable[[Callable[[Function, AnOp], None]], None]:
    """Registers what an op becomes: a request to the machine to perform the first of `called` with
    some operands. As a decorator, it registers the function that writes the op's source instead.

    `called`: all that this source calls.
    """
    CALLED.update((f.__name__, f) for f in called)
    _DEFINITIONS[op] = lambda f, op: f.request(op, called[0], *operands(f, op))
    return partial(_DEFINITIONS.__setitem__, op)


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


class Function:
    """The source of one generator function.

    Attributes:
        mask: the active threads, a constant or the name of a variable.
        body: the lines so far: depth, text, where in the kernel.
    """

    def __init__(self, module: Tables, role: Role | None) -> None:
        self.module = module
        self.role = role
        self.group = role is not None and role.is_warpgroup
        self.threads = 128 if self.group else 32
        names = Names(set(module.namespace))
        self.name = names.fresh(role.name if role is not None else "idle")
        module.namespace[self.name] = None
        self.names = names
        self.x = Expressions(self.threads, names, module.constant, lambda: self.mask_text)
        self.mask: int | str = (1 << self.threads) - 1
        self.body: list[tuple[int, str, Loc | None]] = []
        self.depth = 1
        self.emit("# set-up")
        self.block(module.kernel.setup)
        self.x.in_setup = False
        if role is not None:
            self.emit(f"# role {role.name}")
            self.block(role.body)

    def lines(self) -> list[tuple[str, Loc | None]]:
        """The function, line by line, each with the kernel's line it comes from."""
        head = [f"def {self.name}(m, ag, params):", *(f"    {line}" for line in self.x.prologue)]
        out: list[tuple[str, Loc | None]] = [(line, None) for line in head]
        for depth, text, loc in self.body:
            tail = f"  # {loc.short}" if loc is not None else ""
            out.append(("    " * depth + text + tail, loc))
        if not any("yield" in text for _, text, _ in self.body):
            out.append(("    yield from ()", None))
        return out

    def block(self, block: ops.Block) -> None:
        for op in block.ops:
            self.x.site = self.module.site(op)
            self.op(op)

    def nested(
        self, head: str, op: ops.Op, block: ops.Block, mask: int | str | None = None
    ) -> None:
        """A block one level deeper, possibly under another mask."""
        outer = self.mask
        self.emit(head, op)
        self.depth += 1
        if mask is not None:
            self.mask = mask
        before = len(self.body)
        self.block(block)
        if all(text.startswith("#") for _, text, _ in self.body[before:]):
            self.emit("pass")
        self.depth -= 1
        self.mask = outer

    def inline(self, comment: str, block: ops.Block, mask: int | str) -> None:
        """A block under another mask, at the same level."""
        outer, self.mask = self.mask, mask
        self.emit(comment)
        self.block(block)
        self.mask = outer

    def op(self, op: ops.Op) -> None:
        """The source of one op."""
        definition, facts = _DEFINITIONS.get(type(op)), op.facts
        if definition is None:
            raise SimFault(f"the simulator has no definition of {type(op).__name__}", op.loc)
        by_pair = facts.feature in _TENSOR_MEMORY and (facts.unit or facts.takes)
        if by_pair and not self.module.kernel.cta_group:
            raise SimFault(f"{type(op).__name__} in a kernel whose cta_group is not set", op.loc)
        self.aligned(op)
        definition(self, op)

    def aligned(self, op: ops.Op) -> None:
        """A check before an op that a warpgroup, a warp of `PerWarp`, or each warp executes as
        one.
        """
        together = op.facts.together is Scope.WARPGROUP
        span = (1 << self.threads) - 1 if self.x.warp is None else WARP_MASK << self.x.base
        if together and self.mask != span:
            unit = "warpgroup" if self.group and self.x.warp is None else "warp"
            self.emit(f"all_lanes(ag, {self.x.site}, {self.mask_text}, {span:#x}, {unit!r})", op)
        elif op.facts.together is Scope.WARP and (
            isinstance(self.mask, str) or runtime.part_of_a_warp(self.mask)
        ):
            self.emit(f"whole_warps(ag, {self.x.site}, {self.mask_text})", op)

    # -- operands ----------------------------------------------------------------------

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
            self.module.slots[id(tile.buffer.own)],
            tile.index,
            tile.buffer.count,
            op,
            tile.buffer.own.name,
        )

    def rect(self, tile: Tile, op: ops.Op) -> str:
        """The rectangle of a tile: a literal where its place is static, hoisted where it never
        changes.
        """
        b = tile.buffer
        if isinstance(tile.row, e.Const) and isinstance(tile.col, e.Const):
            r, c = int(tile.row.value), int(tile.col.value)
            return str(
                runtime.tile_rect(
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
        if not (self.x.constant_for_life(tile.row) and self.x.constant_for_life(tile.col)):
            return text
        # The op may stand in a branch that is never taken where the rectangle leaves the tile.
        hoisted = self.x.hoist(f"rect_inside({text.removeprefix('tile_rect(')}", "rect")
        return f"({hoisted} or {text})"

    def fragment(self, fragment: Fragment) -> str:
        return self.names(fragment, fragment.name)

    def place(self, tile: Tile, op: ops.Op) -> list[str]:
        """The two operands that name a tile: its slot and its rectangle, of a transpose that of the
        tile itself, as `Turned`.
        """
        if tile.buffer.turned_from is not None:
            return [self.slot(tile, op), f"Turned({self.rect(tile.transpose, op)})"]
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
