"""Strong accesses to global memory, by which CTAs synchronise, and the fence between them and other
accesses (PTX ISA, Memory Consistency Model).
"""

from typing import Annotated, Literal

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import BINDS, READS, UPDATES, WRITES, Facts, Order, Resource
from tilepipe.ir.memory import Element
from tilepipe.ir.ops.base import Op, declares

MemoryScope = Literal["cta", "cluster", "gpu", "sys"]
LoadOrder = Literal["relaxed", "acquire"]
StoreOrder = Literal["relaxed", "release"]
AtomicOrder = Literal["relaxed", "acquire", "release", "acq_rel"]
FenceOrder = Literal["acq_rel", "sc"]
AtomicOperation = Literal["add", "min", "max", "and", "or", "xor", "exchange", "cas"]


@declares(Facts(ptx="ld", takes=Resource.COUNTERS))
class StrongLoad(Op):
    """ld.relaxed or ld.acquire of one element of a tensor by every active lane."""

    result: Annotated[Local, BINDS]
    src: Annotated[Element, READS]
    order: LoadOrder
    scope: MemoryScope

    @property
    def name(self) -> str:
        """`load_acquire`."""
        return f"load_{self.order}"


@declares(Facts(ptx="st", takes=Resource.COUNTERS))
class StrongStore(Op):
    """st.relaxed or st.release of one element of a tensor by every active lane."""

    dst: Annotated[Element, WRITES]
    value: Annotated[Expr, READS]
    order: StoreOrder
    scope: MemoryScope

    @property
    def name(self) -> str:
        """`store_release`."""
        return f"store_{self.order}"


@declares(Facts(ptx="atom", takes=Resource.COUNTERS))
class Atomic(Op):
    """atom.global, or red.global where nothing reads `result`, by every active lane, one after
    another: the element becomes what `operation` makes of it and of `value`. `result` is what it
    was before.

    Signed sums wrap, as unsigned ones. `compare`, of "cas" alone: the element becomes `value` where
    it equals it.
    """

    result: Annotated[Local, BINDS]
    dst: Annotated[Element, UPDATES]
    operation: AtomicOperation
    value: Annotated[Expr, READS]
    compare: Annotated[Expr | None, READS]
    order: AtomicOrder
    scope: MemoryScope

    @property
    def name(self) -> str:
        """`atomic_add`."""
        return f"{self.kind}_{self.operation}"


@declares(Facts(ptx="membar / fence", orders=Order.MEMORY))
class Fence(Op):
    """fence.acq_rel or fence.sc by every active lane: strong loads before it acquire, and strong
    stores after it release.
    """

    order: FenceOrder
    scope: MemoryScope
