"""The ops on mbarriers."""

from dataclasses import dataclass
from typing import Annotated

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import BINDS, Facts, Scope, Sync
from tilepipe.ir.memory import BarrierRef
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class MbarInit(Op):
    """mbarrier.init of `n` consecutive barriers from `bar` (one lane). `count` None: the array's
    derived count.
    """

    bar: Annotated[BarrierRef, Sync.INITIALISE]
    count: Expr | None
    n: int = 1

    facts = Facts(ptx="mbarrier.init", noticed=True)


@dataclass(eq=False, slots=True)
class MbarInval(Op):
    """mbarrier.inval (one lane)."""

    bar: Annotated[BarrierRef, Sync.INVALIDATE]

    facts = Facts(ptx="mbarrier.inval", noticed=True)


@dataclass(eq=False, slots=True)
class MbarArrive(Op):
    """mbarrier.arrive by every active lane, `count` each.

    `sem`: "release" publishes what the lane has done and seen. "relaxed" is printed as the plain
    form, which releases at the scope of the CTA: on a barrier of another CTA it publishes the
    retired asynchronous reads of its warpgroup, accesses of tensor memory that `Tcgen05FenceBefore`
    has covered, and reads of a response (`ClcQuery`) that a `FenceProxyAsync` has, and no other
    access. A release at cluster scope is a fence of the whole GPU (MEMBAR.ALL.GPU).
    """

    bar: Annotated[BarrierRef, Sync.ARRIVE]
    count: Expr
    sem: str = "release"

    facts = Facts(ptx="mbarrier.arrive", noticed=True)


@dataclass(eq=False, slots=True)
class MbarExpect(Op):
    """mbarrier.arrive.expect_tx: adds `nbytes` to the pending transaction and arrives once.
    `arrive=False`: expect_tx only. `sem`: as of `MbarArrive`.
    """

    bar: Annotated[BarrierRef, Sync.ARRIVE | Sync.EXPECT]
    nbytes: Expr
    arrive: bool = True
    sem: str = "release"

    facts = Facts(ptx="mbarrier.expect_tx operation", noticed=True)


@dataclass(eq=False, slots=True)
class MbarCompleteTx(Op):
    """Credits `nbytes` without a copy."""

    bar: Annotated[BarrierRef, Sync.CREDIT]
    nbytes: Expr

    facts = Facts(ptx="mbarrier.complete_tx", noticed=True)


@dataclass(eq=False, slots=True)
class MbarWait(Op):
    """Blocks until phase `phase` is complete. dtype `phase`: a full number; an integer: a parity
    (only bit 0 counts).
    """

    bar: Annotated[BarrierRef, Sync.WAIT]
    phase: Expr

    facts = Facts(ptx="mbarrier.try_wait", noticed=True)


@dataclass(eq=False, slots=True)
class MbarTryWait(Op):
    """Binds `result` (boolean, warp-uniform: tested by lane 0 and broadcast) to whether phase
    `phase` is complete; never blocks.
    """

    bar: Annotated[BarrierRef, Sync.TEST]
    phase: Expr
    result: Annotated[Local, BINDS]

    facts = Facts(ptx="mbarrier.try_wait", scope=Scope.WARP, noticed=True)
