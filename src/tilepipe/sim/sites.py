"""The ops of a kernel as the machine sees them: the static facts that it and its messages need."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tilepipe.ir import def_use, ops, printer
from tilepipe.ir.expressions import Const, Expr, FragmentRead, Iota, Vary, children, const
from tilepipe.ir.facts import Sync
from tilepipe.ir.fragment import Fragment, row_threads
from tilepipe.ir.memory import (
    BarrierRef,
    Element,
    NamedBarrier,
    Tile,
    Tmem,
    TmemScales,
)
from tilepipe.ir.op_text import text_of
from tilepipe.ir.ops import Op
from tilepipe.ir.program import barrier_of
from tilepipe.machine.happens_before.accesses import Rect
from tilepipe.machine.sites import OWN, Site


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class OpSite(Site):
    """A site with the op itself, for those who read the IR."""

    op: Op = field(repr=False)

    def located(self, buffer: str, index: int, rect: Rect | None) -> str:
        tiles = [t for t in tiles_of(self.op) if t.buffer.own.name == buffer]
        if len(tiles) != 1:
            return self.what
        tile = replace(tiles[0], index=const(index))
        if rect is not None and tile.buffer.turned_from is not None:
            rect = (*rect[2:], *rect[:2])
        if rect is not None and (rect[1] - rect[0], rect[3] - rect[2]) == (tile.rows, tile.cols):
            tile = replace(tile, row=const(rect[0]), col=const(rect[2]))
        return self.what.replace(printer.tile(tiles[0]), printer.tile(tile))


# class of op -> what it does to the barrier that is its operand
_SYNC = {op: op.sync & ~op.facts.sync for op in ops.EVERY}


def describe(
    op: Op,
    number: int,
    role: str,
    tensors: dict[int, int],
    by_parity: frozenset[str],
    by_each: bool,
) -> OpSite:
    """The site of an op.

    `tensors`: id of a `TensorParam` -> its index. `by_parity`: the names of the barrier arrays that
    some wait names by parity. `by_each`: `Site.by_each`.
    """
    if not op.acts:  # the machine never sees it; more than half of a kernel's ops are such
        return OpSite(number, op.loc, op.kind, op.kind, role, op=op)
    operands = [x for x, _ in def_use.used(op)]
    facts = _settings(op)
    for operand in operands:
        facts |= _extent(operand)
    for tensor, use in def_use.tensors(op):
        facts |= {"tensor": tensors[id(tensor)], "writes": use.writes}
    if isinstance(op, ops.Wgmma | ops.Tcgen05Mma):
        rows, cols, group = op.acc.rows, op.acc.cols, facts["cta_group"]
        shape = rows, cols, op.b.buffer.dtype
        facts |= {"flops": 2 * group * rows * cols * op.b.cols, "shape": shape}
    if isinstance(op, ops.Atomic | ops.TmaReduce | ops.FragmentReduceGlobal):
        to = op.dst.base if isinstance(op, ops.Atomic) else op.tensor
        if isinstance(op, ops.Atomic):
            facts["releases"] = op.operation != "cas" and op.order in ("release", "acq_rel")
        if op.operation == "add":
            dtype = (to.buffer if isinstance(to, Tile) else to).dtype
            facts["adds"] = "floats" if dtype.is_float else "integers"
            if isinstance(op, ops.Atomic) and op.value.vary is Vary.LANE:
                facts["one_place"] = all(x.vary is not Vary.LANE for x in op.dst.index)
    bar = getattr(op, "bar", None)
    if isinstance(bar, BarrierRef):
        facts |= {"barrier": bar.array.name, "by_parity": bar.array.name in by_parity}
    elif isinstance(bar, NamedBarrier):
        facts["named"] = bar.name
    place, place_a, *_ = *(x for x in operands if isinstance(x, Tmem)), None, None
    facts |= {"place": place, "place_a": place_a}
    facts["scales"] = tuple(x for x in operands if isinstance(x, TmemScales))
    return OpSite(number, op.loc, op.name, text_of(op), role, op=op, by_each=by_each, **facts)


def _settings(op: Op) -> dict[str, Any]:
    """What the machine must know of an op beside its operands; a field means the same on every op
    that has it.
    """
    multicast, phase = getattr(op, "multicast", None), getattr(op, "phase", None)
    arrives: bool = getattr(op, "arrive", True)
    return {
        "facts": op.facts,
        "sync": _SYNC[type(op)] if arrives else Sync.EXPECT,
        "near": getattr(op, "sem", "") == "relaxed",
        "multicast": multicast is not None and multicast is not False,
        "parity": phase is not None and phase.dtype.kind != "phase",
        "columns": getattr(op, "columns", 0),
        "cta_group": getattr(op, "cta_group", 1),
        "targets": _targets(op),
    }


def _targets(op: Op) -> int | None:
    """`Site.targets`: by its barrier, by a mask, or as an op on the tensor memory of a pair."""
    bar, mask = barrier_of(op), getattr(op, "mask", None)
    if bar is not None and bar.cta is not None:
        return 1 << int(bar.cta.value) if isinstance(bar.cta, Const) else None
    if mask is not None:
        return int(mask.value) if isinstance(mask, Const) else None
    both = getattr(op, "columns", 0) and getattr(op, "cta_group", 1) == 2
    return None if both else OWN


def _extent(operand: object) -> dict[str, Any]:
    """The extent and the layout of an operand."""
    match operand:
        case Tile(rows=rows, cols=cols, nbytes=nbytes):
            return {"rows": rows, "cols": cols, "nbytes": nbytes}
        case Fragment(rows=rows, cols=cols, layout=layout):
            return {"rows": rows, "cols": cols, "layout": layout}
        case Expr(shape=(rows, cols)):
            return {"rows": rows, "cols": cols, "layout": layout_of(operand)}
    return {}


def layout_of(value: Expr) -> str:
    """The layout of a fragment-shaped value: that of the fragments with rows which it reads,
    "wgmma" where there are none.
    """
    if isinstance(value, Iota):
        return value.layout
    if isinstance(value, FragmentRead):
        layout = value.fragment.layout
        return layout if value.shape[0] > 1 or row_threads(layout) else "wgmma"
    return next(
        (found for child in children(value) if (found := layout_of(child)) != "wgmma"), "wgmma"
    )


def tiles_of(op: Op) -> list[Tile]:
    """The shared tiles that an op touches."""
    touched = (x.base if isinstance(x, Element) else x for x, _ in def_use.used(op))
    return [x for x in touched if isinstance(x, Tile)]
