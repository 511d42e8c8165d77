"""Members of `ctx` that synchronise threads, CTAs, clusters and kernels, and order their writes;
and named barriers, hardware barriers of a fixed number of threads.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, memory, ops
from tilepipe.ir.location import caller
from tilepipe.ir.ops import RESPONSE_BYTES
from tilepipe.ir.program import WARP, WARPGROUP
from tilepipe.lang.arguments.annotations import Name
from tilepipe.lang.asynchronous.commits import Mbar
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tracing.convergence import (
    divergence,
    require_one_lane,
    require_role,
    require_warpgroup,
)
from tilepipe.lang.tracing.role_barriers import role_barrier
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, traced_value


class NamedBarrier:
    """A barrier that `threads` threads arrive at, whole warps at a time (PTX ISA, barrier.cta):
    complete when all have, then reset.
    """

    def __init__(self, tracer: Tracer, threads: int, name: str) -> None:
        if tracer.scope.role is not None:
            raise TraceError("a named barrier is created in set-up code, outside roles", caller())
        if not isinstance(threads, int) or threads < WARP or threads % WARP:
            raise TraceError(
                f"a named barrier counts whole warps: a multiple of {WARP} threads, got"
                f" {threads!r}",
                caller(),
            )
        self._tracer = tracer
        self._bar = memory.NamedBarrier(tracer.name(name), threads)
        tracer.kernel.named_barriers.append(self._bar)

    @property
    def threads(self) -> int:
        """The number of threads that arrive."""
        return self._bar.threads

    def sync(self) -> None:
        """Arrives, and waits until all threads have."""
        self._check("sync")
        self._tracer.emit(ops.NamedSync(caller(), self._bar))

    def arrive(self) -> None:
        """Arrives without waiting."""
        self._check("arrive")
        self._tracer.emit(ops.NamedArrive(caller(), self._bar))

    def _check(self, what: str) -> None:
        _, cause = divergence(self._tracer)
        if cause is not None:
            raise TraceError(
                f"{self._bar.name}.{what}() under the {cause.kind} block at {cause.loc.short}: a"
                " named barrier counts whole warps, and in a role of warpgroups whole warpgroups."
                " Move it out of that block.",
                caller(),
            )

    def __repr__(self) -> str:
        return f"<named barrier '{self._bar.name}' of {self._bar.threads} threads>"


class SynchronisationMembers:
    """The part of `Context` that concerns synchronisation."""

    tracer: Tracer

    def syncwarp(self) -> None:
        """Converges the active lanes of each warp and orders their shared-memory accesses."""
        split, cause = divergence(self.tracer)
        if split is exprs.Vary.LANE and self.tracer.scope.active is None and cause is not None:
            raise TraceError(
                f"syncwarp under the {cause.kind} block at {cause.loc.short}: which lanes take part"
                " depends on data. Move it out of that block.",
                caller(),
            )
        self.tracer.emit(ops.SyncWarp(caller()))

    def sync_warpgroup(self) -> None:
        """Synchronises all 128 threads of the warpgroup, by a named barrier of the role."""
        require_warpgroup(self.tracer, "sync_warpgroup")
        role = self.tracer.role.role
        bar = role_barrier(self.tracer, "warpgroup", WARPGROUP, role.agents)
        rank = None if role.agents == 1 else exprs.special("warpgroup")
        self.tracer.emit(ops.NamedSync(caller(), bar, rank))

    def sync_role(self) -> None:
        """Synchronises all threads of the role, by a named barrier of the role."""
        require_role(self.tracer, "sync_role")
        role = self.tracer.role.role
        self.tracer.emit(
            ops.NamedSync(caller(), role_barrier(self.tracer, "role", role.threads, 1))
        )

    def named_barrier(self, threads: int, name: Name = "barrier") -> NamedBarrier:
        """A hardware barrier (bar.sync) of `threads` threads, across roles; created in set-up code.
        A CTA has 15 beside __syncthreads.
        """
        return NamedBarrier(self.tracer, threads, name)

    def cluster_arrive(self) -> None:
        """Arrives at the cluster's barrier (release)."""
        require_role(self.tracer, "cluster_arrive")
        self.tracer.emit(ops.ClusterArrive(caller()))

    def cluster_wait(self) -> None:
        """Waits until every thread of the cluster has arrived (acquire)."""
        require_role(self.tracer, "cluster_wait")
        self.tracer.emit(ops.ClusterWait(caller()))

    def fence_barrier_init(self) -> None:
        """Makes mbarrier.init visible to the cluster, before the cluster barrier; the library emits
        it at the end of set-up code.
        """
        self.tracer.emit(ops.FenceBarrierInit(caller()))

    def fence_proxy_async(self, space: str = "shared") -> None:
        """Makes this thread's ordinary writes visible to TMA and the tensor cores; before the sync
        or arrive that publishes them.

        Args:
            space: the memory that the writes are in: "shared", that of this CTA; "cluster", that of
                every CTA of the cluster, where tiles of a peer were written; "global", where TMA
                then loads or stores what was written; "all" of these. Writes to other memory are
                not ordered. "cluster" and "all" cost a fence of the whole GPU (MEMBAR.ALL.GPU).

        Raises:
            TraceError: another space.
        """
        if not isinstance(space, str) or space not in ops.PROXY_SPACES:
            names = ", ".join(map(repr, ops.PROXY_SPACES))
            raise TraceError(
                f"fence_proxy_async takes the memory whose accesses it orders, one of {names}; got"
                f" {space!r}",
                caller(),
            )
        _ = self.tracer.role
        self.tracer.emit(ops.FenceProxyAsync(caller(), space))

    # -- other clusters and kernels ----------------------------------------------------

    def clc_try_cancel(self, tile: SmemTile, mbar: Mbar, *, multicast: bool = False) -> None:
        """Asks for a cluster of this grid that has not started (Blackwell). The response arrives in
        `tile`, one row of 16 bytes, and its 16 bytes are credited to `mbar`; `multicast`: in every
        CTA of the cluster. One lane only; not again after a response without a cluster.
        """
        require_one_lane(self.tracer, "clc_try_cancel")
        _require_response(tile, "clc_try_cancel")
        self.tracer.emit(
            ops.ClcTryCancel(
                caller(), tile.ir("written by clc_try_cancel"), mbar.ref(), bool(multicast)
            )
        )

    def clc_query(self, tile: SmemTile) -> tuple[Value, Value]:
        """(whether a cluster was cancelled, its index in the grid if so), from the response in
        `tile`.

        Every thread that calls it reads the response; it must then execute `fence_proxy_async()`
        before it releases the row.
        """
        _ = self.tracer.role
        _require_response(tile, "clc_query")
        src = tile.ir("read by clc_query")
        valid, cluster = (
            self.tracer.local("valid", dtypes.boolean),
            self.tracer.local("cluster", dtypes.int32, nonneg=True),
        )
        self.tracer.emit(ops.ClcQuery(caller(), src, valid, cluster))
        return traced_value(self.tracer, valid), traced_value(self.tracer, cluster)

    def launch_dependents(self) -> None:
        """Lets the next kernel of the stream set up (barriers, tensor maps) on SMs that this one
        leaves free: a hint, worth a microsecond of a short kernel. Best issued by the load warp
        after its last load.
        """
        _ = self.tracer.role
        self.tracer.emit(ops.LaunchDependents(caller()))

    def grid_dependency_wait(self) -> None:
        """Waits until the kernels before this one have ended and their writes are visible. In a
        kernel that calls it, set-up does not end with this wait: before the call the kernel may
        read data that no earlier kernel writes (weights), and must not write.
        """
        self.tracer.emit(ops.GridDependencyWait(caller()))
        if self.tracer.scope.role is not None:
            self.tracer.role.grid_wait = caller()


def _require_response(tile: SmemTile, what: str) -> None:
    """Raises TraceError unless a tile is one row of 16 bytes, aligned to 16 (PTX ISA,
    clusterlaunchcontrol.try_cancel).
    """
    buffer = tile._tile.buffer
    if (
        tile.shape[0] != 1
        or tile.nbytes != RESPONSE_BYTES
        or buffer.dtype is not dtypes.int32
        or buffer.cols != 4
        or buffer.swizzle
    ):
        raise TraceError(
            f"{what}: a response is a row of 4 int32 of a tile that is not swizzled, `ctx.smem((n,"
            f" 4), tp.int32, swizzle=0)[0].rows(i, 1)`; got {tile!r}",
            caller(),
        )
