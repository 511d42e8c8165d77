"""Attention for sm_100a in CuTe DSL: scores and powers in tensor memory; a thread a row."""

# mypy: ignore-errors
# What a kernel's names mean, the compiler of CuTe DSL says.

import cutlass
from cutlass import cute, pipeline, utils
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.utils import blackwell_helpers

ROWS, KEYS, DEPTH = 128, 64, 64  # of a CTA, of a step, of a head
SCORES, POWERS, RESULT, COLUMNS = 0, 64, 128, 256  # places in tensor memory, and columns in all
SOFTMAX, LOADS, MULTIPLIES = ROWS, 4, 5  # threads, and warps after theirs
THREADS = ROWS + 64


class Attention:
    """out = softmax(q k^T scale) v for one head, a block of keys at a time. The results of the
    blocks are added up in registers.
    """

    kind = cutlass.BFloat16

    @cute.jit
    def __call__(
        self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, out: cute.Tensor,
        scale: cutlass.Float32,
    ):  # fmt: skip
        """The host's part: tensor maps, layouts and the launch. `scale`: with 1 / ln 2."""
        by_k, one = OperandMajorMode.K, tcgen05.CtaGroup.ONE
        score = blackwell_helpers.make_trivial_tiled_mma(
            self.kind, self.kind, by_k, by_k, cutlass.Float32, one, (ROWS, KEYS)
        )
        add = blackwell_helpers.make_trivial_tiled_mma(
            self.kind, self.kind, by_k, OperandMajorMode.MN, cutlass.Float32, one, (ROWS, DEPTH),
            tcgen05.OperandSource.TMEM,
        )  # fmt: skip
        first, second = (ROWS, KEYS, DEPTH), (ROWS, DEPTH, KEYS)
        q_layout = blackwell_helpers.make_smem_layout_a(score, first, self.kind, 1)
        k_layout = blackwell_helpers.make_smem_layout_b(score, first, self.kind, 2)
        p_layout = blackwell_helpers.make_smem_layout_a(add, second, self.kind, 1)
        v_layout = blackwell_helpers.make_smem_layout_b(add, second, self.kind, 2)
        v = cute.make_tensor(v.iterator, cute.select(v.layout, mode=[1, 0]))
        copy = cpasync.CopyBulkTensorTileG2SOp(one)
        ctas = (1, 1, 1, 1)
        q_map, q = cute.nvgpu.make_tiled_tma_atom_A(
            copy, q, cute.select(q_layout, mode=[0, 1, 2]), first, score, ctas
        )
        k_map, k = cute.nvgpu.make_tiled_tma_atom_B(
            copy, k, cute.select(k_layout, mode=[0, 1, 2]), first, score, ctas
        )
        v_map, v = cute.nvgpu.make_tiled_tma_atom_B(
            copy, v, cute.select(v_layout, mode=[0, 1, 2]), second, add, ctas
        )
        self.kernel(
            score, add, q_map, q, k_map, k, v_map, v, out, scale, q_layout, k_layout, p_layout,
            v_layout,
        ).launch(grid=[out.shape[0] // ROWS, 1, 1], block=[THREADS, 1, 1])  # fmt: skip

    @cute.kernel
    def kernel(
        self,
        score: cute.TiledMma,
        add: cute.TiledMma,
        q_map: cute.CopyAtom,
        q: cute.Tensor,
        k_map: cute.CopyAtom,
        k: cute.Tensor,
        v_map: cute.CopyAtom,
        v: cute.Tensor,
        out: cute.Tensor,
        scale: cutlass.Float32,
        q_layout: cute.ComposedLayout,
        k_layout: cute.ComposedLayout,
        p_layout: cute.ComposedLayout,
        v_layout: cute.ComposedLayout,
    ):
        """The device's part."""
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        block, _, _ = cute.arch.block_idx()

        @cute.struct
        class Storage:
            bars_q: cute.struct.MemRange[cutlass.Int64, 2]
            bars_kv: cute.struct.MemRange[cutlass.Int64, 8]
            bars_s: cute.struct.MemRange[cutlass.Int64, 2]
            bars_p: cute.struct.MemRange[cutlass.Int64, 2]
            bars_o: cute.struct.MemRange[cutlass.Int64, 2]
            allocated: cutlass.Int32

        memory = utils.SmemAllocator()
        storage = memory.allocate(Storage)
        q_shared = memory.allocate_tensor(
            self.kind, q_layout.outer, byte_alignment=1024, swizzle=q_layout.inner
        )
        k_shared = memory.allocate_tensor(
            self.kind, k_layout.outer, byte_alignment=1024, swizzle=k_layout.inner
        )
        v_shared = memory.allocate_tensor(
            self.kind, v_layout.outer, byte_alignment=1024, swizzle=v_layout.inner
        )
        one = pipeline.CooperativeGroup(pipeline.Agent.Thread)
        rows = pipeline.CooperativeGroup(pipeline.Agent.Thread, ROWS)
        q_fill, q_use = pipeline.PipelineTmaUmma.create(
            num_stages=1, producer_group=one, consumer_group=one, tx_count=ROWS * DEPTH * 2,
            barrier_storage=storage.bars_q.data_ptr(),
        ).make_participants()  # fmt: skip
        kv_fill, kv_use = pipeline.PipelineTmaUmma.create(
            num_stages=4, producer_group=one, consumer_group=one, tx_count=KEYS * DEPTH * 2,
            barrier_storage=storage.bars_kv.data_ptr(),
        ).make_participants()  # fmt: skip
        s_make, s_take = pipeline.PipelineUmmaAsync.create(
            num_stages=1, producer_group=one, consumer_group=rows,
            barrier_storage=storage.bars_s.data_ptr(),
        ).make_participants()  # fmt: skip
        p_make, p_take = pipeline.PipelineAsyncUmma.create(
            num_stages=1, producer_group=rows, consumer_group=one,
            barrier_storage=storage.bars_p.data_ptr(),
        ).make_participants()  # fmt: skip
        o_make, o_take = pipeline.PipelineUmmaAsync.create(
            num_stages=1, producer_group=one, consumer_group=rows,
            barrier_storage=storage.bars_o.data_ptr(),
        ).make_participants()  # fmt: skip
        columns = utils.TmemAllocator(
            storage.allocated.ptr,
            barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=THREADS),
        )
        columns.allocate(COLUMNS)
        columns.wait_for_alloc()
        start = columns.retrieve_ptr(cutlass.Float32)

        by_score, by_add = score.get_slice(0), add.get_slice(0)
        q_parts = by_score.partition_A(cute.local_tile(q, (ROWS, DEPTH), (block, 0)))
        k_parts = by_score.partition_B(cute.local_tile(k, (KEYS, DEPTH), (None, 0)))
        v_parts = by_add.partition_B(cute.local_tile(v, (DEPTH, KEYS), (0, None)))
        q_to, q_from = cpasync.tma_partition(
            q_map, 0, cute.make_layout(1), cute.group_modes(q_shared, 0, 3),
            cute.group_modes(q_parts, 0, 3),
        )  # fmt: skip
        k_to, k_from = cpasync.tma_partition(
            k_map, 0, cute.make_layout(1), cute.group_modes(k_shared, 0, 3),
            cute.group_modes(k_parts, 0, 3),
        )  # fmt: skip
        v_to, v_from = cpasync.tma_partition(
            v_map, 0, cute.make_layout(1), cute.group_modes(v_shared, 0, 3),
            cute.group_modes(v_parts, 0, 3),
        )  # fmt: skip
        steps = cute.size(k_parts, mode=[3])
        s = cute.make_tensor(
            start + SCORES, score.make_fragment_C(score.partition_shape_C((ROWS, KEYS))).layout
        )
        o = cute.make_tensor(
            start + RESULT, add.make_fragment_C(add.partition_shape_C((ROWS, DEPTH))).layout
        )
        p_form = add.make_fragment_A(cute.make_tensor(start, p_layout.outer))[None, None, None, 0]
        p = cute.make_tensor(cute.recast_ptr(start + POWERS, dtype=p_form.dtype), p_form.layout)

        if warp == LOADS:
            free = q_fill.acquire_and_advance()
            cute.copy(q_map, q_from, q_to[(None, 0)], tma_bar_ptr=free.barrier)
            for step in cutlass.range(steps):
                at_k = kv_fill.acquire_and_advance()
                cute.copy(
                    k_map, k_from[(None, step)], k_to[(None, at_k.index // 2)],
                    tma_bar_ptr=at_k.barrier,
                )  # fmt: skip
                at_v = kv_fill.acquire_and_advance()
                cute.copy(
                    v_map, v_from[(None, step)], v_to[(None, at_v.index // 2)],
                    tma_bar_ptr=at_v.barrier,
                )  # fmt: skip
            kv_fill.tail()
        if warp == MULTIPLIES:
            q_operand, k_operand = score.make_fragment_A(q_shared), score.make_fragment_B(k_shared)
            v_operand = add.make_fragment_B(v_shared)
            q_use.wait_and_advance()
            for _ in cutlass.range(steps):
                full_k = kv_use.wait_and_advance()
                scored = s_make.acquire_and_advance()
                for i in cutlass.range_constexpr(cute.size(q_operand, mode=[2])):
                    score.set(tcgen05.Field.ACCUMULATE, i > 0)
                    cute.gemm(
                        score, s, q_operand[(None, None, i, 0)],
                        k_operand[(None, None, i, full_k.index // 2)], s,
                    )  # fmt: skip
                scored.commit()
                full_k.release()
                full_v = kv_use.wait_and_advance()
                ready = p_take.wait_and_advance()
                added = o_make.acquire_and_advance()
                for i in cutlass.range_constexpr(cute.size(v_operand, mode=[2])):
                    add.set(tcgen05.Field.ACCUMULATE, i > 0)
                    cute.gemm(
                        add, o, p[(None, None, i)],
                        v_operand[(None, None, i, full_v.index // 2)], o,
                    )  # fmt: skip
                added.commit()
                ready.release()
                full_v.release()
        if warp < LOADS:
            row_of = cute.make_copy_atom(
                tcgen05.Ld32x32bOp(tcgen05.Repetition(64)), cutlass.Float32
            )
            s_load = tcgen05.make_tmem_copy(row_of, s)
            own_s = s_load.get_slice(thread)
            s_from = own_s.partition_S(s)
            numbers = by_score.partition_C(cute.make_identity_tensor((ROWS, KEYS)))
            scores = cute.make_rmem_tensor(own_s.partition_D(numbers).shape, cutlass.Float32)
            words_form = cute.composition(s.layout, cute.make_layout((ROWS, KEYS // 2)))
            p_words = cute.make_tensor(start + POWERS, words_form)
            to_row = cute.make_copy_atom(
                tcgen05.St32x32bOp(tcgen05.Repetition(32)), cutlass.Float32
            )
            p_store = tcgen05.make_tmem_copy(to_row, p_words)
            own_p = p_store.get_slice(thread)
            p_to = own_p.partition_D(p_words)
            places = own_p.partition_S(
                cute.make_tensor(
                    numbers.iterator,
                    cute.composition(numbers.layout, cute.make_layout((ROWS, KEYS // 2))),
                )
            )
            words = cute.make_rmem_tensor(places.shape, cutlass.Float32)
            halves = cute.make_tensor(
                cute.recast_ptr(words.iterator, dtype=self.kind), scores.layout
            )
            o_load = tcgen05.make_tmem_copy(row_of, o)
            own_o = o_load.get_slice(thread)
            o_from = own_o.partition_S(o)
            target = own_o.partition_D(
                by_add.partition_C(cute.local_tile(out, (ROWS, DEPTH), (block, 0)))
            )
            part = cute.make_rmem_tensor(target.shape, cutlass.Float32)
            total = cute.make_rmem_tensor(target.shape, cutlass.Float32)
            total.fill(0.0)
            top = -cutlass.Float32.inf
            norm = cutlass.Float32(0.0)
            for _ in cutlass.range(steps):
                there = s_take.wait_and_advance()
                cute.copy(s_load, s_from, scores)
                cute.arch.fence_view_async_tmem_load()
                there.release()
                found = scores.load() * scale
                higher = found.reduce(cute.ReductionOp.MAX, top, 0)
                powers = cute.math.exp2(found - higher, fastmath=True)
                shrink = cute.math.exp2(top - higher, fastmath=True)
                norm = norm * shrink + powers.reduce(cute.ReductionOp.ADD, cutlass.Float32(0.0), 0)
                top = higher
                halves.store(powers.to(self.kind))
                room = p_make.acquire_and_advance()
                cute.copy(p_store, words, p_to)
                cute.arch.fence_view_async_tmem_store()
                room.commit()
                summed = o_take.wait_and_advance()
                cute.copy(o_load, o_from, part)
                cute.arch.fence_view_async_tmem_load()
                summed.release()
                total.store(total.load() * shrink + part.load())
            result = cute.make_rmem_tensor(target.shape, self.kind)
            result.store((total.load() / norm).to(self.kind))
            cute.autovec_copy(result, target)
        columns.relinquish_alloc_permit()
        pipeline.sync(barrier_id=2)
        columns.free(start)
