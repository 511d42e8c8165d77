"""Where an op stands in a kernel: the static facts about it that the machine and its messages
need.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilepipe.ir import ops, printer
from tilepipe.ir.fragment_layout import layout_of
from tilepipe.ir.memory import Element, TensorParam, Tile, TmemScales
from tilepipe.ir.ops import Op
from tilepipe.ir.program import barrier_of

if TYPE_CHECKING:
    from tilepipe.ir.location import Loc

SETUP = "set-up"


@dataclass(frozen=True, eq=False, slots=True)
class Site:
    """One op of the kernel. Immutable and shared by all runs, so copying a machine copies no sites.

    Attributes:
        id: index into the kernel's table of sites, and into an agent's counts.
        kind: the op's name in lower case with underscores (`tma_load`).
        what: the op with its object, for messages (`tma_load a -> a_tiles`).
        role: the role's name, or `SETUP`.
        tensor: index of the tensor parameter, -1 where the op has none.
        rows, cols, nbytes: extent of the tile that the op moves or reads, 0 where it has none.
        flops: floating-point operations of one execution.
        layout: of the fragment that the op moves to or from memory.
        relaxed: an arrive that publishes little on another CTA's barrier (`ir.ops.MbarArrive`).
        by_parity: some wait on this barrier array gives a parity instead of a phase number.
    """

    id: int
    op: Op = field(repr=False)
    kind: str = ""
    what: str = ""
    role: str = ""
    tensor: int = -1
    rows: int = 0
    cols: int = 0
    nbytes: int = 0
    flops: int = 0
    layout: str = "wgmma"
    relaxed: bool = False
    by_parity: bool = False

    @property
    def loc(self) -> Loc:
        return self.op.loc

    def __deepcopy__(self, memo: dict[int, object]) -> Site:
        return self


def describe(op: Op, number: int, role: str, tensors: dict[int, int], by_parity: set[int]) -> Site:
    """The site of an op.

    `tensors`: id of a `TensorParam` -> its index. `by_parity`: ids of the barrier arrays that some
    wait names by parity.
    """
    kind = _snake(type(op).__name__)
    bar = barrier_of(op)
    what = _text(op, kind)
    match op:
        case ops.TmaLoad(tensor=t, dst=tile) | ops.TmaStore(tensor=t, src=tile):
            return Site(
                number,
                op,
                kind,
                what,
                role,
                tensor=tensors[id(t)],
                rows=tile.rows,
                cols=tile.cols,
                nbytes=tile.nbytes,
            )
        case ops.Wgmma(acc=acc, b=b):
            return Site(number, op, kind, what, role, flops=2 * acc.rows * acc.cols * b.cols)
        case ops.Tcgen05Mma(acc=into, b=b, cta_group=group):
            return Site(
                number, op, kind, what, role, flops=2 * group * into.rows * into.cols * b.cols
            )
        case ops.FragmentStore(value=value):
            return Site(number, op, kind, what, role, layout=layout_of(value))
        case ops.FragmentLoad(dst=f):
            return Site(number, op, kind, what, role, layout=f.layout)
        case (
            ops.Load(src=Element(base=TensorParam() as t)) | ops.Store(dst=Element(base=TensorParam() as t))
            | ops.AtomicAdd(dst=Element(base=TensorParam() as t))
        ):  # fmt: skip
            return Site(number, op, kind, what, role, tensor=tensors[id(t)])
        case ops.FragmentLoadGlobal(tensor=t, dst=f):
            return Site(
                number,
                op,
                kind,
                what,
                role,
                tensor=tensors[id(t)],
                rows=f.rows,
                cols=f.cols,
                layout=f.layout,
            )
        case ops.FragmentStoreGlobal(tensor=t, value=value):
            rows, cols = value.shape
            return Site(
                number,
                op,
                kind,
                what,
                role,
                tensor=tensors[id(t)],
                rows=rows,
                cols=cols,
                layout=layout_of(value),
            )
        case ops.ClcTryCancel(dst=tile):
            return Site(number, op, kind, what, role, nbytes=tile.nbytes)
        case ops.MbarArrive(sem=sem) | ops.MbarExpect(sem=sem):
            return Site(number, op, kind, what, role, relaxed=sem == "relaxed")
    return Site(
        number, op, kind, what, role, by_parity=bar is not None and id(bar.array) in by_parity
    )


def tiles_of(op: Op) -> list[Tile]:
    """The shared tiles that an op touches."""
    match op:
        case (
            ops.TmaLoad(dst=tile)
            | ops.TmaStore(src=tile)
            | ops.FragmentStore(dst=tile)
            | ops.FragmentLoad(src=tile)
        ):
            return [tile]
        case ops.ClcTryCancel(dst=tile) | ops.ClcQuery(src=tile):
            return [tile]
        case ops.Wgmma(a=a, b=b) | ops.Tcgen05Mma(a=a, b=b):
            return [t for t in (a, b) if isinstance(t, Tile)]
        case ops.TmemAlloc(dst=tile) | ops.TmemCopy(src=tile):
            return [tile]
        case (
            ops.Load(src=Element(base=Tile() as tile)) | ops.Store(dst=Element(base=Tile() as tile))
        ):
            return [tile]
    return []


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))


def _text(op: Op, kind: str) -> str:
    """`tma_load a -> a_tiles[stage]`, for messages."""
    match op:
        case ops.TmaLoad(tensor=t, dst=tile):
            return f"{kind} {t.name} -> {printer.tile(tile)}"
        case ops.TmaStore(tensor=t, src=tile):
            return f"{kind} {printer.tile(tile)} -> {t.name}"
        case ops.Wgmma() | ops.Tcgen05Mma():
            return f"{kind} {printer.mma(op)}"
        case ops.TmemAlloc(dst=tile, columns=columns):
            return f"{kind} {columns} columns -> {printer.tile(tile)}"
        case ops.TmemDealloc(address=address, columns=columns):
            return f"{kind} {columns} columns at {printer.expr(address)}"
        case ops.TmemLoad(dst=f, src=t):
            return f"{kind} {printer.tmem(t)} -> {f.name}"
        case ops.TmemStore(dst=t):
            return f"{kind} -> {printer.tmem(t)}"
        case ops.TmemCopy(dst=t, src=tile):
            return f"{kind} {printer.tile(tile)} -> {printer.scales(t) if isinstance(t, TmemScales) else printer.tmem(t)}"
        case ops.ClcTryCancel(dst=tile):
            return f"{kind} -> {printer.tile(tile)}"
        case ops.ClcQuery(src=tile):
            return f"{kind} {printer.tile(tile)}"
        case ops.Load(src=element) | ops.Store(dst=element) | ops.AtomicAdd(dst=element):
            base = (
                printer.tile(element.base) if isinstance(element.base, Tile) else element.base.name
            )
            at = f"[{', '.join(printer.expr(i) for i in element.index)}]"
            return (
                f"{kind} {at} of {base}"
                if base[-1] != "]" and isinstance(element.base, Tile)
                else f"{kind} {base}{at}"
            )
        case ops.FragmentStore(dst=tile):
            return f"{kind} -> {printer.tile(tile)}"
        case ops.FragmentLoad(dst=f, src=tile):
            return f"{kind} {printer.tile(tile)} -> {f.name}"
        case ops.FragmentLoadGlobal(dst=f, tensor=t):
            return f"{kind} {t.name} -> {f.name}"
        case ops.FragmentStoreGlobal(tensor=t):
            return f"{kind} -> {t.name}"
        case ops.NamedSync(bar=named) | ops.NamedArrive(bar=named):
            return f"{kind} {named.name}"
    bar = barrier_of(op)
    return kind if bar is None else f"{kind} {printer.barrier(bar)}"
