"""A persistent matrix product for sm_100a in CuTe DSL: clusters of two CTAs ask the hardware for
their next tile (clusterlaunchcontrol), and TMA stores the results.
"""

# mypy: ignore-errors
# What a kernel's names mean, the compiler of CuTe DSL says.

import cutlass
from cutlass import cute, pipeline, utils
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.utils import blackwell_helpers
from cutlass.utils.gemm import sm100

STORES, LOADS, MULTIPLIES, SCHEDULES = (0, 1, 2, 3), 4, 5, 6  # warps
THREADS = 32 * 7


class PersistentProduct:
    """D = A @ B.T, a tile after the other, with two accumulators.

    Attributes:
        kind: of A and B. out: of D. tile: M, N, K of an MMA. stages: of the ring of operands.
        pair: whether the two CTAs multiply together; otherwise they share the tiles of B.
    """

    # What the epilogue of CUTLASS's library asks of a kernel.
    acc_dtype = cutlass.Float32
    epilogue_warp_id = STORES
    epilog_sync_bar_id = 2
    num_c_stage = 2

    def __init__(self, kind, out, tile, stages, *, pair):
        self.kind, self.c_dtype, self.tile, self.stages = kind, out, tile, stages
        self.use_2cta_instrs = pair
        self.ctas = 2 if pair else 1
        self.cta_tile_shape_mnk = (tile[0] // self.ctas, *tile[1:])

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        """The host's part: tensor maps, layouts, the scheduler's parameters and the launch."""
        group = tcgen05.CtaGroup.TWO if self.use_2cta_instrs else tcgen05.CtaGroup.ONE
        self.c_layout = utils.LayoutEnum.from_tensor(d)
        mma = blackwell_helpers.make_trivial_tiled_mma(
            self.kind, self.kind, OperandMajorMode.K, OperandMajorMode.K, cutlass.Float32, group,
            self.tile[:2],
        )  # fmt: skip
        cluster = (2, 1, 1)
        a, b, d = (
            cute.make_tensor(x.iterator, cute.append(x.layout, cute.make_layout(1, stride=0)))
            for x in (a, b, d)
        )
        ctas = cute.tiled_divide(cute.make_layout(cluster), (mma.thr_id,))
        a_layout = blackwell_helpers.make_smem_layout_a(mma, self.tile, self.kind, self.stages)
        b_layout = blackwell_helpers.make_smem_layout_b(mma, self.tile, self.kind, self.stages)
        window = blackwell_helpers.compute_epilogue_tile_shape(
            self.cta_tile_shape_mnk, self.use_2cta_instrs, self.c_layout, self.c_dtype
        )
        d_layout = blackwell_helpers.make_smem_layout_epi(
            self.c_dtype, self.c_layout, window, self.num_c_stage
        )
        a_map, a_tensor = cute.nvgpu.make_tiled_tma_atom_A(
            blackwell_helpers.cluster_shape_to_tma_atom_A(cluster[:2], mma.thr_id), a,
            cute.select(a_layout, mode=[0, 1, 2]), self.tile, mma, ctas.shape,
        )  # fmt: skip
        b_map, b_tensor = cute.nvgpu.make_tiled_tma_atom_B(
            blackwell_helpers.cluster_shape_to_tma_atom_B(cluster[:2], mma.thr_id), b,
            cute.select(b_layout, mode=[0, 1, 2]), self.tile, mma, ctas.shape,
        )  # fmt: skip
        d_map, d_tensor = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileS2GOp(), d, cute.select(d_layout, mode=[0, 1]), window
        )
        tiles = cute.ceil_div((*d.layout.shape[:2], 1), (*self.cta_tile_shape_mnk[:2], 1))
        order = utils.ClcDynamicPersistentTileSchedulerParams(tiles, cluster)
        grid = utils.ClcDynamicPersistentTileScheduler.get_grid_shape(order)
        self.kernel(
            mma, a_map, a_tensor, b_map, b_tensor, d_map, d_tensor, a_layout, b_layout, d_layout,
            ctas, window, order,
        ).launch(grid=grid, block=[THREADS, 1, 1], cluster=cluster)  # fmt: skip

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
        ctas: cute.Layout,
        window: cute.Tile,
        order: utils.ClcDynamicPersistentTileSchedulerParams,
    ):
        """The device's part."""
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        half = rank % self.ctas
        place = ctas.get_flat_coord(rank)

        @cute.struct
        class Storage:
            operands: cute.struct.MemRange[cutlass.Int64, self.stages * 2]
            totals: cute.struct.MemRange[cutlass.Int64, 4]
            requests: cute.struct.MemRange[cutlass.Int64, 2]
            freed: cutlass.Int64
            allocated: cutlass.Int32
            answer: cute.struct.Align[cute.struct.MemRange[cutlass.Int32, 4], 16]

        memory = utils.SmemAllocator()
        storage = memory.allocate(Storage)
        threads = pipeline.Agent.Thread
        a_stage = cute.select(a_layout, mode=[0, 1, 2])
        b_stage = cute.select(b_layout, mode=[0, 1, 2])
        nbytes = cute.size_in_bytes(self.kind, a_stage) + cute.size_in_bytes(self.kind, b_stage)
        senders = cute.size(ctas.shape[1]) + cute.size(ctas.shape[2]) - 1
        fill, use = pipeline.PipelineTmaUmma.create(
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(threads),
            consumer_group=pipeline.CooperativeGroup(threads, senders),
            tx_count=nbytes * self.ctas,
            barrier_storage=storage.operands.data_ptr(),
            cta_layout_vmnk=ctas,
            defer_sync=True,
        ).make_participants()
        sums_ring = pipeline.PipelineUmmaAsync.create(
            num_stages=2,
            producer_group=pipeline.CooperativeGroup(threads),
            consumer_group=pipeline.CooperativeGroup(threads, len(STORES) * self.ctas),
            barrier_storage=storage.totals.data_ptr(),
            cta_layout_vmnk=ctas,
            defer_sync=True,
        )
        answers = pipeline.PipelineClcFetchAsync.create(
            num_stages=1,
            producer_group=pipeline.CooperativeGroup(threads),
            consumer_group=pipeline.CooperativeGroup(threads, 32 * (1 + 2 * (len(STORES) + 2))),
            tx_count=16,
            barrier_storage=storage.requests.data_ptr(),
            cta_layout_vmnk=ctas,
            defer_sync=True,
        )
        columns = utils.TmemAllocator(
            storage.allocated.ptr,
            barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=32 * 5),
            allocator_warp_id=STORES[0],
            is_two_cta=self.use_2cta_instrs,
            two_cta_tmem_dealloc_mbar_ptr=storage.freed.ptr,
        )
        pipeline.pipeline_init_arrive(cluster_shape_mn=(2, 1), is_relaxed=True)
        a_shared = memory.allocate_tensor(
            self.kind, a_layout.outer, byte_alignment=128, swizzle=a_layout.inner
        )
        b_shared = memory.allocate_tensor(
            self.kind, b_layout.outer, byte_alignment=128, swizzle=b_layout.inner
        )
        d_shared = memory.allocate_tensor(
            self.c_dtype, d_layout.outer, byte_alignment=128, swizzle=d_layout.inner
        )
        m, n, k = self.tile
        every = (None, None, None)
        a_tiles = cute.local_tile(a_tensor, (m, k), every)
        b_tiles = cute.local_tile(b_tensor, (n, k), every)
        d_tiles = cute.local_tile(d_tensor, (m, n), every)
        part = mma.get_slice(half)
        a_parts, b_parts, d_parts = (
            part.partition_A(a_tiles), part.partition_B(b_tiles), part.partition_C(d_tiles)
        )  # fmt: skip
        a_to, a_from = cpasync.tma_partition(
            a_map, place[2], cute.make_layout(cute.size(ctas, mode=[2])),
            cute.group_modes(a_shared, 0, 3), cute.group_modes(a_parts, 0, 3),
        )  # fmt: skip
        b_to, b_from = cpasync.tma_partition(
            b_map, place[1], cute.make_layout(cute.size(ctas, mode=[1])),
            cute.group_modes(b_shared, 0, 3), cute.group_modes(b_parts, 0, 3),
        )  # fmt: skip
        a_mask = cpasync.create_tma_multicast_mask(ctas, place, mcast_mode=2)
        b_mask = cpasync.create_tma_multicast_mask(ctas, place, mcast_mode=1)
        if cutlass.const_expr(not self.use_2cta_instrs):
            a_mask = None
        a_operand, b_operand = mma.make_fragment_A(a_shared), mma.make_fragment_B(b_shared)
        sums_shape = mma.partition_shape_C((m, n))
        sums_form = mma.make_fragment_C(cute.append(sums_shape, 2)).layout
        steps = cute.size(a_tiles, mode=[3])
        pipeline.pipeline_init_wait(cluster_shape_mn=(2, 1))

        scheduler = utils.ClcDynamicPersistentTileScheduler.create(
            order, cute.arch.block_idx(), cute.arch.grid_dim(), storage.answer.data_ptr()
        )
        work = scheduler.initial_work_tile_info()
        users = pipeline.PipelineUserType
        told = pipeline.make_pipeline_state(users.Consumer, 1)
        asked = pipeline.make_pipeline_state(users.ProducerConsumer, 1)
        computed = pipeline.make_pipeline_state(users.Producer, 2)
        ready = pipeline.make_pipeline_state(users.Consumer, 2)

        if warp == LOADS:
            while work.is_valid_tile:
                row, column = work.tile_idx[0] // self.ctas, work.tile_idx[1]
                fill.reset()
                for step in cutlass.range(steps):
                    free = fill.acquire_and_advance()
                    cute.copy(
                        a_map, a_from[(None, row, step, 0)], a_to[(None, free.index)],
                        tma_bar_ptr=free.barrier, mcast_mask=a_mask,
                    )  # fmt: skip
                    cute.copy(
                        b_map, b_from[(None, column, step, 0)], b_to[(None, free.index)],
                        tma_bar_ptr=free.barrier, mcast_mask=b_mask,
                    )  # fmt: skip
                answers.consumer_wait(told)
                work = scheduler.get_current_work()
                answers.consumer_release(told)
                told.advance()
            fill.tail()

        if warp == SCHEDULES and rank == 0:
            while work.is_valid_tile:
                answers.producer_acquire(asked)
                scheduler.advance_to_next_work(answers.producer_get_barrier(asked))
                asked.advance()
                answers.consumer_wait(told)
                work = scheduler.get_current_work()
                answers.consumer_release(told)
                told.advance()
            answers.producer_tail(asked)

        if warp == MULTIPLIES:
            columns.wait_for_alloc()
            sums = cute.make_tensor(columns.retrieve_ptr(cutlass.Float32), sums_form)
            while work.is_valid_tile:
                if half == 0:
                    use.reset()
                    sums_ring.producer_acquire(computed)
                    to = sums[(None, None, None, computed.index)]
                    mma.set(tcgen05.Field.ACCUMULATE, False)
                    for _ in cutlass.range(steps):
                        full = use.wait_and_advance()
                        for block in cutlass.range_constexpr(cute.size(a_operand, mode=[2])):
                            at = (None, None, block, full.index)
                            cute.gemm(mma, to, a_operand[at], b_operand[at], to)
                            mma.set(tcgen05.Field.ACCUMULATE, True)
                        full.release()
                    sums_ring.producer_commit(computed)
                computed.advance()
                answers.consumer_wait(told)
                work = scheduler.get_current_work()
                answers.consumer_release(told)
                told.advance()
            sums_ring.producer_tail(computed)

        if warp < LOADS:
            columns.allocate(512)
            columns.wait_for_alloc()
            start = columns.retrieve_ptr(cutlass.Float32)
            found = cute.make_tensor(start, sums_form)
            stored = pipeline.PipelineTmaStore.create(
                num_stages=self.num_c_stage,
                producer_group=pipeline.CooperativeGroup(threads, 32 * len(STORES)),
            )
            while work.is_valid_tile:
                where = (work.tile_idx[0] // self.ctas, work.tile_idx[1], 0)
                ready = sm100.epilogue_tma_store(
                    self, thread, warp, d_map, found, d_shared, d_parts, window,
                    scheduler.num_tiles_executed, lambda x: x, where, ready, sums_ring, stored,
                )  # fmt: skip
                answers.consumer_wait(told)
                work = scheduler.get_current_work()
                answers.consumer_release(told)
                told.advance()
            stored.producer_tail()
            columns.relinquish_alloc_permit()
            columns.free(start)
