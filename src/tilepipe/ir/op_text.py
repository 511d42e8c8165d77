"""An op with its object in one line, for messages and timelines."""

from __future__ import annotations

from tilepipe.ir import def_use, ops, printer
from tilepipe.ir.expressions import Expr
from tilepipe.ir.memory import Element, Tile


def text_of(op: ops.Op) -> str:
    """`tma_load a -> a_tiles[stage]`, for messages."""
    if isinstance(op, ops.Wgmma | ops.Tcgen05Mma):
        return f"{op.kind} {printer.mma(op)}"
    moved = [(x, use.writes) for x, use in def_use.used(op) if not isinstance(x, Expr)]
    texts = [op.name]
    if isinstance(op, ops.TmemAlloc | ops.TmemDealloc):
        texts.append(f"{op.columns} columns")
    if isinstance(op, ops.TmemDealloc):
        texts.append(f"at {printer.expr(op.address)}")
    texts += [_element(x) for x, _ in moved if isinstance(x, Element)]
    whole = [(printer.operand(x), writes) for x, writes in moved if not isinstance(x, Element)]
    texts += [text for text, writes in whole if not writes]
    texts += [f"-> {text}" for text, writes in whole if writes]
    bar = getattr(op, "bar", None)
    return " ".join(texts if moved or bar is None else [*texts, printer.operand(bar)])


def _element(x: Element) -> str:
    """`counts[0]`, or `[row] of sums[0] rows 0..63`."""
    base = printer.tile(x.base) if isinstance(x.base, Tile) else x.base.name
    at = f"[{', '.join(printer.expr(i) for i in x.index)}]"
    part = isinstance(x.base, Tile) and not base.endswith("]")
    return f"{at} of {base}" if part else f"{base}{at}"
