"""Kernels in Triton: elementwise ones, reductions, and matrix products in each way that Triton has
to load operands.
"""

# mypy: ignore-errors
# What a kernel's names mean, the compiler of Triton says; its parameters have no Python types.

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    """A block of the sum of two vectors; the last one may be partly outside."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, total, mask=inside)


@triton.jit
def softmax(x, out, columns, stride, BLOCK: tl.constexpr):
    """A row of a matrix whose rows are `stride` elements apart."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * stride + at, mask=inside, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + at, powers / tl.sum(powers, axis=0), mask=inside)


@triton.jit
def histogram(x, out, n, BLOCK: tl.constexpr):
    """Counts of 16 values, added up over the programs with atomics."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=-1)
    for value in range(16):
        tl.atomic_add(out + value, tl.sum((values == value).to(tl.int32), axis=0))


@triton.jit
def transpose(x, out, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    """A tile through shared memory, where the layout of its registers changes."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    tile = tl.load(x + i[:, None] * columns + j[None, :])
    tl.store(out + j[:, None] * rows + i[None, :], tile.T)


@triton.jit
def cumulative_sum(x, out, columns, BLOCK: tl.constexpr):
    """A row: a scan within threads, across a warp and across warps."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0)
    tl.store(out + row * columns + at, tl.cumsum(values, axis=0), mask=inside)


@triton.jit
def sort_rows(x, out, BLOCK: tl.constexpr):
    """A row by a bitonic sort: exchanges between registers, lanes and warps."""
    row = tl.program_id(0) * BLOCK
    at = tl.arange(0, BLOCK)
    tl.store(out + row + at, tl.sort(tl.load(x + row + at)))


@triton.jit
def convert(x, half, bfloat, back, n, BLOCK: tl.constexpr):
    """To narrow types and back."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(half + at, values.to(tl.float16))
    tl.store(bfloat + at, values.to(tl.bfloat16))
    tl.store(back + at, values.to(tl.float8e4nv).to(tl.float32))


@triton.jit
def gemm(
    a, b, c, k, a_stride, b_stride, c_stride,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """C = A @ B; operands through pointers, so copied by the threads (cp.async)."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_at = a + rows[:, None] * a_stride + depth[None, :]
    b_at = b + depth[:, None] * b_stride + columns[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for _ in tl.range(0, k, BK, num_stages=STAGES):
        sums = tl.dot(tl.load(a_at), tl.load(b_at), sums)
        a_at += BK
        b_at += BK * b_stride
    tl.store(c + rows[:, None] * c_stride + columns[None, :], sums)


@triton.jit
def gemm_tma(
    a, b, c, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
    SPECIALISED: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """C = A @ B, or A @ B.T; tensor maps from the host."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for at in tl.range(0, k, BK, num_stages=STAGES, warp_specialize=SPECIALISED):
        left = a.load([row, at])
        if TRANSPOSED:
            sums = tl.dot(left, b.load([column, at]).T, sums)
        else:
            sums = tl.dot(left, b.load([at, column]), sums)
    c.store([row, column], sums.to(c.dtype))


@triton.jit
def gemm_device_maps(
    a, b, c, m, n, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
    SPECIALISED: tl.constexpr,
):  # fmt: skip
    """C = A @ B.T; the kernel makes its tensor maps in scratch memory."""
    a_map = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    b_map = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    c_map = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for at in tl.range(0, k, BK, num_stages=STAGES, warp_specialize=SPECIALISED):
        sums = tl.dot(a_map.load([row, at]), b_map.load([column, at]).T, sums)
    c_map.store([row, column], sums.to(tl.bfloat16))


@triton.jit
def gemm_persistent(
    a, b, c, m, n, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
    SPECIALISED: tl.constexpr,
):  # fmt: skip
    """C = A @ B.T; each program computes one tile after another."""
    across = n // BN
    tiles = m // BM * across
    for tile in tl.range(
        tl.program_id(0), tiles, tl.num_programs(0), flatten=True, warp_specialize=SPECIALISED
    ):
        row, column = tile // across * BM, tile % across * BN
        sums = tl.zeros((BM, BN), tl.float32)
        for at in tl.range(0, k, BK, num_stages=STAGES):
            sums = tl.dot(a.load([row, at]), b.load([column, at]).T, sums)
        c.store([row, column], sums.to(tl.bfloat16))


@triton.jit
def gemm_scaled(
    a, a_scale, b, b_scale, c, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
    GROUP: tl.constexpr, A_TYPE: tl.constexpr, B_TYPE: tl.constexpr,
):  # fmt: skip
    """C = (A * scales) @ (B * scales).T; the scales come in the order of the tensor core: blocks
    of 128 rows and 4 groups, 512 bytes each.
    """
    A_PACK: tl.constexpr = 2 if A_TYPE == "e2m1" else 1
    B_PACK: tl.constexpr = 2 if B_TYPE == "e2m1" else 1
    GROUPS: tl.constexpr = BK // GROUP
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    blocks = k // GROUP // 4
    part = tl.arange(0, BM // 128 * (GROUPS // 4) * 512)
    each = (GROUPS // 4) * 512
    b_part = tl.arange(0, BN // 128 * (GROUPS // 4) * 512)
    sums = tl.zeros((BM, BN), tl.float32)
    for at in tl.range(0, k, BK, num_stages=STAGES):
        first = at // GROUP // 4
        a_at = (row // 128 + part // each) * blocks * 512 + first * 512 + part % each
        b_at = (column // 128 + b_part // each) * blocks * 512 + first * 512 + b_part % each
        a_factors = tl.load(a_scale + a_at).reshape(BM // 128, GROUPS // 4, 32, 4, 4)
        a_factors = a_factors.trans(0, 3, 2, 1, 4).reshape(BM, GROUPS)
        b_factors = tl.load(b_scale + b_at).reshape(BN // 128, GROUPS // 4, 32, 4, 4)
        b_factors = b_factors.trans(0, 3, 2, 1, 4).reshape(BN, GROUPS)
        left = a.load([row, at // A_PACK])
        right = b.load([column, at // B_PACK]).T
        sums = tl.dot_scaled(left, a_factors, A_TYPE, right, b_factors, B_TYPE, sums)
    c.store([row, column], sums)


@triton.jit
def gemm_scaled_tma(
    a, a_scale, b, b_scale, c, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
    GROUP: tl.constexpr, A_TYPE: tl.constexpr, B_TYPE: tl.constexpr,
):  # fmt: skip
    """The same, with scales by tensor maps of five dimensions: the tensor core copies them."""
    A_PACK: tl.constexpr = 2 if A_TYPE == "e2m1" else 1
    B_PACK: tl.constexpr = 2 if B_TYPE == "e2m1" else 1
    BLOCKS: tl.constexpr = BK // GROUP // 4
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for at in tl.range(0, k, BK, num_stages=STAGES):
        block = at // GROUP // 4
        a_factors = a_scale.load([0, row // 128, block, 0, 0])
        b_factors = b_scale.load([0, column // 128, block, 0, 0])
        a_factors = a_factors.reshape(BM // 128, BLOCKS, 32, 4, 4).trans(0, 3, 2, 1, 4)
        b_factors = b_factors.reshape(BN // 128, BLOCKS, 32, 4, 4).trans(0, 3, 2, 1, 4)
        left = a.load([row, at // A_PACK])
        right = b.load([column, at // B_PACK]).T
        sums = tl.dot_scaled(
            left, a_factors.reshape(BM, BK // GROUP), A_TYPE,
            right, b_factors.reshape(BN, BK // GROUP), B_TYPE, sums,
        )  # fmt: skip
    c.store([row, column], sums)


@triton.jit
def attention(
    q, k, v, out, length, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, STAGES: tl.constexpr,
    SPECIALISED: tl.constexpr,
):  # fmt: skip
    """softmax(Q K^T) V for one head, a block of keys at a time."""
    row = tl.program_id(0) * BM
    queries = q.load([row, 0])
    top = tl.full((BM,), float("-inf"), tl.float32)
    norm = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    for at in tl.range(0, length, BN, num_stages=STAGES, warp_specialize=SPECIALISED):
        scores = tl.dot(queries, k.load([at, 0]).T) * scale
        higher = tl.maximum(top, tl.max(scores, 1))
        powers = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        norm = norm * shrink + tl.sum(powers, 1)
        sums = tl.dot(powers.to(tl.bfloat16), v.load([at, 0]), sums * shrink[:, None])
        top = higher
    out.store([row, 0], (sums / norm[:, None]).to(tl.bfloat16))
