"""MmaOp: the `mma_op` of the pages' examples, tcgen05 MMAs into accumulators that are named by
address.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import MulticastMask
from tilepipe.lang.context.context import Context
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tensor_memory.addresses import TmemAddress
from tilepipe.lang.tensor_memory.tensors import TmemScales, TmemTensor
from tilepipe.lang.values.scalars import Value
from tilepipe.pipelines.accumulators.output_stages import MmaStage
from tilepipe.pipelines.barriers.mbarriers import MbarPtr


class MmaOp:
    """`mma_op.mma(a_tile, b_tile, stage.tmem_offset())` and `mma_op.commit(tiles.mbar())`, by one
    lane. Blackwell only.

    The same as `ctx.mma(stage.tmem_offset(), a_tile, b_tile, accumulate=...)` and `ctx.mma_commit`,
    in the pages' order of arguments.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def mma(
        self,
        a: SmemTile | TmemTensor,
        b: SmemTile,
        c_tmem: Value | TmemAddress | TmemTensor,
        *,
        init_c: object = None,
        sfa: TmemScales | None = None,
        sfb: TmemScales | None = None,
    ) -> None:
        """The accumulator at `c_tmem` becomes A · Bᵀ where `init_c` holds, else A · Bᵀ is added to
        it.

        `init_c` may be left out of an MMA outside every loop of its stage; it then holds.

        Raises:
            TraceError: `init_c` is left out in a loop; what `ctx.mma` raises.
        """
        if init_c is None and self._in_a_loop():
            raise TraceError(
                "mma in a loop without init_c: each iteration would overwrite the accumulator, or"
                " the first would add to undefined contents. Give init_c: init_c=k == 0 adds up the"
                " iterations, init_c=True keeps the last.",
                caller(),
            )
        fresh = True if init_c is None else init_c
        adds = not fresh if isinstance(fresh, bool) else ~self._ctx._value(fresh)
        self._ctx.mma(c_tmem, a, b, accumulate=adds, sfa=sfa, sfb=sfb)

    def commit(self, mbar: MbarPtr, mask: MulticastMask | None = None) -> None:
        """One arrival on `mbar`, in every CTA of `mask`, when the MMAs that this lane has issued
        have finished.
        """
        self._ctx.mma_commit(mbar, mask)

    def _in_a_loop(self) -> bool:
        """True if this is inside a loop of the block that acquired the accumulator."""
        for scope in self._ctx.tracer.scope.outward:
            if any(isinstance(handle, MmaStage) for handle in scope.handles):
                return False
            if scope.kind == "loop":
                return True
        return False
