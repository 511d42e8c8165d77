"""Columns of fragment expressions, as epilogues in halves take them; and tiles that are written
transposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.bits import any_bits
from tests.cases.fragments import Array, Case, Made, Rng, matrix, tolerance, wide
from tilepipe.ir import dtypes


@tp.kernel(grid=1)
def in_parts(
    ctx: tp.Context, x: Any, r: Any, c: Any, out: Any, *, parts: int, order: str, layout: str
) -> None:
    """out = leaky(x · r + c), (128, 64), of the first 50 columns, in parts by shared tiles."""
    m, n = 128, 64
    tiles = ctx.smem((m, n // parts), out.dtype, count=parts, order=order, name="tiles")

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        acc = ctx.load_global(x, (0, 0), (m, n), layout=layout)
        row = ctx.load_global(r, (0,), (m, 1), layout=layout)
        y = acc.to("float32") * row + ctx.load_global(c, (0,), (1, n))
        y = ctx.select((ctx.col_index(n) < 50) & (y >= 0), y, -0.5 * abs(y))
        width = n // parts
        for part in range(parts):
            ctx.store(tiles[part], y.cols(part * width, width))
        ctx.sync_warpgroup()
        for part in range(parts):
            back = ctx.fragment(shape=(m, width), dtype=out.dtype, layout=layout)
            back.load(tiles[part])
            ctx.store_global(out, (0, part * width), back)


def parted(kind: str, parts: int, order: str, layout: str) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        x, r, c = matrix(rng, (128, 64), kind), matrix(rng, (128,), kind), matrix(rng, (64,), kind)
        out = np.zeros((128, 64), dtypes.dtype(kind).numpy)
        y = wide(x) * wide(r)[:, None] + wide(c)
        want = np.where((np.arange(64) < 50) & (y >= 0), y, -0.5 * np.abs(y))
        program = in_parts.bind(x, r, c, out, parts=parts, order=order, layout=layout)
        return program, out, want.astype(out.dtype), 2 * tolerance(kind)

    return make


@tp.kernel(grid=1)
def of_split_words(ctx: tp.Context, words: Any, out: Any) -> None:
    """Halves of what bitcast and interleave make: low and high 16 bits of each word."""

    @ctx.role("split", warpgroups=1)
    def split() -> None:
        x = ctx.load_global(words, (0, 0), (64, 16))
        small = (x & 0x3FFF3FFF).bitcast("bfloat16").to("float32")
        other = ctx.interleave((x & 0xFF).to("float32"), (x >> 24).to("float32"))
        for half in range(2):
            part = small.cols(16 * half, 16) + other.cols(16 * half, 16)
            ctx.store_global(out, (0, 16 * half), part)


def split_words(rng: Rng) -> Made:
    words = any_bits(rng, (64, 16), "uint32")
    halves = (words & np.uint32(0x3FFF3FFF)).view(np.uint16).reshape(64, 16, 2)
    small = (halves.astype(np.uint32) << 16).view(np.float32)
    parts = small + np.stack([words & 0xFF, words >> 24], axis=2).astype(np.float32)
    # word 2 t + i of eight becomes columns 8 i + 2 t and 8 i + 2 t + 1 of sixteen
    want = parts.reshape(64, 2, 4, 2, 2).swapaxes(2, 3).reshape(64, 32)
    out = np.zeros((64, 32), np.float32)
    return of_split_words.bind(words, out), out, want, 0


@tp.kernel(grid=1)
def of_rows(ctx: tp.Context, x: Any, c: Any, out: Any) -> None:
    """out = 2 x + c in halves, four threads a row; the halves in the other order."""

    @ctx.role("rows", warps=1)
    def rows() -> None:
        a = ctx.load_global(x, (0, 0), (8, 64), layout="rows:4")
        b = ctx.load_global(c, (0,), (1, 64), layout="rows:4")
        y = 2 * a + b + ctx.col_index(64, layout="rows:4")
        ctx.store_global(out, (0, 32), y.cols(0, 32))
        ctx.store_global(out, (0, 0), y.cols(32, 32))


def rows_in_halves(kind: str) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        x = rng.integers(-9, 9, (8, 64)).astype(dtypes.dtype(kind).numpy)
        c = rng.integers(-9, 9, 64).astype(x.dtype)
        out = np.zeros_like(x)
        want = np.roll(2 * x.astype(np.float32) + c.astype(np.float32) + np.arange(64), 32, axis=1)
        return of_rows.bind(x, c, out), out, want.astype(x.dtype), 0

    return make


@tp.kernel(grid=1)
def transposed(ctx: tp.Context, x: Any, out: Any) -> None:
    """out = 2 x, (128, 64), where `out` has its columns contiguous: stored to a tile that has, too,
    and from there by TMA.
    """
    tile = ctx.smem(out.box, out.dtype, order=out.order, swizzle=out.swizzle, name="tile")[0]

    @ctx.role("turn", warpgroups=1)
    def turn() -> None:
        ctx.store(tile, 2 * ctx.load_global(x, (0, 0), out.box))
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("role"):
            ctx.tma_store(out, (0, 0), tile)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


def transpose(kind: str, swizzle: int) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        x = matrix(rng, (128, 64), kind)
        rows: Array = np.zeros((64, 128), x.dtype)
        box = (swizzle // x.itemsize if swizzle else 128, 64)
        out = tp.tensor_map(rows.T, box=box, swizzle=swizzle)
        want = np.zeros_like(rows)
        want[:, : box[0]] = 2 * x[: box[0]].T
        return transposed.bind(x, out), rows, want, 0

    return make


CASES = [
    Case(name, make)
    for name, make in {
        **{
            f"in_{parts}_parts_{kind}_{order}_{layout}": parted(kind, parts, order, layout)
            for kind, parts, order, layout in (
                ("float32", 2, "row", "wgmma"),
                ("bfloat16", 4, "row", "wgmma"),
                ("bfloat16", 2, "col", "wgmma"),
                ("bfloat16", 8, "row", "tmem"),
                ("float16", 2, "col", "tmem"),
            )
        },
        "split_words_in_halves": split_words,
        **{f"rows_in_halves_{kind}": rows_in_halves(kind) for kind in ("float32", "bfloat16")},
        **{
            f"transposed_{kind}_{swizzle}": transpose(kind, swizzle)
            for kind, swizzle in (("bfloat16", 128), ("float16", 0), ("float32", 0))
        },
    }.items()
]
