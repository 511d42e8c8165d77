"""Ordinary and atomic accesses to single elements of memory."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.memory import Element
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class Load(Op):
    """Ordinary load of one element by every active lane."""

    result: Local
    src: Element


@dataclass(eq=False, slots=True)
class Store(Op):
    """Ordinary store of one element by every active lane."""

    dst: Element
    value: Expr


@dataclass(eq=False, slots=True)
class AtomicAdd(Op):
    """atom.relaxed.gpu.global.add by one lane, to an int32 or uint32 element; `result` is the value
    it had before.

    Relaxed: it orders nothing else. Signed sums wrap, as unsigned ones.
    """

    result: Local
    dst: Element
    value: Expr
