"""Annotations of public members that say more than a type: ranges, choices and names.

`lang.arguments.parameters` reads them; every other value is refused before the member runs. To
a type checker each is its first argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from tilepipe.host_arguments import INT32_MAX
from tilepipe.ir.chip import MAX_COUNT, MAX_TX_BYTES


@dataclass(frozen=True)
class Traced:
    """An integer in low..high, or a traced one; with `condition` also a condition."""

    low: int
    high: int = INT32_MAX
    condition: bool = False


@dataclass(frozen=True)
class Static:
    """An integer in low..high that is known while tracing."""

    low: int
    high: int = INT32_MAX


@dataclass(frozen=True)
class OneOf:
    """One of a few values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Printable:
    """A text of one line with something in it, as messages and printed code show names."""


@dataclass(frozen=True)
class Several:
    """A tuple or a list of objects of the class called `element`, one at least. `words`: in
    messages.
    """

    element: str
    words: str


CtaRank = Annotated[object, Traced(0, 15)]
MulticastMask = Annotated[object, Traced(1, 0xFFFF)]  # a bit for each CTA of a cluster
ArrivalCount = Annotated[object, Traced(1, MAX_COUNT)]
TransactionBytes = Annotated[object, Traced(0, MAX_TX_BYTES)]
Index = Annotated[object, Traced(0)]
Extent = Annotated[object, Traced(0)]
Phase = Annotated[object, Traced(0, condition=True)]
Predicate = Annotated[object, Traced(0, 1, condition=True)]

Unroll = Annotated[int, Static(1, 64)]  # iterations of a loop written one after the other
CtaGroup = Annotated[int, Static(1, 2)]  # CTAs that execute a tcgen05 instruction together
PositiveInt = Annotated[int, Static(1)]
NonNegativeInt = Annotated[int, Static(0)]

Axis = Annotated[int, OneOf((0, 1))]  # of a fragment
MatrixOrder = Annotated[str, OneOf(("row", "col"))]
Swizzle = Annotated[int, OneOf((0, 32, 64, 128))]  # bytes
MemoryScope = Annotated[str, OneOf(("cta", "cluster"))]
GlobalScope = Annotated[str, OneOf(("cta", "cluster", "gpu", "sys"))]
LoadOrder = Annotated[str, OneOf(("relaxed", "acquire"))]
StoreOrder = Annotated[str, OneOf(("relaxed", "release"))]
AtomicOrder = Annotated[str, OneOf(("relaxed", "acquire", "release", "acq_rel"))]
Eviction = Annotated[str, OneOf(("evict_first", "evict_last"))]
Reduction = Annotated[str, OneOf(("add", "min", "max", "and", "or", "xor"))]
FragmentReduction = Annotated[str, OneOf(("add",))]
FenceOrder = Annotated[str, OneOf(("acq_rel", "sc"))]
Name = Annotated[str, Printable()]
