"""The other ops that synchronise threads: named, CTA and cluster barriers, fences."""

from dataclasses import dataclass
from typing import Annotated

from tilepipe.ir.expressions import Expr
from tilepipe.ir.facts import Facts, Order, Scope, Sync
from tilepipe.ir.memory import NamedBarrier
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class NamedSync(Op):
    """bar.sync: arrives at the named barrier and waits for all its threads. `group`: which of its
    copies (per warpgroup).
    """

    bar: Annotated[NamedBarrier, Sync.ARRIVE | Sync.WAIT]
    group: Expr | None = None

    facts = Facts(
        ptx="bar, barrier", scope=Scope.WARP, together=Scope.WARP, noticed=True, by_warp=True
    )


@dataclass(eq=False, slots=True)
class NamedArrive(Op):
    """bar.arrive: arrives at the named barrier without waiting."""

    bar: Annotated[NamedBarrier, Sync.ARRIVE]
    group: Expr | None = None

    facts = Facts(
        ptx="bar, barrier", scope=Scope.WARP, together=Scope.WARP, noticed=True, by_warp=True
    )


@dataclass(eq=False, slots=True)
class SyncWarp(Op):
    """__syncwarp: the active lanes of the warp converge and see each other's shared-memory
    accesses.
    """

    facts = Facts(
        ptx="bar.warp.sync", scope=Scope.WARP, active_lanes=True, sync=Sync.ARRIVE | Sync.WAIT
    )


@dataclass(eq=False, slots=True)
class SetupBarrier(Op):
    """End of set-up: mbarrier-init fence, then every thread of the CTA (or cluster) meets. Emitted
    by the library.
    """

    facts = Facts(
        ptx="bar, barrier",
        scope=Scope.CTA,
        together=Scope.CTA,
        sync=Sync.ARRIVE | Sync.WAIT,
        orders=Order.BARRIER_INITIALISATION,
        noticed=True,
    )


@dataclass(eq=False, slots=True)
class ClusterArrive(Op):
    """barrier.cluster.arrive.release."""

    facts = Facts(
        ptx="barrier.cluster",
        scope=Scope.CLUSTER,
        together=Scope.WARPGROUP,
        sync=Sync.ARRIVE,
        noticed=True,
    )


@dataclass(eq=False, slots=True)
class ClusterWait(Op):
    """barrier.cluster.wait.acquire."""

    facts = Facts(
        ptx="barrier.cluster",
        scope=Scope.CLUSTER,
        together=Scope.WARPGROUP,
        sync=Sync.WAIT,
        noticed=True,
    )


@dataclass(eq=False, slots=True)
class FenceProxyAsync(Op):
    """fence.proxy.async: orders this thread's ordinary accesses, and those it knows of, before what
    the async proxy (TMA, wgmma, tcgen05) does behind it. `space`: a key of `PROXY_SPACES`, the
    memory whose accesses it orders.
    """

    space: str = "shared"

    facts = Facts(ptx="membar / fence", orders=Order.PROXIES)


# Space -> the state spaces of the fences that are printed (PTX ISA, membar/fence: .proxykind).
# `.shared::cta` leaves out the shared memory of other CTAs. The form without a state space covers
# them all by the PTX ISA, but ptxas 13 makes FENCE.VIEW.ASYNC.S of it, that of shared memory, and
# no FENCE.VIEW.ASYNC.G; so the form for global memory stands beside it
# (tests/cuda/codegen/test_synchronisation.py).
PROXY_SPACES: dict[str, tuple[str, ...]] = {
    "shared": (".shared::cta",), "cluster": (".shared::cluster",), "global": (".global",), "all": ("", ".global"),
}  # fmt: skip


@dataclass(eq=False, slots=True)
class FenceBarrierInit(Op):
    """fence.mbarrier_init.release.cluster."""

    facts = Facts(ptx="membar / fence", orders=Order.BARRIER_INITIALISATION)
