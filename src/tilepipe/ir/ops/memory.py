"""Ordinary and atomic accesses to single elements of memory."""

from dataclasses import dataclass
from typing import Annotated

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import BINDS, READS, UPDATES, WRITES, Facts, Resource
from tilepipe.ir.memory import Element
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class Load(Op):
    """Ordinary load of one element by every active lane."""

    result: Annotated[Local, BINDS]
    src: Annotated[Element, READS]

    facts = Facts(ptx="ld")


@dataclass(eq=False, slots=True)
class Store(Op):
    """Ordinary store of one element by every active lane."""

    dst: Annotated[Element, WRITES]
    value: Annotated[Expr, READS]

    facts = Facts(ptx="st")


@dataclass(eq=False, slots=True)
class AtomicAdd(Op):
    """atom.relaxed.gpu.global.add by one lane, to an int32 or uint32 element; `result` is the value
    it had before.

    Relaxed: it orders nothing else. Signed sums wrap, as unsigned ones.
    """

    result: Annotated[Local, BINDS]
    dst: Annotated[Element, UPDATES]
    value: Annotated[Expr, READS]

    facts = Facts(ptx="atom", takes=Resource.COUNTERS, noticed=True)
