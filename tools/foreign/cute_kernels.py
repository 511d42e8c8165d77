"""Kernels in CuTe DSL: a scaled copy by threads, and matrix products by one CTA or a pair of CTAs,
with the pipelines and the layouts of CUTLASS.
"""

# mypy: ignore-errors
# What a kernel's names mean, the compiler of CuTe DSL says.

import cutlass
from cutlass import cute, pipeline, utils
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.utils import blackwell_helpers

THREADS = 128


class ScaledCopy:
    """y = 2 x, a thread to each element."""

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        """The host's part: how the kernel is launched."""
        self.kernel(x, y).launch(
            grid=[cute.ceil_div(cute.size(x), THREADS), 1, 1], block=[THREADS, 1, 1]
        )

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        """The device's part."""
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        at = block * THREADS + thread
        if at < cute.size(x):
            y[at] = x[at] * 2.0


class Product:
    """D = A @ B.T: warp 0 copies the operands, warp 1 multiplies, all four store the result.

    Attributes:
        kind: of A and B. tile: M, N, K of a CTA, or of a pair. stages: of the ring of operands.
        pair: whether two CTAs multiply together. a_major, b_major: "K", or the other dimension.
        negated: which operands, "", "A", "B" or "AB", each MMA of a step negates; (): none does.
    """

    def __init__(self, kind, tile, stages, *, pair=False, a_major="K", b_major="K", negated=()):
        self.kind = kind
        self.tile = tile
        self.stages = stages
        self.pair = pair
        self.negated = negated
        majors = {"K": cute.nvgpu.OperandMajorMode.K, "MN": cute.nvgpu.OperandMajorMode.MN}
        self.a_major, self.b_major = majors[a_major], majors[b_major]
        self.cluster = (2, 1, 1) if pair else (1, 1, 1)

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        """The host's part: tensor maps, layouts and the launch."""
        group = tcgen05.CtaGroup.TWO if self.pair else tcgen05.CtaGroup.ONE
        mma = blackwell_helpers.make_trivial_tiled_mma(
            self.kind, self.kind, self.a_major, self.b_major, cutlass.Float32, group, self.tile[:2]
        )
        a_layout = blackwell_helpers.make_smem_layout_a(mma, self.tile, self.kind, self.stages)
        b_layout = blackwell_helpers.make_smem_layout_b(mma, self.tile, self.kind, self.stages)
        ctas = cute.tiled_divide(cute.make_layout(self.cluster), (mma.thr_id,))
        copy = (
            cpasync.CopyBulkTensorTileG2SMulticastOp(group)
            if self.pair
            else cpasync.CopyBulkTensorTileG2SOp(group)
        )
        a_stage = cute.select(a_layout, mode=[0, 1, 2])
        b_stage = cute.select(b_layout, mode=[0, 1, 2])
        a_map, a_tensor = cute.nvgpu.make_tiled_tma_atom_A(
            copy, a, a_stage, self.tile, mma, ctas.shape
        )
        b_map, b_tensor = cute.nvgpu.make_tiled_tma_atom_B(
            copy, b, b_stage, self.tile, mma, ctas.shape
        )
        rows = self.tile[0] // (2 if self.pair else 1)
        grid = cute.round_up(
            cute.ceil_div((*d.layout.shape, 1), (rows, self.tile[1], 1)), self.cluster
        )
        self.kernel(mma, a_map, a_tensor, b_map, b_tensor, d, a_layout, b_layout, ctas).launch(
            grid=grid, block=[THREADS, 1, 1], cluster=self.cluster
        )

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        a_map: cute.CopyAtom,
        a_tensor: cute.Tensor,
        b_map: cute.CopyAtom,
        b_tensor: cute.Tensor,
        d: cute.Tensor,
        a_layout: cute.ComposedLayout,
        b_layout: cute.ComposedLayout,
        ctas: cute.Layout,
    ):
        """The device's part."""
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        block_x, block_y, _ = cute.arch.block_idx()
        place = ctas.get_flat_coord(cute.arch.block_idx_in_cluster())
        peers = cute.size(ctas, mode=[0])
        half = block_x % peers
        tile_at = (block_x // peers, block_y, None)
        leads = half == 0

        @cute.struct
        class Storage:
            operands: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            result: cute.struct.MemRange[cutlass.Int64, 2]
            freed: cutlass.Int64
            allocated: cutlass.Int32

        memory = utils.SmemAllocator()
        storage = memory.allocate(Storage)
        a_shared = memory.allocate_tensor(
            self.kind, a_layout.outer, byte_alignment=128, swizzle=a_layout.inner
        )
        b_shared = memory.allocate_tensor(
            self.kind, b_layout.outer, byte_alignment=128, swizzle=b_layout.inner
        )
        # Before the pipelines, whose creation ends with a barrier of the cluster: the peer arrives
        # on the barrier that this initialises.
        columns = utils.TmemAllocator(
            storage.allocated.ptr,
            barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=THREADS),
            is_two_cta=self.pair,
            two_cta_tmem_dealloc_mbar_ptr=storage.freed.ptr if self.pair else None,
        )
        a_stage = cute.select(a_layout, mode=[0, 1, 2])
        b_stage = cute.select(b_layout, mode=[0, 1, 2])
        nbytes = cute.size_in_bytes(self.kind, a_stage) + cute.size_in_bytes(self.kind, b_stage)
        threads = pipeline.Agent.Thread
        senders = cute.size(ctas.shape[1]) + cute.size(ctas.shape[2]) - 1
        fill, use = pipeline.PipelineTmaUmma.create(
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(threads),
            consumer_group=pipeline.CooperativeGroup(threads, senders),
            tx_count=nbytes * peers,
            barrier_storage=storage.operands.data_ptr(),
            cta_layout_vmnk=ctas,
        ).make_participants()
        computed, wanted = pipeline.PipelineUmmaAsync.create(
            num_stages=1,
            producer_group=pipeline.CooperativeGroup(threads),
            consumer_group=pipeline.CooperativeGroup(threads, peers * THREADS),
            barrier_storage=storage.result.data_ptr(),
            cta_layout_vmnk=ctas,
        ).make_participants()

        a_tiles = cute.local_tile(a_tensor, self.tile, tile_at, proj=(1, None, 1))
        b_tiles = cute.local_tile(b_tensor, self.tile, tile_at, proj=(None, 1, 1))
        d_tile = cute.local_tile(d, self.tile, tile_at, proj=(1, 1, None))
        part = mma.get_slice(half)
        a_parts, b_parts, d_part = (
            part.partition_A(a_tiles), part.partition_B(b_tiles), part.partition_C(d_tile)
        )  # fmt: skip
        a_operand, b_operand = mma.make_fragment_A(a_shared), mma.make_fragment_B(b_shared)
        sums = mma.make_fragment_C(mma.partition_shape_C(self.tile[:2]))
        a_to, a_from = cpasync.tma_partition(
            a_map, place[2], cute.make_layout(cute.size(ctas, mode=[2])),
            cute.group_modes(a_shared, 0, 3), cute.group_modes(a_parts, 0, 3),
        )  # fmt: skip
        b_to, b_from = cpasync.tma_partition(
            b_map, place[1], cute.make_layout(cute.size(ctas, mode=[1])),
            cute.group_modes(b_shared, 0, 3), cute.group_modes(b_parts, 0, 3),
        )  # fmt: skip
        a_mask, b_mask = None, None
        if cutlass.const_expr(self.pair):
            a_mask = cpasync.create_tma_multicast_mask(ctas, place, mcast_mode=2)
            b_mask = cpasync.create_tma_multicast_mask(ctas, place, mcast_mode=1)

        columns.allocate(self.tile[1])
        columns.wait_for_alloc()
        start = columns.retrieve_ptr(cutlass.Float32)
        sums = cute.make_tensor(start, sums.layout)

        steps = cute.size(a_tiles, mode=[2])
        if warp == 0:
            for step in cutlass.range(steps):
                free = fill.acquire_and_advance()
                cute.copy(
                    a_map,
                    a_from[(None, step)],
                    a_to[(None, free.index)],
                    tma_bar_ptr=free.barrier,
                    mcast_mask=a_mask,
                )
                cute.copy(
                    b_map,
                    b_from[(None, step)],
                    b_to[(None, free.index)],
                    tma_bar_ptr=free.barrier,
                    mcast_mask=b_mask,
                )
            fill.tail()
        if warp == 1 and leads:
            computed.acquire_and_advance()
            for _ in cutlass.range(steps):
                full = use.wait_and_advance()
                for block in cutlass.range_constexpr(cute.size(a_operand, mode=[2])):
                    at = (None, None, block, full.index)
                    if cutlass.const_expr(self.negated):
                        mma.set(tcgen05.Field.NEGATE_A, "A" in self.negated[block])
                        mma.set(tcgen05.Field.NEGATE_B, "B" in self.negated[block])
                    cute.gemm(mma, sums, a_operand[at], b_operand[at], sums)
                    mma.set(tcgen05.Field.ACCUMULATE, True)
                full.release()
            computed.commit()

        columns.relinquish_alloc_permit()
        ready = wanted.wait_and_advance()
        # With 64 rows of each CTA of a pair the two halves of the columns lie below each other.
        folded = self.pair and self.tile[0] == 128
        loads = 1 if folded else 2
        part_columns = cute.size(sums, mode=[0, 1]) // loads
        window = ((cute.size(sums, mode=[0, 0]), part_columns),)
        sums_parts, d_parts = cute.zipped_divide(sums, window), cute.zipped_divide(d_part, window)
        if cutlass.const_expr(self.tile[0] == 64):
            op = tcgen05.Ld16x256bOp(tcgen05.Repetition(part_columns // 8))
        else:
            op = tcgen05.Ld32x32bOp(tcgen05.Repetition(part_columns // (2 if folded else 1)))
        atom = cute.make_copy_atom(op, cutlass.Float32)
        load = tcgen05.make_tmem_copy(atom, sums_parts[None, 0])
        own = load.get_slice(thread)
        source, target = own.partition_S(sums_parts), own.partition_D(d_parts)
        values = cute.make_rmem_tensor(target[None, None, 0].shape, cutlass.Float32)
        for i in cutlass.range_constexpr(loads):
            cute.copy(load, source[None, None, i], values)
            cute.arch.fence_view_async_tmem_load()
            cute.autovec_copy(values, target[None, None, i])
        ready.release()
        pipeline.sync(barrier_id=1)
        columns.free(start)
