"""The ops of a kernel as the machine sees them: the static facts that it and its messages need."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tilepipe.ir import ops, printer
from tilepipe.ir.def_use import tensors as tensors_of, used
from tilepipe.ir.expressions import Const, Expr, FragmentRead, Iota, children, const
from tilepipe.ir.facts import Sync
from tilepipe.ir.memory import (
    BarrierRef,
    Element,
    NamedBarrier,
    Tile,
    Tmem,
    TmemScales,
)
from tilepipe.ir.ops import Op
from tilepipe.ir.program import barrier_of
from tilepipe.machine.happens_before.accesses import Rect
from tilepipe.machine.sites import OWN, Site


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class OpSite(Site):
    """A site with the op itself, for those who read the IR."""

    op: Op = field(repr=False)

    def located(self, buffer: str, index: int, rect: Rect | None) -> str:
        tiles = [t for t in tiles_of(self.op) if t.buffer.name == buffer]
        if len(tiles) != 1:
            return self.what
        tile = replace(tiles[0], index=const(index))
        if rect is not None and (rect[1] - rect[0], rect[3] - rect[2]) == (tile.rows, tile.cols):
            tile = replace(tile, row=const(rect[0]), col=const(rect[2]))
        return self.what.replace(printer.tile(tiles[0]), printer.tile(tile))


# class of op -> what it does to the barrier that is its operand
_SYNC = {op: op.sync & ~op.facts.sync for op in ops.EVERY}


def describe(
    op: Op, number: int, role: str, tensors: dict[int, int], by_parity: frozenset[str]
) -> OpSite:
    """The site of an op.

    `tensors`: id of a `TensorParam` -> its index. `by_parity`: the names of the barrier arrays that
    some wait names by parity.
    """
    if not op.acts:  # the machine never sees it; more than half of a kernel's ops are such
        return OpSite(number, op.loc, op.kind, op.kind, role, op=op)
    what, bar = _text(op, op.kind), getattr(op, "bar", None)
    facts: dict[str, Any] = {"facts": op.facts, "sync": _SYNC[type(op)]}
    for tensor, use in tensors_of(op):
        facts |= {"tensor": tensors[id(tensor)], "writes": use.writes}
    facts |= _facts(op)
    if isinstance(bar, BarrierRef):
        facts["barrier"] = bar.array.name
        facts["by_parity"] = bar.array.name in by_parity
        if bar.cta is not None:
            facts["targets"] = 1 << int(bar.cta.value) if isinstance(bar.cta, Const) else None
    elif isinstance(bar, NamedBarrier):
        facts["named"] = bar.name
    return OpSite(number, op.loc, op.kind, what, role, op=op, **facts)


def _facts(op: Op) -> dict[str, Any]:
    """What the machine must know of an op beside its operands."""
    match op:
        case ops.TmaLoad(dst=tile) | ops.TmaStore(src=tile):
            moved = {"rows": tile.rows, "cols": tile.cols, "nbytes": tile.nbytes}
            return moved | {"multicast": getattr(op, "multicast", None) is not None}
        case ops.Wgmma(acc=acc, b=b):
            return {"flops": 2 * acc.rows * acc.cols * b.cols}
        case ops.Tcgen05Mma(acc=into, a=a, b=b, cta_group=group, sfa=sfa, sfb=sfb):
            return {
                "flops": 2 * group * into.rows * into.cols * b.cols,
                "cta_group": group,
                "place": into,
                "place_a": a if isinstance(a, Tmem) else None,
                "scales": tuple(s for s in (sfa, sfb) if s is not None),
                "shape": (into.rows, into.cols, b.buffer.dtype),
            }
        case ops.Tcgen05Commit(mask=mask) if mask is not None:
            return {"targets": int(mask.value) if isinstance(mask, Const) else None}
        case (
            ops.TmemAlloc(columns=columns, cta_group=group)
            | ops.TmemDealloc(columns=columns, cta_group=group)
        ):
            return {"columns": columns, "cta_group": group, "targets": None if group == 2 else OWN}
        case ops.TmemCopy(dst=TmemScales() as scales, cta_group=group):
            return {"scales": (scales,), "cta_group": group}
        case ops.TmemCopy(dst=place, cta_group=group):
            return {"place": place, "cta_group": group}
        case ops.TmemLoad(src=matrix) | ops.TmemStore(dst=matrix):
            return {"place": matrix}
        case ops.FragmentStore(value=value):
            return {"layout": layout_of(value)}
        case ops.FragmentLoad(dst=f):
            return {"layout": f.layout}
        case ops.FragmentLoadGlobal(dst=f):
            return {"rows": f.rows, "cols": f.cols, "layout": f.layout}
        case ops.FragmentStoreGlobal(value=value):
            rows, cols = value.shape
            return {"rows": rows, "cols": cols, "layout": layout_of(value)}
        case ops.ClcTryCancel(dst=tile, multicast=multicast):
            return {"nbytes": tile.nbytes, "multicast": multicast}
        case ops.MbarArrive(sem=sem):
            return {"relaxed": sem == "relaxed"}
        case ops.MbarExpect(sem=sem, arrive=arrive):
            sync = _SYNC[ops.MbarExpect] if arrive else Sync.EXPECT
            return {"relaxed": sem == "relaxed", "sync": sync}
        case ops.MbarWait(phase=phase) | ops.MbarTryWait(phase=phase):
            return {"parity": phase.dtype.kind != "phase"}
    return {}


def layout_of(value: Expr) -> str:
    """The layout of a fragment-shaped value: that of the fragments with rows which it reads,
    "wgmma" where there are none.
    """
    if isinstance(value, Iota):
        return value.layout
    if isinstance(value, FragmentRead):
        return value.fragment.layout if value.shape[0] > 1 else "wgmma"
    return next(
        (found for child in children(value) if (found := layout_of(child)) != "wgmma"), "wgmma"
    )


def tiles_of(op: Op) -> list[Tile]:
    """The shared tiles that an op touches."""
    touched = (x.base if isinstance(x, Element) else x for x, _ in used(op))
    return [x for x in touched if isinstance(x, Tile)]


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
