"""A matrix product for sm_90a in CuTe DSL: warps that copy, warpgroups that multiply by wgmma, and
TMA that stores the results.
"""

# mypy: ignore-errors
# What a kernel's names mean, the compiler of CuTe DSL says.

import cutlass
from cutlass import cute, pipeline, utils
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp as warp_copies, warpgroup
from cutlass.utils import hopper_helpers

GROUP = 128  # threads of a warpgroup
MULTIPLIERS = 2  # warpgroups that multiply
THREADS = (1 + MULTIPLIERS) * GROUP


class HopperProduct:
    """D = A @ B.T: a warp copies the operands, two warpgroups multiply and store their halves.

    Attributes:
        kind: of A and B. out: of D. tile: M, N, K of a CTA. stages: of the ring of operands.
        shares: whether two CTAs of a cluster share the tiles of B, each copying half for both.
        a_major, b_major: "K", or the other dimension.
    """

    def __init__(self, kind, out, tile, stages, *, shares=False, a_major="K", b_major="K"):
        self.kind, self.out, self.tile, self.stages = kind, out, tile, stages
        majors = {"K": OperandMajorMode.K, "MN": OperandMajorMode.MN}
        self.a_major, self.b_major = majors[a_major], majors[b_major]
        self.cluster = (2, 1, 1) if shares else (1, 1, 1)

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        """The host's part: tensor maps, layouts and the launch."""
        m, n, k = self.tile
        mma = hopper_helpers.make_trivial_tiled_mma(
            self.kind, self.kind, self.a_major, self.b_major, cutlass.Float32,
            (MULTIPLIERS, 1, 1), (64, n),
        )  # fmt: skip
        a_form, b_form, d_form = (utils.LayoutEnum.from_tensor(x) for x in (a, b, d))
        a_layout = hopper_helpers.make_smem_layout_a(a_form, self.tile, self.kind, self.stages)
        b_layout = hopper_helpers.make_smem_layout_b(b_form, self.tile, self.kind, self.stages)
        window = (m, 64)
        d_layout = hopper_helpers.make_smem_layout_epi(self.out, d_form, window, 2)
        shared = self.cluster[0]
        plain, multicast = (
            cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileG2SMulticastOp()
        )  # fmt: skip
        a_map, a_tensor = cpasync.make_tiled_tma_atom(
            plain, a, cute.slice_(a_layout, (None, None, 0)), (m, k)
        )
        b_map, b_tensor = cpasync.make_tiled_tma_atom(
            multicast if shared > 1 else plain, b, cute.slice_(b_layout, (None, None, 0)), (n, k),
            num_multicast=shared,
        )  # fmt: skip
        d_map, d_tensor = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileS2GOp(), d, cute.slice_(d_layout, (None, None, 0)), window
        )
        grid = cute.ceil_div((*d.layout.shape, 1), (m, n, 1))
        self.kernel(
            mma, a_map, a_tensor, b_map, b_tensor, d_map, d_tensor, a_layout, b_layout, d_layout
        ).launch(grid=grid, block=[THREADS, 1, 1], cluster=self.cluster)

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        a_map: cute.CopyAtom,
        a_tensor: cute.Tensor,
        b_map: cute.CopyAtom,
        b_tensor: cute.Tensor,
        d_map: cute.CopyAtom,
        d_tensor: cute.Tensor,
        a_layout: cute.ComposedLayout,
        b_layout: cute.ComposedLayout,
        d_layout: cute.ComposedLayout,
    ):
        """The device's part."""
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        row, column, _ = cute.arch.block_idx()
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())

        @cute.struct
        class Storage:
            operands: cute.struct.MemRange[cutlass.Int64, self.stages * 2]

        memory = utils.SmemAllocator()
        storage = memory.allocate(Storage)
        a_shared = memory.allocate_tensor(
            self.kind, a_layout.outer, byte_alignment=1024, swizzle=a_layout.inner
        )
        b_shared = memory.allocate_tensor(
            self.kind, b_layout.outer, byte_alignment=1024, swizzle=b_layout.inner
        )
        d_shared = memory.allocate_tensor(
            self.out, d_layout.outer, byte_alignment=1024, swizzle=d_layout.inner
        )
        threads = pipeline.Agent.Thread
        nbytes = cute.size_in_bytes(
            self.kind, cute.slice_(a_layout, (None, None, 0))
        ) + cute.size_in_bytes(self.kind, cute.slice_(b_layout, (None, None, 0)))
        fill, use = pipeline.PipelineTmaAsync.create(
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(threads),
            consumer_group=pipeline.CooperativeGroup(
                threads, self.cluster[0] * MULTIPLIERS * GROUP // 32
            ),
            tx_count=nbytes,
            barrier_storage=storage.operands.data_ptr(),
            cta_layout_vmnk=cute.make_layout((1, *self.cluster)),
        ).make_participants()

        tile_at = (row, column, None)
        a_tiles = cute.local_tile(a_tensor, self.tile, tile_at, proj=(1, None, 1))
        b_tiles = cute.local_tile(b_tensor, self.tile, tile_at, proj=(None, 1, 1))
        d_tile = cute.local_tile(d_tensor, self.tile, tile_at, proj=(1, 1, None))
        a_to, a_from = cpasync.tma_partition(
            a_map, 0, cute.make_layout(1),
            cute.group_modes(a_shared, 0, 2), cute.group_modes(a_tiles, 0, 2),
        )  # fmt: skip
        b_to, b_from = cpasync.tma_partition(
            b_map, rank, cute.make_layout(self.cluster[0]),
            cute.group_modes(b_shared, 0, 2), cute.group_modes(b_tiles, 0, 2),
        )  # fmt: skip
        b_mask = None
        if cutlass.const_expr(self.cluster[0] > 1):
            b_mask = cutlass.Int16(3)
        steps = cute.size(a_tiles, mode=[2])

        if warp < 4:
            cute.arch.setmaxregister_decrease(40)
            if warp == 0:
                for step in cutlass.range(steps):
                    free = fill.acquire_and_advance()
                    cute.copy(
                        a_map, a_from[(None, step)], a_to[(None, free.index)],
                        tma_bar_ptr=free.barrier,
                    )  # fmt: skip
                    cute.copy(
                        b_map, b_from[(None, step)], b_to[(None, free.index)],
                        tma_bar_ptr=free.barrier, mcast_mask=b_mask,
                    )  # fmt: skip
                fill.tail()
        else:
            cute.arch.setmaxregister_increase(232)
            own = thread - GROUP
            group = cute.arch.make_warp_uniform(own // GROUP)
            part = mma.get_slice(cute.make_layout(MULTIPLIERS, stride=GROUP)(group))
            a_operand = mma.make_fragment_A(part.partition_A(a_shared))
            b_operand = mma.make_fragment_B(part.partition_B(b_shared))
            sums = cute.make_rmem_tensor(part.partition_C(d_tile).shape, cutlass.Float32)
            mma.set(warpgroup.Field.ACCUMULATE, False)
            for _ in cutlass.range(steps):
                full = use.wait_and_advance()
                warpgroup.fence()
                for block in cutlass.range_constexpr(cute.size(a_operand, mode=[2])):
                    at = (None, None, block, full.index)
                    cute.gemm(mma, sums, a_operand[at], b_operand[at], sums)
                    mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                full.release()

            store = hopper_helpers.get_smem_store_op(
                utils.LayoutEnum.ROW_MAJOR, self.out, cutlass.Float32
            )
            atom = cute.make_copy_atom(warp_copies.StMatrix8x8x16bOp(False, 4), self.out)
            to_shared = cute.make_tiled_copy_S(store, cute.make_tiled_copy_C_atom(atom, mma))
            mine = to_shared.get_slice(own)
            targets = mine.partition_D(d_shared)
            found = to_shared.retile(sums)
            shape = cute.make_layout(cute.shape(mine.partition_S(d_shared))[:3])
            values = cute.make_rmem_tensor_like(shape, cutlass.Float32)
            each = cute.size(values)
            d_windows = cute.zipped_divide(d_tile, (self.tile[0], 64))
            d_from, d_to = cpasync.tma_partition(
                d_map, 0, cute.make_layout(1), cute.group_modes(d_shared, 0, 2), d_windows
            )
            for window in cutlass.range_constexpr(self.tile[1] // 64):
                for i in cutlass.range_constexpr(each):
                    values[i] = found[window * each + i]
                rounded = cute.make_rmem_tensor_like(shape, self.out)
                rounded.store(values.load().to(self.out))
                buffer = window % 2
                if warp == 4:
                    cute.arch.cp_async_bulk_wait_group(1, read=True)
                cute.arch.barrier(barrier_id=1, number_of_threads=MULTIPLIERS * GROUP)
                cute.copy(to_shared, rounded, targets[(None, None, None, buffer)])
                cute.arch.fence_proxy("async.shared", space="cta")
                cute.arch.barrier(barrier_id=1, number_of_threads=MULTIPLIERS * GROUP)
                if warp == 4:
                    cute.copy(d_map, d_from[(None, buffer)], d_to[(None, (0, window))])
                    cute.arch.cp_async_bulk_commit_group()
            if warp == 4:
                cute.arch.cp_async_bulk_wait_group(0)
