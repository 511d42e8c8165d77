"""Kernels in Gluon, in which each kernel chooses the layouts of shared and tensor memory, and the
shapes of the instructions that move them.
"""

# mypy: ignore-errors
# What a kernel's names mean, the compiler of Triton says; its parameters have no Python types.

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    cluster,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
    tcgen05_mma_scaled,
    tma,
)


@gluon.jit
def tensor_memory_round_trip(
    x, out, M: gl.constexpr, N: gl.constexpr, STORE: gl.constexpr, LOAD: gl.constexpr
):
    """A tile to tensor memory by one shape of tcgen05.st, and back by one of tcgen05.ld."""
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, plain))
    columns = gl.arange(0, N, gl.SliceLayout(0, plain))
    at = rows[:, None] * N + columns[None, :]
    layout: gl.constexpr = TensorMemoryLayout([M, N], col_stride=1)
    memory = allocate_tensor_memory(gl.float32, [M, N], layout)
    stored: gl.constexpr = memory.get_reg_layout(num_warps=4, instr_variant=STORE)
    loaded: gl.constexpr = memory.get_reg_layout(num_warps=4, instr_variant=LOAD)
    memory.store(gl.convert_layout(gl.load(x + at), stored))
    gl.store(out + at, gl.convert_layout(memory.load(loaded), plain))


@gluon.jit
def product(
    a, b, out,
    M: gl.constexpr, N: gl.constexpr, K: gl.constexpr,
    A_SWIZZLE: gl.constexpr, B_SWIZZLE: gl.constexpr,
    A_BY_COLUMNS: gl.constexpr, B_BY_COLUMNS: gl.constexpr,
    A_IN_TENSOR_MEMORY: gl.constexpr, LOAD: gl.constexpr,
):  # fmt: skip
    """D = A @ B by one MMA of K: the threads store A and B, in the layouts that are asked for."""
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    r: gl.constexpr = gl.SliceLayout(1, plain)
    c: gl.constexpr = gl.SliceLayout(0, plain)
    a_tile = gl.load(a + gl.arange(0, M, r)[:, None] * K + gl.arange(0, K, c)[None, :])
    b_tile = gl.load(b + gl.arange(0, K, r)[:, None] * N + gl.arange(0, N, c)[None, :])
    bits: gl.constexpr = a.dtype.element_ty.primitive_bitwidth
    b_layout: gl.constexpr = gl.NVMMASharedLayout(B_SWIZZLE, bits, 2, B_BY_COLUMNS)
    b_shared = gl.allocate_shared_memory(b.dtype.element_ty, [K, N], b_layout, b_tile)
    sums = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    if A_IN_TENSOR_MEMORY:
        packed: gl.constexpr = TensorMemoryLayout([M, K], col_stride=1)
        a_memory = allocate_tensor_memory(a.dtype.element_ty, [M, K], packed)
        stored: gl.constexpr = a_memory.get_reg_layout(num_warps=4)
        a_memory.store(gl.convert_layout(a_tile, stored))
        fence_async_shared()
        tcgen05_mma(a_memory, b_shared, sums, use_acc=False)
    else:
        a_layout: gl.constexpr = gl.NVMMASharedLayout(A_SWIZZLE, bits, 2, A_BY_COLUMNS)
        a_shared = gl.allocate_shared_memory(a.dtype.element_ty, [M, K], a_layout, a_tile)
        fence_async_shared()
        tcgen05_mma(a_shared, b_shared, sums, use_acc=False)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    loaded: gl.constexpr = sums.get_reg_layout(num_warps=4, instr_variant=LOAD)
    values = gl.convert_layout(sums.load(loaded), plain)
    gl.store(out + gl.arange(0, M, r)[:, None] * N + gl.arange(0, N, c)[None, :], values)


@gluon.jit
def pair_product(
    a, b, out, k,
    M: gl.constexpr, N: gl.constexpr, BK: gl.constexpr,
    TRANSPOSED: gl.constexpr, LOAD: gl.constexpr,
):  # fmt: skip
    """D = A @ B, or A @ B.T, by pairs of CTAs: each has half of the rows of A and half of the
    columns of the product's B.
    """
    rows_split: gl.constexpr = [[1, 0]]
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], rows_split)
    a_shared = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    b_shared = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    layout: gl.constexpr = TensorMemoryLayout(
        [128, N], col_stride=1, cga_layout=rows_split, two_ctas=True
    )
    sums = allocate_tensor_memory(gl.float32, [M, N], layout)
    full = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    phase = 0
    for at in range(0, k, BK):
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [0, at], full, a_shared)
        if TRANSPOSED:
            tma.async_load(b, [0, at], full, b_shared)
            operand = b_shared.permute((1, 0))
        else:
            tma.async_load(b, [at, 0], full, b_shared)
            operand = b_shared
        mbarrier.wait(full, phase)
        tcgen05_mma(a_shared, operand, sums, use_acc=at != 0, mbarriers=[done])
        mbarrier.wait(done, phase)
        phase ^= 1
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    loaded: gl.constexpr = sums.get_reg_layout(num_warps=4, instr_variant=LOAD)
    values = gl.convert_layout(sums.load(loaded), plain)
    rows = gl.arange(0, M, gl.SliceLayout(1, plain))
    columns = gl.arange(0, N, gl.SliceLayout(0, plain))
    gl.store(out + rows[:, None] * N + columns[None, :], values)


@gluon.jit
def scaled_product(
    a, b, a_scale, b_scale, out, k,
    M: gl.constexpr, N: gl.constexpr, BK: gl.constexpr, GROUP: gl.constexpr,
    A_TYPE: gl.constexpr, B_TYPE: gl.constexpr, A_PACK: gl.constexpr, B_PACK: gl.constexpr,
):  # fmt: skip
    """D = (A * scales) @ (B * scales).T by pairs of CTAs; scales by TMA, and by tcgen05.cp."""
    pair: gl.constexpr = gl.num_ctas() == 2
    split: gl.constexpr = [[1, 0]] if pair else []
    both: gl.constexpr = [[0, 0]] if pair else []
    BLOCKS: gl.constexpr = BK // GROUP // 4
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], split)
    a_shared = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    b_shared = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    a_factors = gl.allocate_shared_memory(a_scale.dtype, a_scale.block_shape, a_scale.layout)
    b_factors = gl.allocate_shared_memory(b_scale.dtype, b_scale.block_shape, b_scale.layout)
    layout: gl.constexpr = TensorMemoryLayout(
        [128, N], col_stride=1, cga_layout=split, two_ctas=pair
    )
    sums = allocate_tensor_memory(gl.float32, [M, N], layout)
    a_held = allocate_tensor_memory(
        a_scale.dtype, [M, BK // GROUP], TensorMemoryScalesLayout(cga_layout=split)
    )
    b_held = allocate_tensor_memory(
        b_scale.dtype, [N, BK // GROUP], TensorMemoryScalesLayout(cga_layout=both)
    )
    full = mbarrier.allocate_mbarrier(two_ctas=pair)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    phase = 0
    for at in range(0, k, BK):
        block = at // GROUP // 4
        nbytes: gl.constexpr = (
            a.nbytes_per_cta + b.nbytes_per_cta + a_scale.nbytes_per_cta + b_scale.nbytes_per_cta
        )
        mbarrier.expect(full, nbytes)
        tma.async_load(a, [0, at // A_PACK], full, a_shared)
        tma.async_load(b, [0, at // B_PACK], full, b_shared)
        tma.async_load(a_scale, [0, 0, block, 0, 0], full, a_factors)
        tma.async_load(b_scale, [0, 0, block, 0, 0], full, b_factors)
        mbarrier.wait(full, phase)
        a_rows = a_factors.reshape((M // 128, BLOCKS, 32, 4, 4)).permute((0, 3, 2, 1, 4))
        b_rows = b_factors.reshape((N // 128, BLOCKS, 32, 4, 4)).permute((0, 3, 2, 1, 4))
        tcgen05_copy(a_rows.reshape((M, BK // GROUP)), a_held)
        tcgen05_copy(b_rows.reshape((N, BK // GROUP)), b_held)
        tcgen05_mma_scaled(
            a_shared, b_shared.permute((1, 0)), sums, a_held, b_held, A_TYPE, B_TYPE,
            use_acc=at != 0,
        )  # fmt: skip
        tcgen05_commit(done)
        mbarrier.wait(done, phase)
        phase ^= 1
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    loaded: gl.constexpr = sums.get_reg_layout(num_warps=4)
    values = gl.convert_layout(sums.load(loaded), plain)
    rows = gl.arange(0, M, gl.SliceLayout(1, plain))
    columns = gl.arange(0, N, gl.SliceLayout(0, plain))
    gl.store(out + rows[:, None] * N + columns[None, :], values)


@gluon.jit
def added_by_tma(x, out, M: gl.constexpr, N: gl.constexpr, TIMES: gl.constexpr):
    """out += x for a box of three dimensions, by cp.reduce, several times."""
    held = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.nbytes_per_cta)
    at = gl.program_id(0)
    tma.async_load(x, [at, 0, 0], bar, held)
    mbarrier.wait(bar, 0)
    for _ in range(TIMES):
        tma.async_atomic_add(out, [at, 0, 0], held)
    tma.store_wait(0)
    tma.async_store(out, [at + gl.num_programs(0), 0, 0], held)
    tma.store_wait(0)
    mbarrier.invalidate(bar)


@gluon.jit
def passed_through(x, out, value, AT: gl.constexpr, REGISTERS: gl.constexpr):
    """out = x + value for one box: TMA into shared memory, registers, shared memory, TMA out. The
    threads find the elements where the swizzle has put them.
    """
    held = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.nbytes_per_cta)
    tma.async_load(x, AT, bar, held)
    mbarrier.wait(bar, 0)
    values = held.load(REGISTERS)
    held.store((values + value.to(x.dtype)).to(x.dtype))
    fence_async_shared()
    tma.async_store(out, AT, held)
    tma.store_wait(0)
    mbarrier.invalidate(bar)


@gluon.jit
def sent_to_all(x, out, M: gl.constexpr, N: gl.constexpr):
    """Both CTAs of a cluster get one tile by a multicast copy, and both store it."""
    halves: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], [[0, 0]])
    held = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.nbytes_per_cta)
    cluster.barrier()
    tma.async_load(x, [0, 0], bar, held, multicast=True)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    rows = gl.arange(0, M, gl.SliceLayout(1, halves))
    columns = gl.arange(0, N, gl.SliceLayout(0, halves))
    gl.store(out + rows[:, None] * N + columns[None, :], held.load(halves))


@gluon.jit
def tensor_memory_far_apart(x, out, M: gl.constexpr, N: gl.constexpr, SHAPE: gl.constexpr):
    """Two tiles to tensor memory, 256 columns apart, and both of them back."""
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, plain))
    columns = gl.arange(0, N, gl.SliceLayout(0, plain))
    at = rows[:, None] * N + columns[None, :]
    layout: gl.constexpr = TensorMemoryLayout([M, 512], col_stride=1)
    memory = allocate_tensor_memory(gl.float32, [M, 512], layout)
    near, far = memory.slice(64, N), memory.slice(320, N)
    held: gl.constexpr = near.get_reg_layout(num_warps=4, instr_variant=SHAPE)
    near.store(gl.convert_layout(gl.load(x + at), held))
    far.store(gl.convert_layout(gl.load(x + M * N + at), held))
    gl.store(out + at, gl.convert_layout(near.load(held), plain))
    gl.store(out + M * N + at, gl.convert_layout(far.load(held), plain))


@gluon.jit
def two_products(a, b, out, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    """A @ B for two A, whose sums are in tensor memory at the same time: of 64 rows each, the
    compiler puts those of the second below those of the first.
    """
    plain: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    r: gl.constexpr = gl.SliceLayout(1, plain)
    c: gl.constexpr = gl.SliceLayout(0, plain)
    a_at = a + gl.arange(0, M, r)[:, None] * K + gl.arange(0, K, c)[None, :]
    b_at = b + gl.arange(0, K, r)[:, None] * N + gl.arange(0, N, c)[None, :]
    a_layout: gl.constexpr = gl.NVMMASharedLayout(32, 16, 2)
    b_layout: gl.constexpr = gl.NVMMASharedLayout(64, 16, 2)
    first = gl.allocate_shared_memory(a.dtype.element_ty, [M, K], a_layout, gl.load(a_at))
    second = gl.allocate_shared_memory(a.dtype.element_ty, [M, K], a_layout, gl.load(a_at + M * K))
    b_shared = gl.allocate_shared_memory(b.dtype.element_ty, [K, N], b_layout, gl.load(b_at))
    layout: gl.constexpr = TensorMemoryLayout([M, N], col_stride=1)
    upper = allocate_tensor_memory(gl.float32, [M, N], layout)
    lower = allocate_tensor_memory(gl.float32, [M, N], layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    fence_async_shared()
    tcgen05_mma(first, b_shared, upper, use_acc=False)
    tcgen05_mma(second, b_shared, lower, use_acc=False)
    tcgen05_commit(bar)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    loaded: gl.constexpr = upper.get_reg_layout(num_warps=4, instr_variant="16x256b")
    at = gl.arange(0, M, r)[:, None] * N + gl.arange(0, N, c)[None, :]
    gl.store(out + at, gl.convert_layout(upper.load(loaded), plain))
    gl.store(out + M * N + at, gl.convert_layout(lower.load(loaded), plain))
