"""Boxes that TMA copies for a CTA or a pair of CTAs, and threads that hand over to each other, in
CuTe DSL for sm_100a.
"""

# mypy: ignore-errors
# What a kernel's names mean, the compiler of CuTe DSL says.

import cutlass
from cutlass import cute, pipeline, utils
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.experimental import primitives

THREADS = 32


class BoxesCopied:
    """Two CTAs copy a box each from global to shared memory, and threads from there to `out`.

    Attributes:
        kind: of the elements. box: of the two CTAs together. shared: each half goes to both.
        pair: the barrier of the first CTA counts what both get.
    """

    def __init__(self, kind, box, *, shared=False, pair=False):
        self.kind, self.box, self.shared, self.pair = kind, box, shared, pair

    @cute.jit
    def __call__(self, x: cute.Tensor, out: cute.Tensor):
        """The host's part: the tensor map and the launch."""
        op = (
            cpasync.CopyBulkTensorTileG2SMulticastOp
            if self.shared
            else cpasync.CopyBulkTensorTileG2SOp
        )
        group = tcgen05.CtaGroup.TWO if self.pair else tcgen05.CtaGroup.ONE
        backwards = tuple(reversed(range(len(self.box))))
        layout = cute.make_ordered_layout(self.box, order=backwards)
        found, tensor = cpasync.make_tiled_tma_atom(
            op(group), x, layout, self.box, num_multicast=2 if self.shared else 1
        )
        self.kernel(found, tensor, out, layout).launch(
            grid=[2, 1, 1], block=[THREADS, 1, 1], cluster=[2, 1, 1]
        )

    @cute.kernel
    def kernel(self, found: cute.CopyAtom, x: cute.Tensor, out: cute.Tensor, layout: cute.Layout):
        """The device's part."""
        thread, _, _ = cute.arch.thread_idx()
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        memory = utils.SmemAllocator()
        barrier = memory.allocate_array(cutlass.Int64, 1)
        box = memory.allocate_tensor(self.kind, layout, byte_alignment=128)
        nbytes = cute.size_in_bytes(self.kind, layout)
        if thread == 0:
            cute.arch.mbarrier_init(barrier, 1)
            cute.arch.mbarrier_init_fence()
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        counts = 2 if self.pair else 1
        if thread == 0 and (rank == 0 or not self.pair):
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, nbytes * counts)
        ranks = cute.make_layout(2 if self.shared else 1)
        every = tuple(0 for _ in self.box)
        modes = len(self.box)
        tiles = cute.local_tile(x, self.box, (None,) * modes)
        to, source = cpasync.tma_partition(
            found, rank if self.shared else 0, ranks,
            cute.group_modes(box, 0, modes), cute.group_modes(tiles, 0, modes),
        )  # fmt: skip
        first = (rank, *every[1:])
        if cutlass.const_expr(self.shared):
            first = every
        cute.copy(
            found, source[(None, *first)], to, tma_bar_ptr=barrier,
            mcast_mask=cutlass.Int16(3) if self.shared else None,
        )  # fmt: skip
        if rank == 0 or not self.pair:
            cute.arch.mbarrier_wait(barrier, 0)
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        number = cute.size(layout)
        flat = cute.make_tensor(box.iterator, cute.make_layout(number))
        target = cute.make_tensor(out.iterator + rank * number, cute.make_layout(number))
        for i in cutlass.range(number // THREADS):
            target[i * THREADS + thread] = flat[i * THREADS + thread]


class BoxesPassed:
    """A box from one tensor to another, by TMA both ways.

    Attributes:
        kind: of the elements. box: its extents. swizzled: rows of 64 bytes, swizzled.
    """

    def __init__(self, kind, box, *, swizzled=False):
        self.kind, self.box, self.swizzled = kind, box, swizzled

    @cute.jit
    def __call__(self, x: cute.Tensor, out: cute.Tensor):
        """The host's part: the tensor maps and the launch."""
        if cutlass.const_expr(self.swizzled):
            atom = cute.nvgpu.warpgroup.make_smem_layout_atom(
                cute.nvgpu.warpgroup.SmemLayoutAtomKind.K_SW64, self.kind
            )
            layout = cute.tile_to_shape(atom, self.box, order=(0, 1))
        else:
            layout = cute.make_layout(self.box)
        loads = cpasync.CopyBulkTensorTileG2SOp()
        stores = cpasync.CopyBulkTensorTileS2GOp()
        load, from_tensor = cpasync.make_tiled_tma_atom(loads, x, layout, self.box)
        store, to_tensor = cpasync.make_tiled_tma_atom(stores, out, layout, self.box)
        self.kernel(load, from_tensor, store, to_tensor, layout).launch(
            grid=[2, 1, 1], block=[THREADS, 1, 1]
        )

    @cute.kernel
    def kernel(
        self,
        load: cute.CopyAtom,
        x: cute.Tensor,
        store: cute.CopyAtom,
        out: cute.Tensor,
        layout: cute.Layout | cute.ComposedLayout,
    ):
        """The device's part: threads add 1 to each element on its way."""
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        memory = utils.SmemAllocator()
        barrier = memory.allocate_array(cutlass.Int64, 1)
        if cutlass.const_expr(self.swizzled):
            box = memory.allocate_tensor(
                self.kind, layout.outer, byte_alignment=1024, swizzle=layout.inner
            )
        else:
            box = memory.allocate_tensor(self.kind, layout, byte_alignment=128)
        if thread == 0:
            cute.arch.mbarrier_init(barrier, 1)
            cute.arch.mbarrier_init_fence()
            nbytes = cute.size_in_bytes(self.kind, layout)
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, nbytes)
        cute.arch.sync_threads()
        modes = len(self.box)
        every = (None,) * modes
        ones = cute.make_layout(1)
        grouped = cute.group_modes(box, 0, modes)
        to, source = cpasync.tma_partition(
            load, 0, ones, grouped, cute.group_modes(cute.local_tile(x, self.box, every), 0, modes)
        )
        held, target = cpasync.tma_partition(
            store, 0, ones, grouped,
            cute.group_modes(cute.local_tile(out, self.box, every), 0, modes),
        )  # fmt: skip
        place = (block, *(0 for _ in self.box[1:]))
        cute.copy(load, source[(None, *place)], to, tma_bar_ptr=barrier)
        cute.arch.mbarrier_wait(barrier, 0)
        flat = cute.coalesce(box) if not self.swizzled else box
        for i in cutlass.range_constexpr(cute.size(box) // THREADS):
            at = i * THREADS + thread
            if cutlass.const_expr(self.swizzled):
                at = (at // self.box[1], at % self.box[1])
            flat[at] = flat[at] + 1
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_threads()
        if thread == 0:
            cute.copy(store, held, target[(None, *place)])
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0)


class HandedOver:
    """Threads hand numbers over by every means: named barriers, mbarriers of the own CTA and of the
    other one, with the fences and scopes that are there to choose from; then one of them prints.
    """

    @cute.jit
    def __call__(self, x: cute.Tensor, out: cute.Tensor):
        """The host's part: the launch."""
        self.kernel(x, out).launch(grid=[2, 1, 1], block=[2 * THREADS, 1, 1], cluster=[2, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, out: cute.Tensor):
        """The device's part."""
        thread, _, _ = cute.arch.thread_idx()
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        cute.arch.griddepcontrol_wait()
        numbers = cutlass.Array(cutlass.Int32, THREADS, space=cutlass.AddressSpace.smem)
        own = cutlass.Array(cutlass.Int64, 1, space=cutlass.AddressSpace.smem)
        told = cutlass.Array(cutlass.Int64, 1, space=cutlass.AddressSpace.smem)
        if thread == 0:
            primitives.mbarrier_init(own, 1)
            primitives.mbarrier_init(told, 2)
            primitives.fence_mbarrier_init()
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        if warp == 0:
            numbers[thread] = x[rank * THREADS + thread]
            cute.arch.fence_proxy("async")
            cute.arch.fence_proxy("async.global")
            cute.arch.fence_proxy("async.shared", space="cluster")
            cute.arch.barrier_arrive(barrier_id=3, number_of_threads=2 * THREADS)
        else:
            cute.arch.barrier(barrier_id=3, number_of_threads=2 * THREADS)
            found = numbers[thread - THREADS]
            if thread == THREADS:
                # 8 bytes are expected, and reported by a thread: the phase ends when both are.
                primitives.mbarrier_expect_tx(own, 8)
                primitives.mbarrier_complete_tx(own, 8)
                primitives.mbarrier_arrive(own)
                other = primitives.mapa(told, 1 - rank)
                primitives.mbarrier_arrive(other, scope="cluster")
                primitives.mbarrier_arrive_expect_tx(other, 16, scope="cluster")
                primitives.mbarrier_complete_tx(other, 16, scope="cluster")
            while not primitives.mbarrier_try_wait_parity(own, 0):
                pass
            while not primitives.mbarrier_try_wait_parity(
                told, 0, scope="cluster", order="acquire"
            ):
                pass
            out[rank * THREADS + thread - THREADS] = found
        if thread == 0 and rank == 0:
            cute.printf("handed over %d\n", numbers[5])
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()


class CopiedToColumns:
    """128 rows of 16 bytes from shared to tensor memory by one tcgen05.cp, and from there to
    registers by tcgen05.ld.
    """

    rows, columns, threads = 128, 4, 128

    @cute.jit
    def __call__(self, x: cute.Tensor, out: cute.Tensor):
        """The host's part: the launch."""
        self.kernel(x, out).launch(grid=[1, 1, 1], block=[self.threads, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, out: cute.Tensor):
        """The device's part."""
        thread, _, _ = cute.arch.thread_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())

        @cute.struct
        class Storage:
            copied: cutlass.Int64
            allocated: cutlass.Int32

        memory = utils.SmemAllocator()
        storage = memory.allocate(Storage)
        # A row of each 8 after the other, as there is no swizzle; no further tiles of M and K.
        tile = cute.make_layout(((self.rows, self.columns), 1, 1), stride=((self.columns, 1), 0, 0))
        shared = memory.allocate_tensor(cutlass.Float32, tile, byte_alignment=128)
        columns = utils.TmemAllocator(
            storage.allocated.ptr,
            barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=self.threads),
        )
        for column in cutlass.range_constexpr(self.columns):
            shared[((thread, column), 0, 0)] = x[thread, column]
        if thread == 0:
            primitives.mbarrier_init(storage.copied.ptr, 1)
            primitives.fence_mbarrier_init()
        cute.arch.fence_proxy("async.shared", space="cta")
        columns.allocate(32)
        columns.wait_for_alloc()
        start = columns.retrieve_ptr(cutlass.Float32)
        held = cute.make_tensor(
            start,
            cute.make_layout(((self.rows, self.columns), 1, 1), stride=((1 << 16, 1), 0, 0)),
        )
        cute.arch.barrier()
        if warp == 0:
            copy = cute.make_copy_atom(tcgen05.Cp128x128bOp(tcgen05.CtaGroup.ONE), cutlass.Float32)
            tiled = tcgen05.make_s2t_copy(copy, held)
            own = tiled.get_slice(0)
            source = tcgen05.get_s2t_smem_desc_tensor(tiled, own.partition_S(shared))
            cute.copy(tiled, source, own.partition_D(held))
            with cute.arch.elect_one():
                tcgen05.commit(storage.copied.ptr)
        columns.relinquish_alloc_permit()
        cute.arch.mbarrier_wait(storage.copied.ptr, 0)
        primitives.tcgen05_fence("after_thread_sync")
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(4)), cutlass.Float32)
        flat = cute.make_tensor(
            start, cute.make_layout((self.rows, self.columns), stride=(1 << 16, 1))
        )
        load = tcgen05.make_tmem_copy(atom, flat)
        part = load.get_slice(thread)
        target = part.partition_D(out)
        values = cute.make_rmem_tensor(target.shape, cutlass.Float32)
        cute.copy(load, part.partition_S(flat), values)
        cute.arch.fence_view_async_tmem_load()
        cute.autovec_copy(values, target)
        primitives.tcgen05_fence("before_thread_sync")
        pipeline.sync(barrier_id=1)
        columns.free(start)
