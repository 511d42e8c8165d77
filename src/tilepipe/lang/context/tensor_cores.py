"""Members of `ctx` for fragments, MMAs (wgmma on Hopper, tcgen05 on Blackwell) and tensor
memory.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, memory, ops
from tilepipe.ir.expressions import Iota
from tilepipe.ir.fragment import row_threads
from tilepipe.ir.hardware import block_scales, mma as mma_rules
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import MulticastMask
from tilepipe.lang.asynchronous import wgmma
from tilepipe.lang.asynchronous.commits import Mbar
from tilepipe.lang.fragments.fragment import Fragment, FragmentValue
from tilepipe.lang.fragments.layouts import require_layout
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tensor_memory import tcgen05
from tilepipe.lang.tensor_memory.addresses import TmemAddress, accumulator_at
from tilepipe.lang.tensor_memory.tensors import TmemScales, TmemTensor
from tilepipe.lang.tracing.convergence import require_fragment, require_one_lane
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.scalars import Value


class TensorCoreMembers:
    """The part of `Context` that concerns fragments, MMAs and tensor memory."""

    tracer: Tracer

    def accumulator(self, shape: tuple[int, int]) -> Fragment:
        """A float32 fragment (m, n) of each warpgroup: m a multiple of 64, n of 8 up to 256.
        Undefined until filled.
        """
        return Fragment.define(self.tracer, shape, dtypes.float32, "acc")

    def fragment(
        self,
        value: FragmentValue | None = None,
        *,
        shape: tuple[int, int] | None = None,
        dtype: object = "float32",
        layout: str = "wgmma",
    ) -> Fragment:
        """A new fragment with the shape, dtype, layout and contents of `value`, or undefined with
        `shape`, `dtype` and `layout`: "tmem" for 128 rows that are combined with a fragment from
        tensor memory; "rows:T" for T threads a row (`load_global`); "fours" for an operand A of
        8 bits, which `Fragment.pack` fills.
        """
        if value is not None:
            if not isinstance(value, FragmentValue):
                raise TraceError(
                    f"ctx.fragment(value) takes a fragment expression, got {value!r}; give a shape"
                    " as shape=(m, n)",
                    caller(),
                )
            result = Fragment.define(self.tracer, value.shape, value.dtype, "frag", value.layout)
            result.set(value)
            return result
        if shape is None:
            raise TraceError("ctx.fragment needs a value or a shape", caller())
        return Fragment.define(self.tracer, shape, dtypes.dtype(dtype), "frag", layout)

    def row_index(self, rows: int, *, layout: str = "wgmma") -> Fragment:
        """A fragment (rows, 1), int32, of the number of each row: for masks, `ctx.select(first +
        ctx.row_index(64) < limit, x, 0.0)`.

        Args:
            layout: "tmem" for 128 rows that are combined with a fragment from tensor memory;
                "rows:T" for T threads a row.

        Raises:
            TraceError: a number of rows that no fragment has, or not in a warpgroup role.
        """
        result = Fragment.define(self.tracer, (rows, 1), dtypes.int32, "rows", layout)
        index = Iota(dtypes.int32, shape=(rows, 1), nonneg=True, layout=result.layout)
        result.set(FragmentValue(self.tracer, index, {}))
        return result

    def col_index(self, cols: int, *, layout: str = "wgmma") -> FragmentValue:
        """The number of each column, (1, cols), int32; with a (rows, 1) fragment it makes a mask of
        (rows, cols).

        Args:
            layout: "rows:T" for T threads a row; the same for "wgmma" and "tmem".

        Raises:
            TraceError: not a multiple of 8, or not in a warpgroup role.
        """
        if row_threads(layout):
            result = Fragment.define(self.tracer, (1, cols), dtypes.int32, "cols", layout)
            index = Iota(dtypes.int32, shape=(1, cols), nonneg=True, layout=layout)
            result.set(FragmentValue(self.tracer, index, {}))
            return result
        require_layout(layout)
        if type(cols) is not int or cols < 8 or cols % 8:
            raise TraceError(f"ctx.col_index takes a multiple of 8 columns, got {cols!r}", caller())
        role = self.tracer.role.role
        if not role.is_warpgroup:
            raise TraceError(
                f"fragments live in the registers of a warpgroup; role '{role.name}' needs"
                " warpgroups=",
                caller(),
            )
        return FragmentValue(self.tracer, Iota(dtypes.int32, shape=(1, cols), nonneg=True), {})

    def mma(
        self,
        acc: Fragment | TmemTensor | TmemAddress | Value,
        a: SmemTile | Fragment | TmemTensor,
        b: SmemTile,
        *,
        accumulate: object = True,
        sfa: TmemScales | None = None,
        sfb: TmemScales | None = None,
    ) -> None:
        """acc (m, n) += A (m, k) · B (n, k)ᵀ, asynchronously, in float32; `accumulate` False, or a
        condition such as `k > 0` that does not hold: acc = A · Bᵀ, and `acc` need not have been
        set.

        A and B both bfloat16, float16 or float32 (read as tf32), or float8_e4m3 and float8_e5m2 in
        any mix (`ir.hardware.mma`); A may be a 16-bit fragment. `acc` and the tiles are in use
        until the group has been waited for; wgmma.fence precedes the group.

        `acc` in tensor memory: tcgen05.mma, by one lane (`ir.hardware.mma`; A may be in tensor
        memory too). In a pair of CTAs the even one issues it for both, B is its half of the tile,
        and `acc` its rows. `acc` may be an address, such as `stage.tmem_offset()`: of a float32
        accumulator of the product's shape.

        `sfa`, `sfb` (m, blocks of K) and (n, blocks of K): scale factors in tensor memory, acc +=
        (A · sfa) (B · sfb)ᵀ, of A and B in float8_e4m3 and float8_e5m2, or float4_e2m1
        (`ir.hardware.block_scales`).

        Raises:
            TraceError: shapes, types or layouts that no instruction takes; not one lane, or not a
                whole warpgroup of wgmma.
        """
        if isinstance(acc, TmemAddress | Value):
            acc = accumulator_at(self.tracer, acc, a, b)
        if isinstance(acc, TmemTensor):
            tcgen05.mma(self.tracer, acc, a, b, accumulate, sfa, sfb)
        elif sfa is not None or sfb is not None:
            raise TraceError(
                f"mma: scale factors are for an accumulator in tensor memory, not for {acc!r}",
                caller(),
            )
        else:
            wgmma.mma(self.tracer, acc, a, b, accumulate)

    def mma_commit(self, mbar: Mbar, mask: MulticastMask | None = None) -> None:
        """Arrives on `mbar` (in every CTA of `mask`) when all MMAs issued so far have finished.

        wgmma: closes the group; the arrival, one lane for each warpgroup, is made by the
        `wgmma_wait`, or the consumer's lag, that retires it; a traced `mask` is made of
        `ctx.cta_rank` and constants alone. In a kernel that uses tensor memory: tcgen05.commit, by
        the lane that issued the MMAs, whose completion is the arrival; `mask` may be traced.
        """
        if self.tracer.kernel.cta_group:
            tcgen05.commit(self.tracer, mbar, mask)
        else:
            wgmma.mma_commit(self.tracer, mbar, mask)

    def wgmma_commit(self) -> None:
        """Closes the wgmma group without binding a barrier to it."""
        wgmma.close_group(self.tracer)

    def wgmma_wait(self, pending: int = 0) -> None:
        """Waits until at most `pending` groups of this warpgroup are unfinished, and makes the
        arrivals bound to the finished ones.
        """
        wgmma.wgmma_wait(self.tracer, pending)

    # -- tensor memory -----------------------------------------------------------------

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
        tcgen05.require_even_cta(tracer, "tmem_copy")
        if not isinstance(dst, TmemTensor | TmemScales) or not isinstance(tile, SmemTile):
            raise TraceError(
                f"tmem_copy copies a shared tile to tensor memory, got {tile!r} to {dst!r}",
                caller(),
            )
        if isinstance(dst, TmemScales):
            broken = block_scales.broken_scales_copy_rule(dst._scales, tile._tile)
        else:
            broken = mma_rules.broken_copy_rule(dst._tmem, tile._tile)
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
