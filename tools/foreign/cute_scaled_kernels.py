"""A product of block-scaled operands for sm_100a in CuTe DSL: the tensor core copies the scale
factors from shared memory to tensor memory.
"""

# mypy: ignore-errors
# What a kernel's names mean, the compiler of CuTe DSL says.

import cutlass
from cutlass import cute, pipeline, utils
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.experimental import primitives
from cutlass.utils import blackwell_helpers, blockscaled_layout

THREADS = 128
COLUMNS = 512  # of tensor memory


def _moves(maps, shared, parts, places):
    """For A, B and their scales: the tensor map, the tiles along K, and where they go."""
    found = []
    for i, tensor_map in enumerate(maps):
        to, source = cpasync.tma_partition(
            tensor_map, 0, cute.make_layout(1), cute.group_modes(shared[i], 0, 3),
            cute.group_modes(parts[i], 0, 3),
        )  # fmt: skip
        if i > 1:  # a scale stands for a group of elements, which are one in its layout
            to, source = cute.filter_zeros(to), cute.filter_zeros(source)
        found.append((tensor_map, source[(None, places[i], None, 0)], to))
    return found


def _to_columns(shared, factors, scale):
    """A copy of scales to tensor memory: the copy, descriptors of its sources, its target."""
    copy = cute.make_copy_atom(tcgen05.Cp4x32x128bOp(tcgen05.CtaGroup.ONE), scale)
    compact = cute.filter_zeros(factors)
    tiled = tcgen05.make_s2t_copy(copy, compact)
    own = tiled.get_slice(0)
    source = own.partition_S(cute.filter_zeros(shared))
    return tiled, tcgen05.get_s2t_smem_desc_tensor(tiled, source), own.partition_D(compact)


class ScaledProduct:
    """D = (A * its scales) @ (B * its scales).T: warp 0 copies, warp 1 multiplies, all store.

    Attributes:
        kind: of A and B. scale: of the scale factors. group: elements that share one.
        tile: M, N, K of a CTA. stages: of the ring of operands. crossed: the MMAs of a step take
            the scales of B in the reverse order, so that each has other scales of A than of B.
    """

    def __init__(self, kind, scale, group, tile, stages, *, crossed=False):
        self.kind, self.scale, self.group = kind, scale, group
        self.tile, self.stages, self.crossed = tile, stages, crossed

    @cute.jit
    def __call__(
        self, a: cute.Tensor, b: cute.Tensor, a_scale: cute.Tensor, b_scale: cute.Tensor,
        d: cute.Tensor,
    ):  # fmt: skip
        """The host's part: tensor maps, layouts and the launch."""
        major = OperandMajorMode.K
        one = tcgen05.CtaGroup.ONE
        mma = blackwell_helpers.make_blockscaled_trivial_tiled_mma(
            self.kind, self.kind, major, major, self.scale, self.group, one, self.tile[:2]
        )
        a, b, d = (
            cute.make_tensor(x.iterator, cute.append(x.layout, cute.make_layout(1, stride=0)))
            for x in (a, b, d)
        )
        a_factors = cute.make_tensor(
            a_scale.iterator, blockscaled_layout.tile_atom_to_shape_SF(a.shape, self.group)
        )
        b_factors = cute.make_tensor(
            b_scale.iterator, blockscaled_layout.tile_atom_to_shape_SF(b.shape, self.group)
        )
        ctas = cute.tiled_divide(cute.make_layout((1, 1, 1)), (mma.thr_id,))
        layouts = (
            blackwell_helpers.make_smem_layout_a(mma, self.tile, self.kind, self.stages),
            blackwell_helpers.make_smem_layout_b(mma, self.tile, self.kind, self.stages),
            blockscaled_layout.make_smem_layout_sfa(mma, self.tile, self.group, self.stages),
            blockscaled_layout.make_smem_layout_sfb(mma, self.tile, self.group, self.stages),
        )
        maps, tensors, self.nbytes = self._maps(
            mma, (a, b, a_factors, b_factors), layouts, ctas.shape
        )
        grid = cute.ceil_div((*d.layout.shape[:2], 1), (*self.tile[:2], 1))
        self.kernel(mma, *maps, *tensors, d, *layouts).launch(grid=grid, block=[THREADS, 1, 1])

    def _maps(self, mma, given, layouts, ctas):
        """Tensor maps, the tensors by them, and the bytes that a stage gets."""
        copy = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
        makers = cute.nvgpu.make_tiled_tma_atom_A, cute.nvgpu.make_tiled_tma_atom_B
        maps, tensors, nbytes = [], [], 0
        for i, tensor in enumerate(given):
            stage = cute.slice_(layouts[i], (None, None, None, 0))
            kept = {"internal_type": cutlass.Int16} if i > 1 else {}
            found, by_map = makers[i % 2](copy, tensor, stage, self.tile, mma, ctas, **kept)
            maps.append(found)
            tensors.append(by_map)
            nbytes += cute.size_in_bytes(self.scale if i > 1 else self.kind, stage)
        return maps, tensors, nbytes

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        a_map: cute.CopyAtom,
        b_map: cute.CopyAtom,
        a_scale_map: cute.CopyAtom,
        b_scale_map: cute.CopyAtom,
        a: cute.Tensor,
        b: cute.Tensor,
        a_scale: cute.Tensor,
        b_scale: cute.Tensor,
        d: cute.Tensor,
        a_layout: cute.ComposedLayout,
        b_layout: cute.ComposedLayout,
        a_scale_layout: cute.Layout,
        b_scale_layout: cute.Layout,
    ):
        """The device's part."""
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        row, column, _ = cute.arch.block_idx()

        @cute.struct
        class Storage:
            operands: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            result: cute.struct.MemRange[cutlass.Int64, 2]
            allocated: cutlass.Int32

        memory = utils.SmemAllocator()
        storage = memory.allocate(Storage)
        a_shared = memory.allocate_tensor(
            self.kind, a_layout.outer, byte_alignment=128, swizzle=a_layout.inner
        )
        b_shared = memory.allocate_tensor(
            self.kind, b_layout.outer, byte_alignment=128, swizzle=b_layout.inner
        )
        a_scale_shared = memory.allocate_tensor(self.scale, a_scale_layout, byte_alignment=128)
        b_scale_shared = memory.allocate_tensor(self.scale, b_scale_layout, byte_alignment=128)
        threads = pipeline.Agent.Thread
        fill, use = pipeline.PipelineTmaUmma.create(
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(threads),
            consumer_group=pipeline.CooperativeGroup(threads, 1),
            tx_count=self.nbytes,
            barrier_storage=storage.operands.data_ptr(),
        ).make_participants()
        computed, wanted = pipeline.PipelineUmmaAsync.create(
            num_stages=1,
            producer_group=pipeline.CooperativeGroup(threads),
            consumer_group=pipeline.CooperativeGroup(threads, THREADS),
            barrier_storage=storage.result.data_ptr(),
        ).make_participants()
        columns = utils.TmemAllocator(
            storage.allocated.ptr,
            barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=THREADS),
        )
        m, n, k = self.tile
        every = (None, None, None)
        part = mma.get_slice(0)
        parts = (
            part.partition_A(cute.local_tile(a, (m, k), every)),
            part.partition_B(cute.local_tile(b, (n, k), every)),
            part.partition_A(cute.local_tile(a_scale, (m, k), every)),
            part.partition_B(cute.local_tile(b_scale, (n, k), every)),
        )
        d_part = part.partition_C(cute.local_tile(d, (m, n), every))
        steps = cute.size(parts[0], mode=[4])
        places = (row, column, row, column)
        shared = (a_shared, b_shared, a_scale_shared, b_scale_shared)
        moves = _moves((a_map, b_map, a_scale_map, b_scale_map), shared, parts, places)
        a_operand, b_operand = mma.make_fragment_A(a_shared), mma.make_fragment_B(b_shared)
        sums_form = mma.make_fragment_C(mma.partition_shape_C((m, n))).layout

        columns.allocate(COLUMNS)
        columns.wait_for_alloc()
        start = columns.retrieve_ptr(cutlass.Float32)
        sums = cute.make_tensor(start, sums_form)
        at_a = start + tcgen05.find_tmem_tensor_col_offset(sums)
        a_factors = cute.make_tensor(
            cute.recast_ptr(at_a, dtype=self.scale),
            blockscaled_layout.make_tmem_layout_sfa(
                mma, self.tile, self.group, cute.slice_(a_scale_layout, (None, None, None, 0))
            ),
        )
        at_b = at_a + tcgen05.find_tmem_tensor_col_offset(a_factors)
        b_factors = cute.make_tensor(
            cute.recast_ptr(at_b, dtype=self.scale),
            blockscaled_layout.make_tmem_layout_sfb(
                mma, self.tile, self.group, cute.slice_(b_scale_layout, (None, None, None, 0))
            ),
        )
        a_to_columns = _to_columns(a_scale_shared, a_factors, self.scale)
        b_to_columns = _to_columns(b_scale_shared, b_factors, self.scale)

        if warp == 0:
            for step in cutlass.range(steps):
                free = fill.acquire_and_advance()
                for i in cutlass.range_constexpr(4):
                    cute.copy(
                        moves[i][0], moves[i][1][(None, step)], moves[i][2][(None, free.index)],
                        tma_bar_ptr=free.barrier,
                    )  # fmt: skip
            fill.tail()
        if warp == 1:
            computed.acquire_and_advance()
            mma.set(tcgen05.Field.ACCUMULATE, False)
            for _ in cutlass.range(steps):
                full = use.wait_and_advance()
                stage = (None, None, None, None, full.index)
                cute.copy(a_to_columns[0], a_to_columns[1][stage], a_to_columns[2])
                cute.copy(b_to_columns[0], b_to_columns[1][stage], b_to_columns[2])
                blocks = cute.size(a_operand, mode=[2])
                for block in cutlass.range_constexpr(blocks):
                    other = blocks - 1 - block if cutlass.const_expr(self.crossed) else block
                    at = (None, None, block, full.index)
                    mma.set(tcgen05.Field.SFA, a_factors[(None, None, block)].iterator)
                    mma.set(tcgen05.Field.SFB, b_factors[(None, None, other)].iterator)
                    cute.gemm(mma, sums, a_operand[at], b_operand[at], sums)
                    mma.set(tcgen05.Field.ACCUMULATE, True)
                full.release()
            computed.commit()

        columns.relinquish_alloc_permit()
        ready = wanted.wait_and_advance()
        primitives.tcgen05_fence("after_thread_sync")
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(64)), cutlass.Float32)
        load = tcgen05.make_tmem_copy(atom, sums)
        own = load.get_slice(thread)
        source = own.partition_S(sums)
        target = own.partition_D(d_part)[(None, None, None, None, row, column, 0)]
        values = cute.make_rmem_tensor(target.shape, cutlass.Float32)
        cute.copy(load, source, values)
        cute.arch.fence_view_async_tmem_load()
        cute.autovec_copy(values, target)
        primitives.tcgen05_fence("before_thread_sync")
        ready.release()
        pipeline.sync(barrier_id=1)
        columns.free(start)
