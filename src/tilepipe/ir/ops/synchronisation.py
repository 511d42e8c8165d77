"""The ops that synchronise threads: mbarriers, named, CTA and cluster barriers, fences."""

from dataclasses import replace
from typing import Annotated

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import BINDS, WHOLE_WARP, Facts, Order, Scope, Sync
from tilepipe.ir.memory import (
    BarrierRef,
    NamedBarrier,
)
from tilepipe.ir.ops.base import Op, declares


@declares(Facts(ptx="mbarrier.init"))
class MbarInit(Op):
    """mbarrier.init of `n` consecutive barriers from `bar` (one lane). `count` None: the array's
    derived count.
    """

    bar: Annotated[BarrierRef, Sync.INITIALISE]
    count: Expr | None
    n: int = 1


@declares(Facts(ptx="mbarrier.inval"))
class MbarInval(Op):
    """mbarrier.inval (one lane)."""

    bar: Annotated[BarrierRef, Sync.INVALIDATE]


@declares(Facts(ptx="mbarrier.arrive"))
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


@declares(Facts(ptx="mbarrier.expect_tx operation"))
class MbarExpect(Op):
    """mbarrier.arrive.expect_tx: adds `nbytes` to the pending transaction and arrives once.
    `arrive=False`: expect_tx only. `sem`: as of `MbarArrive`.
    """

    bar: Annotated[BarrierRef, Sync.ARRIVE | Sync.EXPECT]
    nbytes: Expr
    arrive: bool = True
    sem: str = "release"


@declares(Facts(ptx="mbarrier.complete_tx"))
class MbarCompleteTx(Op):
    """Credits `nbytes` without a copy."""

    bar: Annotated[BarrierRef, Sync.CREDIT]
    nbytes: Expr


@declares(Facts(ptx="mbarrier.try_wait"))
class MbarWait(Op):
    """Blocks until phase `phase` is complete. dtype `phase`: a full number; an integer: a parity
    (only bit 0 counts).
    """

    bar: Annotated[BarrierRef, Sync.WAIT]
    phase: Expr


@declares(Facts(ptx="mbarrier.try_wait", scope=Scope.WARP))
class MbarTryWait(Op):
    """Binds `result` (boolean, warp-uniform: tested by lane 0 and broadcast) to whether phase
    `phase` is complete; never blocks.
    """

    bar: Annotated[BarrierRef, Sync.TEST]
    phase: Expr
    result: Annotated[Local, BINDS]


@declares(replace(WHOLE_WARP, ptx="bar, barrier", by_warp=True))
class NamedSync(Op):
    """bar.sync: arrives at the named barrier and waits for all its threads. `group`: which of its
    copies (per warpgroup).
    """

    bar: Annotated[NamedBarrier, Sync.ARRIVE | Sync.WAIT]
    group: Expr | None = None


@declares(replace(WHOLE_WARP, ptx="bar, barrier", by_warp=True))
class NamedArrive(Op):
    """bar.arrive: arrives at the named barrier without waiting."""

    bar: Annotated[NamedBarrier, Sync.ARRIVE]
    group: Expr | None = None


@declares(
    Facts(ptx="bar.warp.sync", scope=Scope.WARP, active_lanes=True, sync=Sync.ARRIVE | Sync.WAIT)
)
class SyncWarp(Op):
    """__syncwarp: the active lanes of the warp converge and see each other's shared-memory
    accesses.
    """


@declares(
    Facts(
        ptx="bar, barrier",
        scope=Scope.CTA,
        together=Scope.CTA,
        sync=Sync.ARRIVE | Sync.WAIT,
        orders=Order.BARRIER_INITIALISATION,
    )
)
class SetupBarrier(Op):
    """End of set-up: mbarrier-init fence, then every thread of the CTA (or cluster) meets. Emitted
    by the library.
    """


@declares(
    Facts(
        ptx="barrier.cluster",
        scope=Scope.CLUSTER,
        together=Scope.WARPGROUP,
        sync=Sync.ARRIVE,
    )
)
class ClusterArrive(Op):
    """barrier.cluster.arrive.release."""


@declares(
    Facts(
        ptx="barrier.cluster",
        scope=Scope.CLUSTER,
        together=Scope.WARPGROUP,
        sync=Sync.WAIT,
    )
)
class ClusterWait(Op):
    """barrier.cluster.wait.acquire."""


@declares(Facts(ptx="membar / fence", orders=Order.PROXIES))
class FenceProxyAsync(Op):
    """fence.proxy.async: orders this thread's ordinary accesses, and those it knows of, before what
    the async proxy (TMA, wgmma, tcgen05) does after it. `space`: a key of `PROXY_SPACES`, the
    memory whose accesses it orders.
    """

    space: str = "shared"


# Space -> the state spaces of the fences that are printed (PTX ISA, membar/fence: .proxykind).
# `.shared::cta` leaves out the shared memory of other CTAs. By the PTX ISA the form without a state
# space covers all memory, but ptxas 13 makes only the fence of shared memory of it
# (FENCE.VIEW.ASYNC.S, no FENCE.VIEW.ASYNC.G), so the form for global memory is printed as well
# (tests/cuda/codegen/test_synchronisation.py).
PROXY_SPACES: dict[str, tuple[str, ...]] = {
    "shared": (".shared::cta",),
    "cluster": (".shared::cluster",),
    "global": (".global",),
    "all": ("", ".global"),
}


@declares(Facts(ptx="membar / fence", orders=Order.BARRIER_INITIALISATION))
class FenceBarrierInit(Op):
    """fence.mbarrier_init.release.cluster."""
