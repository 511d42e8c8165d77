"""Attention for sm_90a in CuTe DSL: a warpgroup that keeps scores, powers and sums in registers."""

# mypy: ignore-errors
# What a kernel's names mean, the compiler of CuTe DSL says.

import cutlass
from cutlass import cute, pipeline, utils
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warpgroup
from cutlass.utils import hopper_helpers

ROWS, KEYS, DEPTH = 64, 64, 64  # of a CTA, of a step, of a head
MULTIPLIERS = 128  # threads; a warp after them copies
THREADS = MULTIPLIERS + 32


class HopperAttention:
    """out = softmax(q k^T scale) v for one head, a block of keys at a time."""

    kind = cutlass.BFloat16

    @cute.jit
    def __call__(
        self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, out: cute.Tensor,
        scale: cutlass.Float32,
    ):  # fmt: skip
        """The host's part: tensor maps, layouts and the launch. `scale`: with 1 / ln 2."""
        by_k = OperandMajorMode.K
        score = hopper_helpers.make_trivial_tiled_mma(
            self.kind, self.kind, by_k, by_k, cutlass.Float32, (1, 1, 1), (ROWS, KEYS)
        )
        add = hopper_helpers.make_trivial_tiled_mma(
            self.kind, self.kind, by_k, OperandMajorMode.MN, cutlass.Float32, (1, 1, 1),
            (ROWS, DEPTH), warpgroup.OperandSource.RMEM,
        )  # fmt: skip
        v = cute.make_tensor(v.iterator, cute.select(v.layout, mode=[1, 0]))
        row, column = utils.LayoutEnum.ROW_MAJOR, utils.LayoutEnum.COL_MAJOR
        first, second = (ROWS, KEYS, DEPTH), (ROWS, DEPTH, KEYS)
        q_layout = hopper_helpers.make_smem_layout_a(row, first, self.kind, 1)
        k_layout = hopper_helpers.make_smem_layout_b(row, first, self.kind, 2)
        v_layout = hopper_helpers.make_smem_layout_b(column, second, self.kind, 2)
        copy = cpasync.CopyBulkTensorTileG2SOp()
        q_map, q = cpasync.make_tiled_tma_atom(
            copy, q, cute.slice_(q_layout, (None, None, 0)), (ROWS, DEPTH)
        )
        k_map, k = cpasync.make_tiled_tma_atom(
            copy, k, cute.slice_(k_layout, (None, None, 0)), (KEYS, DEPTH)
        )
        v_map, v = cpasync.make_tiled_tma_atom(
            copy, v, cute.slice_(v_layout, (None, None, 0)), (DEPTH, KEYS)
        )
        self.kernel(
            score, add, q_map, q, k_map, k, v_map, v, out, scale, q_layout, k_layout, v_layout
        ).launch(grid=[out.shape[0] // ROWS, 1, 1], block=[THREADS, 1, 1])

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
        v_layout: cute.ComposedLayout,
    ):
        """The device's part."""
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        block, _, _ = cute.arch.block_idx()

        @cute.struct
        class Storage:
            bars_q: cute.struct.MemRange[cutlass.Int64, 2]
            bars_k: cute.struct.MemRange[cutlass.Int64, 4]
            bars_v: cute.struct.MemRange[cutlass.Int64, 4]

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
        warps = pipeline.CooperativeGroup(pipeline.Agent.Thread, MULTIPLIERS // 32)
        ctas = cute.make_layout((1, 1, 1, 1))
        q_fill, q_use = pipeline.PipelineTmaAsync.create(
            num_stages=1, producer_group=one, consumer_group=warps, tx_count=ROWS * DEPTH * 2,
            barrier_storage=storage.bars_q.data_ptr(), cta_layout_vmnk=ctas,
        ).make_participants()  # fmt: skip
        k_fill, k_use = pipeline.PipelineTmaAsync.create(
            num_stages=2, producer_group=one, consumer_group=warps, tx_count=KEYS * DEPTH * 2,
            barrier_storage=storage.bars_k.data_ptr(), cta_layout_vmnk=ctas,
        ).make_participants()  # fmt: skip
        v_fill, v_use = pipeline.PipelineTmaAsync.create(
            num_stages=2, producer_group=one, consumer_group=warps, tx_count=KEYS * DEPTH * 2,
            barrier_storage=storage.bars_v.data_ptr(), cta_layout_vmnk=ctas,
        ).make_participants()  # fmt: skip
        alone = cute.make_layout(1)
        q_to, q_from = cpasync.tma_partition(
            q_map, 0, alone, cute.group_modes(q_shared, 0, 2),
            cute.group_modes(cute.local_tile(q, (ROWS, DEPTH), (block, 0)), 0, 2),
        )  # fmt: skip
        k_tiles = cute.local_tile(k, (KEYS, DEPTH), (None, 0))
        k_to, k_from = cpasync.tma_partition(
            k_map, 0, alone, cute.group_modes(k_shared, 0, 2), cute.group_modes(k_tiles, 0, 2)
        )
        v_to, v_from = cpasync.tma_partition(
            v_map, 0, alone, cute.group_modes(v_shared, 0, 2),
            cute.group_modes(cute.local_tile(v, (DEPTH, KEYS), (0, None)), 0, 2),
        )  # fmt: skip
        steps = cute.size(k_tiles, mode=[2])

        if warp == MULTIPLIERS // 32:
            free = q_fill.acquire_and_advance()
            cute.copy(q_map, q_from, q_to[(None, 0)], tma_bar_ptr=free.barrier)
            for step in cutlass.range(steps):
                at_k = k_fill.acquire_and_advance()
                cute.copy(
                    k_map, k_from[(None, step)], k_to[(None, at_k.index)],
                    tma_bar_ptr=at_k.barrier,
                )  # fmt: skip
                at_v = v_fill.acquire_and_advance()
                cute.copy(
                    v_map, v_from[(None, step)], v_to[(None, at_v.index)],
                    tma_bar_ptr=at_v.barrier,
                )  # fmt: skip
            k_fill.tail()
            v_fill.tail()
        else:
            by_score, by_add = score.get_slice(thread), add.get_slice(thread)
            whole_score, whole_add = score.get_slice(0), add.get_slice(0)
            q_operand = score.make_fragment_A(whole_score.partition_A(q_shared))
            k_operand = score.make_fragment_B(whole_score.partition_B(k_shared))
            v_operand = add.make_fragment_B(whole_add.partition_B(v_shared))
            target = by_add.partition_C(cute.local_tile(out, (ROWS, DEPTH), (block, 0)))
            scores = cute.make_rmem_tensor(
                by_score.partition_shape_C((ROWS, KEYS)), cutlass.Float32
            )
            sums = cute.make_rmem_tensor(by_add.partition_shape_C((ROWS, DEPTH)), cutlass.Float32)
            sums.fill(0.0)
            # What a thread has of the scores, 8 columns at a time, is what it needs of A, 16 at a
            # time: ((2, 2, 8), 1, 1) becomes ((2, 2, 2), 1, 4).
            p_form = cute.make_layout(((2, 2, 2), 1, KEYS // 16), stride=((1, 2, 4), 0, 8))
            powers = cute.make_rmem_tensor(p_form, self.kind)
            flat = cute.make_tensor(powers.iterator, cute.make_layout(KEYS // 2))
            q_use.wait_and_advance()
            top_low, top_high = -cutlass.Float32.inf, -cutlass.Float32.inf
            norm_low, norm_high = cutlass.Float32(0.0), cutlass.Float32(0.0)
            for _ in cutlass.range(steps):
                full_k = k_use.wait_and_advance()
                warpgroup.fence()
                for i in cutlass.range_constexpr(cute.size(q_operand, mode=[2])):
                    score.set(warpgroup.Field.ACCUMULATE, i > 0)
                    cute.gemm(
                        score, scores, q_operand[(None, None, i, 0)],
                        k_operand[(None, None, i, full_k.index)], scores,
                    )  # fmt: skip
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                full_k.release()
                # A thread has parts of two rows; four threads have them together.
                high_low, high_high = top_low, top_high
                for i in cutlass.range_constexpr(KEYS // 2):
                    scores[i] = scores[i] * scale
                    if cutlass.const_expr(i % 4 < 2):
                        high_low = cute.arch.fmax(high_low, scores[i])
                    else:
                        high_high = cute.arch.fmax(high_high, scores[i])
                for distance in cutlass.range_constexpr(1, 3):
                    high_low = cute.arch.fmax(
                        high_low, cute.arch.shuffle_sync_bfly(high_low, offset=distance)
                    )
                    high_high = cute.arch.fmax(
                        high_high, cute.arch.shuffle_sync_bfly(high_high, offset=distance)
                    )
                shrink_low = cute.math.exp2(top_low - high_low, fastmath=True)
                shrink_high = cute.math.exp2(top_high - high_high, fastmath=True)
                norm_low, norm_high = norm_low * shrink_low, norm_high * shrink_high
                for i in cutlass.range_constexpr(KEYS // 2):
                    if cutlass.const_expr(i % 4 < 2):
                        scores[i] = cute.math.exp2(scores[i] - high_low, fastmath=True)
                        norm_low = norm_low + scores[i]
                    else:
                        scores[i] = cute.math.exp2(scores[i] - high_high, fastmath=True)
                        norm_high = norm_high + scores[i]
                for i in cutlass.range_constexpr(DEPTH // 2):
                    sums[i] = sums[i] * (shrink_low if i % 4 < 2 else shrink_high)
                top_low, top_high = high_low, high_high
                flat.store(
                    cute.make_tensor(scores.iterator, cute.make_layout(KEYS // 2))
                    .load().to(self.kind)
                )  # fmt: skip
                full_v = v_use.wait_and_advance()
                warpgroup.fence()
                add.set(warpgroup.Field.ACCUMULATE, True)
                for i in cutlass.range_constexpr(KEYS // 16):
                    cute.gemm(
                        add, sums, powers[(None, None, i)],
                        v_operand[(None, None, i, full_v.index)], sums,
                    )  # fmt: skip
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                full_v.release()
            for distance in cutlass.range_constexpr(1, 3):
                norm_low = norm_low + cute.arch.shuffle_sync_bfly(norm_low, offset=distance)
                norm_high = norm_high + cute.arch.shuffle_sync_bfly(norm_high, offset=distance)
            result = cute.make_rmem_tensor(target.shape, self.kind)
            for i in cutlass.range_constexpr(DEPTH // 2):
                result[i] = (sums[i] / (norm_low if i % 4 < 2 else norm_high)).to(self.kind)
            cute.autovec_copy(result, target)
