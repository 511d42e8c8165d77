"""Values that become 8 bits in registers, on the way to wgmma as A. For Hopper alone.

Operands are such that every sum is exact in the narrow sums of the fp8 tensor cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng

ORDER = list(tp.FOURS_ORDER)
LARGEST = {"float8_e4m3": 448.0, "float8_e5m2": 57344.0}
M, N = 128, 40


@tp.kernel(grid=1)
def packed_product(
    ctx: tp.Context, a: Any, b: Any, out: Any, *, kind: str, parts: tuple[int, ...]
) -> None:
    """out (m, n) = 2 A (m, k) · B (n, k)ᵀ. 2 A is rounded to `kind` in registers, in parts of so
    many columns; B has the columns of each 16 in the order that this gives A.
    """
    b_tile = ctx.smem(b.box, b.dtype, swizzle=b.swizzle, name="b_tile")[0]
    loaded = tp.SharedMemBarrier.allocate(ctx, 1, "loaded")

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        with ctx.elect_one("role"):
            loaded.expect_bytes(b_tile.nbytes)
            ctx.tma_load(b, (0, 0), b_tile, loaded)
        acc = ctx.accumulator((M, N))
        left = ctx.fragment(shape=(M, sum(parts)), dtype=kind, layout="fours")
        x = ctx.load_global(a, (0, 0), (M, sum(parts)))
        col = 0
        for width in parts:
            left.pack(2 * x.cols(col, width), col)
            col += width
        loaded.wait(0)
        ctx.mma(acc, left, b_tile, accumulate=False)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        ctx.store_global(out, (0, 0), acc)


def made(kind: str, source: str, parts: tuple[int, ...]) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        small, k = tp.dtype(kind).numpy, sum(parts)
        a = rng.integers(-31, 32, (M, k)).astype(tp.dtype(source).numpy)
        a[3:5] = 0
        a[3, :2] = 0.75 * LARGEST[kind], -(2.0**16)  # twice as much saturates
        a[4, 5] = 1e-3  # below the smallest normal number of e4m3
        b = rng.integers(-1, 2, (N, k)).astype(small)
        rounded = np.clip(2 * a.astype(np.float32), -LARGEST[kind], LARGEST[kind]).astype(small)
        want = (rounded.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
        ordered = b.reshape(N, k // 16, 16)[:, :, ORDER].reshape(N, k)
        out = np.zeros((M, N), np.float32)
        b_map = tp.tensor_map(np.ascontiguousarray(ordered), box=(N, k))
        return packed_product.bind(a, b_map, out, kind=kind, parts=parts), out, want, 0

    return make


@tp.kernel(grid=1)
def loaded_product(ctx: tp.Context, a: Any, b: Any, out: Any, *, first: int, k: int) -> None:
    """out (m, n) = A[:, first : first + k] · B[:, first : first + k]ᵀ, with A loaded to registers
    once, and B multiplied in two parts of its columns.
    """
    a_tile, b_tile = (
        ctx.smem(x.box, x.dtype, swizzle=x.swizzle, name=name)[0]
        for x, name in ((a, "a_tile"), (b, "b_tile"))
    )
    loaded = tp.SharedMemBarrier.allocate(ctx, 1, "loaded")

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        with ctx.elect_one("role"):
            loaded.expect_bytes(a_tile.nbytes + b_tile.nbytes)
            ctx.tma_load(a, (0, 0), a_tile, loaded)
            ctx.tma_load(b, (0, 0), b_tile, loaded)
        left = ctx.fragment(shape=(a.box[0], k), dtype=a.dtype, layout="fours")
        half = b.box[0] // 2
        parts = [ctx.accumulator((a.box[0], half)) for _ in range(2)]
        loaded.wait(0)
        left.load(a_tile.cols(first, k))
        for i, acc in enumerate(parts):
            ctx.mma(acc, left, b_tile.rows(i * half, half).cols(first, k), accumulate=False)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        for i, acc in enumerate(parts):
            ctx.store_global(out, (0, i * half), acc)


def from_a_tile(kind: str, width: int, first: int, k: int, m: int = M) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        small = tp.dtype(kind).numpy
        a, b = (rng.integers(-4, 5, (x, width)).astype(small) for x in (m, 32))
        inside = slice(first, first + k)
        want = a[:, inside].astype(np.float32) @ b[:, inside].astype(np.float32).T
        out = np.zeros((m, 32), np.float32)
        maps = (tp.tensor_map(x, box=x.shape) for x in (a, b))
        return loaded_product.bind(*maps, out, first=first, k=k), out, want, 0

    return make


CASES = [
    Case("loaded_e4m3", from_a_tile("float8_e4m3", 128, 0, 128)),
    Case("loaded_e5m2", from_a_tile("float8_e5m2", 64, 32, 32, m=64)),
    Case("loaded_e4m3_part", from_a_tile("float8_e4m3", 128, 32, 64, m=64)),
    Case("packed_e4m3", made("float8_e4m3", "float32", (64, 32, 32))),
    Case("packed_e5m2", made("float8_e5m2", "bfloat16", (16, 48))),
]
