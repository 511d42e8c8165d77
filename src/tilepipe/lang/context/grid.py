"""Members of `ctx` beyond the cluster: atomic adds, cluster launch control, dependent launches."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, ops
from tilepipe.ir.location import caller
from tilepipe.ir.memory import TensorParam
from tilepipe.ir.ops import RESPONSE_BYTES
from tilepipe.lang.asynchronous.commits import Mbar
from tilepipe.lang.control.loops import WhileLoop
from tilepipe.lang.memory.elements import ElementRef
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tracing.convergence import require_one_lane
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, converted, traced_value
from tilepipe.lang.values.variables import Var


class GridMembers:
    """The part of `Context` that concerns the grid."""

    tracer: Tracer

    def loop_while(self, more: Var) -> WhileLoop:
        """`for _ in ctx.loop_while(more):` is one traced loop, repeated while the boolean variable
        `more` holds; it is tested before each iteration.
        """
        return WhileLoop(self.tracer, more)

    def atomic_add(self, ref: ElementRef, value: object) -> Value:
        """Adds to `tensor[i, j]`, an int32 or uint32, atomically among all CTAs; returns the value
        before. One lane only.

        Relaxed: it orders no other access. In a warpgroup role the result may not be used under
        `per_warp`, where the order in which the four warps add is unspecified.
        """
        require_one_lane(self.tracer, "atomic_add")
        if not isinstance(ref, ElementRef) or not isinstance(ref.ir.base, TensorParam):
            raise TraceError(
                "atomic_add adds to one element of a tensor in global memory, `tensor[i]`, not"
                f" to {ref!r}",
                caller(),
            )
        if ref.dtype not in (dtypes.int32, dtypes.uint32):
            raise TraceError(
                f"atomic_add adds to int32 and uint32; '{ref.ir.base.name}' is {ref.dtype}",
                caller(),
            )
        x = converted(self.tracer, value, ref.dtype)
        vary = exprs.Vary.WARP if self.tracer.scope.inside("per_warp") else exprs.Vary.UNIFORM
        result = self.tracer.local("old", ref.dtype, vary)
        self.tracer.emit(ops.AtomicAdd(caller(), result, ref.ir, x))
        return traced_value(self.tracer, result)

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
            f"{what}: a response is a row of 4 int32 of a tile that is not swizzled,"
            " `ctx.smem((n, 4), tp.int32, swizzle=0)[0].rows(i, 1)`;"
            f" got {tile!r}",
            caller(),
        )
