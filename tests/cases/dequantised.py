"""Weights of 4 bits that become bfloat16 in registers, on the way to wgmma. For Hopper alone."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng


@tp.kernel(grid=1)
def dequantised_product(
    ctx: tp.Context, words: Any, scales: Any, b: Any, out: Any, *, group: int
) -> None:
    """out (64, n) = W · Bᵀ. W has 4 bits an element, 8 of them in a word (`packed_nibbles`), and a
    scale for each row and `group` columns, (k / group, 64). W becomes bfloat16 in registers, as A
    of wgmma.
    """
    n, k = b.box[0], 64
    w_tile = ctx.smem(words.box, words.dtype, name="w_tile")[0]
    b_tile = ctx.smem(b.box, b.dtype, name="b_tile")[0]
    loaded = tp.SharedMemBarrier.allocate(ctx, 1, "loaded")

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((64, n))
        acc.fill(0)
        w = ctx.fragment(shape=(64, 8), dtype="uint32")
        a = ctx.fragment(shape=(64, k), dtype="bfloat16")
        for step in ctx.range(b.shape[1] // k):
            with ctx.elect_one("role"):
                loaded.expect_bytes(w_tile.nbytes + b_tile.nbytes)
                ctx.tma_load(words, (0, step * 8), w_tile, loaded)
                ctx.tma_load(b, (0, step * k), b_tile, loaded)
            loaded.wait(step % 2)
            w.load(w_tile)
            scale = ctx.load_global(scales, (step * k // group, 0), (64, 1))
            for part in range(4):
                # 128 + q in bfloat16, whose last bits are q's
                biased = ((w >> 4 * part) & 0x000F000F | 0x43004300).bitcast("bfloat16")
                a.set((biased - 136) * scale.to("bfloat16"), col=16 * part)
            ctx.mma(acc, a, b_tile)
            ctx.wgmma_commit()
            ctx.wgmma_wait(0)
            ctx.sync_warpgroup()
        ctx.store_global(out, (0, 0), acc)


def packed_nibbles(q: Array) -> Array:
    """Weights 0..15, (m, k), as words, (m, k / 8): nibbles p and p + 4 of word 2 t + i of each
    eight are columns 16 p + 8 i + 2 t and the next of 64, so that a thread finds in a word what it
    has of A.
    """
    m, k = q.shape
    parts = q.reshape(m, k // 64, 4, 2, 4, 2).astype(np.uint32)  # m, 64 columns, p, i, t, low/high
    shifts = 4 * np.arange(4)[:, None, None, None] + 16 * np.arange(2)
    words = (parts << shifts.astype(np.uint32)).sum(axis=(2, 5), dtype=np.uint32)
    return np.ascontiguousarray(words.swapaxes(2, 3).reshape(m, k // 8))


def dequantised(rng: Rng) -> Made:
    k, n, group = 256, 32, 128
    q = rng.integers(0, 16, (64, k))
    scales = (2.0 ** rng.integers(-3, 2, (64, k // group))).astype(np.float32)
    b = rng.integers(-4, 5, (n, k)).astype(ml_dtypes.bfloat16)
    w = (q - 8) * np.repeat(scales, group, axis=1)
    out = np.zeros((64, n), np.float32)
    program = dequantised_product.bind(
        tp.tensor_map(packed_nibbles(q), box=(64, 8)),
        np.ascontiguousarray(scales.T),
        tp.tensor_map(b, box=(n, 64)),
        out,
        group=group,
    )
    return program, out, (w @ b.astype(np.float64).T).astype(np.float32), 1e-6


CASES = [Case("dequantised_int4", dequantised)]
