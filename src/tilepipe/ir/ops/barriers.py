"""The ops on mbarriers."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.memory import BarrierRef
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class MbarInit(Op):
    """mbarrier.init of `n` consecutive barriers from `bar` (one lane). `count` None: the array's
    derived count.
    """

    bar: BarrierRef
    count: Expr | None
    n: int = 1


@dataclass(eq=False, slots=True)
class MbarInval(Op):
    """mbarrier.inval (one lane)."""

    bar: BarrierRef


@dataclass(eq=False, slots=True)
class MbarArrive(Op):
    """mbarrier.arrive by every active lane, `count` each.

    `sem`: "release" publishes what the lane has done and seen. "relaxed" is printed as the plain
    form, which releases at the scope of the CTA: on a barrier of another CTA it publishes the
    retired asynchronous reads of its warpgroup, accesses of tensor memory that `Tcgen05FenceBefore`
    has covered, and reads of a response (`ClcQuery`) that a `FenceProxyAsync` has, and no other
    access. A release at cluster scope is a fence of the whole GPU (MEMBAR.ALL.GPU).
    """

    bar: BarrierRef
    count: Expr
    sem: str = "release"


@dataclass(eq=False, slots=True)
class MbarExpect(Op):
    """mbarrier.arrive.expect_tx: adds `nbytes` to the pending transaction and arrives once.
    `arrive=False`: expect_tx only. `sem`: as of `MbarArrive`.
    """

    bar: BarrierRef
    nbytes: Expr
    arrive: bool = True
    sem: str = "release"


@dataclass(eq=False, slots=True)
class MbarCompleteTx(Op):
    """Credits `nbytes` without a copy."""

    bar: BarrierRef
    nbytes: Expr


@dataclass(eq=False, slots=True)
class MbarWait(Op):
    """Blocks until phase `phase` is complete. dtype `phase`: a full number; an integer: a parity
    (only bit 0 counts).
    """

    bar: BarrierRef
    phase: Expr


@dataclass(eq=False, slots=True)
class MbarTryWait(Op):
    """Binds `result` (boolean, warp-uniform: tested by lane 0 and broadcast) to whether phase
    `phase` is complete; never blocks.
    """

    bar: BarrierRef
    phase: Expr
    result: Local
