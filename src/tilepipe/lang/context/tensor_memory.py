"""Members of `ctx` that copy to tensor memory and order its accesses."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import memory, ops
from tilepipe.ir.hardware import block_scales, mma
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.rules import require_rule
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tensor_memory.scales import TmemScales
from tilepipe.lang.tensor_memory.tcgen05 import require_even_cta
from tilepipe.lang.tensor_memory.tensors import TmemTensor
from tilepipe.lang.tracing.convergence import require_fragment, require_one_lane
from tilepipe.lang.tracing.tracer import Tracer


class TensorMemoryMembers:
    """The part of `Context` that concerns tensor memory."""

    tracer: Tracer

    def tmem_copy(self, dst: TmemTensor | TmemScales, tile: SmemTile) -> None:
        """tcgen05.cp: copies an unswizzled tile with rows of 16 bytes, 128 of them or 32 (to each
        group of 32 lanes), to tensor memory, in order with the MMAs of the same lane. One lane
        only. In a pair of CTAs the even one issues it, and each copies its own.

        `dst` scale factors: all of them, from a tile of their pieces, 512 bytes for each 128 rows ×
        4 blocks of K (byte 16 (r % 32) + 4 (r // 32) + j is that of row r, block j), one after the
        other along K, then along the rows.
        """
        tracer = self.tracer
        require_one_lane(tracer, "tmem_copy")
        require_even_cta(tracer, "tmem_copy")
        if not isinstance(dst, TmemTensor | TmemScales) or not isinstance(tile, SmemTile):
            raise TraceError(
                f"tmem_copy copies a shared tile to tensor memory, got {tile!r} to {dst!r}",
                caller(),
            )
        if isinstance(dst, TmemScales):
            broken = block_scales.broken_scales_copy_rule(dst._scales, tile._tile)
        else:
            broken = mma.broken_copy_rule(dst._tmem, tile._tile)
        require_rule(broken, "tmem_copy")
        for x in (dst, tile):
            if x._owner is not None:
                x._owner.read_by_mma = True
        into: memory.Tmem | memory.TmemScales = dst.ir("copied to")
        tracer.emit(ops.TmemCopy(caller(), into, tile.ir("copied"), tracer.kernel.cta_group))

    def tmem_wait_load(self) -> None:
        """tcgen05.wait::ld: the warp's loads from tensor memory are done, and their fragments may
        be read.
        """
        require_fragment(self.tracer, "tmem_wait_load")
        self.tracer.emit(ops.TmemWaitLoad(caller()))

    def tmem_wait_store(self) -> None:
        """tcgen05.wait::st: the warp's stores to tensor memory are done."""
        require_fragment(self.tracer, "tmem_wait_store")
        self.tracer.emit(ops.TmemWaitStore(caller()))

    def tcgen05_fence_before(self) -> None:
        """tcgen05.fence::before_thread_sync: orders this thread's finished tensor-memory accesses
        before the arrive that follows.
        """
        _ = self.tracer.role
        self.tracer.emit(ops.Tcgen05FenceBefore(caller()))

    def tcgen05_fence_after(self) -> None:
        """tcgen05.fence::after_thread_sync: orders this thread's tensor-memory accesses after the
        wait before it.
        """
        _ = self.tracer.role
        self.tracer.emit(ops.Tcgen05FenceAfter(caller()))
