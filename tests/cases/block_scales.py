"""Small kernels with block-scaled MMAs and NumPy references: for the simulator, for NVRTC, and for
a Blackwell GPU.

Elements are small and scale factors powers of two near 1, or e4m3 numbers of few bits, so that
every sum is exact in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tests.cases.tensor_memory import Handover, Made, empty

Array = npt.NDArray[Any]
K_TILES = 3
KINDS = {  # dtypes of A and B, of the scale factors; elements of a block
    "mxfp8": ("float8_e4m3", "float8_e4m3", "float8_e8m0", 32),
    "mxfp8 e5m2": ("float8_e5m2", "float8_e4m3", "float8_e8m0", 32),
    "mxfp4": ("float4_e2m1", "float4_e2m1", "float8_e8m0", 32),
    "nvfp4": ("float4_e2m1", "float4_e2m1", "float8_e4m3", 16),
}


@tp.kernel(grid=lambda pair: 2 if pair else 1, cluster=lambda pair: 2 if pair else 1)
def scaled(
    ctx: tp.Context,
    a: Any,
    b: Any,
    sfa: Any,
    sfb: Any,
    c: Any,
    *,
    block: int,
    n: int,
    pair: bool = False,
    row: int = 0,
    adds: bool = True,
) -> None:
    """C (m, n) = Σ (A · sfa) (B · sfb)ᵀ over boxes along K. m is 128, or 256 of a pair, which has
    its halves of A, sfa and B, and all of sfb, in each CTA. `row`: B's scale factors begin there.
    `adds`: False: the last box alone.
    """
    group = 2 if pair else 1
    tiles = [
        ctx.smem(x.box[-2:], x.dtype, swizzle=x.swizzle, name=name)[0]
        for x, name in ((a, "a_tile"), (b, "b_tile"))
    ]
    over = -(-(row + n) // 128)  # pieces along the rows of B
    pieces = sfa.box[1] // 32
    sfa_tile = ctx.smem((32 * pieces, 16), sfa.dtype, swizzle=0, name="sfa_tile")[0]
    sfb_tile = ctx.smem((32 * pieces * over, 16), sfb.dtype, swizzle=0, name="sfb_tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
    empty_ = tp.SharedMemBarrier.allocate(ctx, count=1, name="empty")
    h = Handover(ctx, 512, cta_group=group)
    steps = ctx.ceil_div(a.shape[1], a.box[1])
    blocks = a.box[1] // block
    leads = ctx.cta_rank == 0

    @ctx.role("load", warps=1)
    def load() -> None:
        for k in ctx.range(steps):
            empty_.wait((k + 1) % 2)
            with ctx.elect_one():
                bar = full.on(0) if pair else full
                with ctx.when(leads):
                    full.expect_bytes(
                        group * (sum(t.nbytes for t in tiles) + sfa_tile.nbytes + sfb_tile.nbytes)
                    )
                ctx.tma_load(a, (ctx.cta_rank * 128, k * a.box[1]), tiles[0], bar)
                ctx.tma_load(b, (ctx.cta_rank * (n // group), k * a.box[1]), tiles[1], bar)
                ctx.tma_load(sfa, (ctx.cta_rank, k * 32 * pieces, 0), sfa_tile, bar)
                for i in range(over):
                    ctx.tma_load(
                        sfb,
                        (i, k * 32 * pieces, 0),
                        sfb_tile.rows(32 * pieces * i, 32 * pieces),
                        bar,
                    )
        empty_.wait((steps + 1) % 2)

    @ctx.role("mma", warps=1)
    def mma() -> None:
        h.allocate()
        acc = h.tmem.tensor((128, n))
        scales_a = h.tmem.scales((128, blocks), sfa.dtype, col=256)
        scales_b = h.tmem.scales((row + n, blocks), sfb.dtype, col=256 + scales_a.columns)
        part = scales_b.rows(row, n) if row else scales_b
        with ctx.when(leads):
            for k in ctx.range(steps):
                full.wait(k % 2)
                ctx.tcgen05_fence_after()
                with ctx.elect_one():
                    ctx.tmem_copy(scales_a, sfa_tile)
                    ctx.tmem_copy(scales_b, sfb_tile)
                    ctx.mma(
                        acc, *tiles, accumulate=(k > 0) if adds else False, sfa=scales_a, sfb=part
                    )
                    ctx.mma_commit(empty_, mask=3 if pair else None)
            with ctx.elect_one():
                ctx.mma_commit(h.done, mask=3 if pair else None)
        h.over.complete_dealloc(h.tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        h.find()
        h.wait()
        h.store(c, 128, n, ctx.cta_rank * 128)


@dataclass(frozen=True)
class Case:
    """One program to run.

    Attributes:
        name: for test ids. make: rng -> (program, the array it writes, what must be in it, largest
            difference allowed).
    """

    name: str
    make: Callable[[np.random.Generator], Made]


def packed(x: Array) -> Array:
    """float4_e2m1 numbers (rows, k) as bytes (rows, k / 2)."""
    codes = x.view(np.uint8)
    joined: Array = codes[:, ::2] | codes[:, 1::2] << 4
    return joined


def pieces(scales: Array, k_pieces: int) -> Array:
    """Scale factors (rows, blocks) as (rows / 128, 32 · pieces along K, 16): each piece of 128 rows
    × 4 blocks is 32 rows of 16 bytes.
    """
    rows, blocks = -(-scales.shape[0] // 128), 4 * k_pieces
    whole = np.zeros((rows * 128, blocks), np.uint8)
    whole[: scales.shape[0], : scales.shape[1]] = scales.view(np.uint8)
    laid = (
        whole.reshape(rows, 4, 32, k_pieces, 4)
        .transpose(0, 3, 2, 1, 4)
        .reshape(rows, 32 * k_pieces, 16)
    )
    return np.ascontiguousarray(laid).view(scales.dtype)


def elements(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> Array:
    """Small numbers that the dtype has."""
    return (rng.integers(-4, 5, shape) / 2).astype(np.float32).astype(tp.dtype(dtype).numpy)


def factors(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> Array:
    """Scale factors: powers of two, or numbers of 3 bits."""
    x = (
        2.0 ** rng.integers(-2, 3, shape)
        if dtype == "float8_e8m0"
        else rng.integers(1, 8, shape) / 4
    )
    return x.astype(np.float32).astype(tp.dtype(dtype).numpy)


def exact(a: Array, sfa: Array, b: Array, sfb: Array, block: int) -> Array:
    """(A · sfa) (B · sfb)ᵀ in float64."""
    left, right = (
        x.astype(np.float64) * np.repeat(s.astype(np.float64), block, axis=1)
        for x, s in ((a, sfa), (b, sfb))
    )
    product: Array = left @ right.T
    return product


def scaled_case(
    kind: str,
    n: int,
    *,
    k: int = 0,
    pair: bool = False,
    row: int = 0,
    adds: bool = True,
    tail: int = 0,
) -> Case:
    """`scaled`; k: elements of a box along K, 128 bytes unless given; `tail`: elements that K lacks
    of whole boxes.
    """
    left, right, scale, block = KINDS[kind]
    k = k or 1024 // tp.dtype(left).bits

    def make(rng: np.random.Generator) -> Made:
        m, whole, k_pieces = 256 if pair else 128, K_TILES * k, -(-k // (4 * block))
        depth = whole - tail
        a, b = elements(rng, (m, depth), left), elements(rng, (n, depth), right)
        # Of a tile whose blocks do not fill its pieces, as many pieces as it has lie in memory.
        sfa, sfb = (
            factors(rng, (m, whole // block), scale),
            factors(rng, (row + n, whole // block), scale),
        )
        laid = [
            np.concatenate(
                [pieces(part, k_pieces) for part in np.split(s, K_TILES, axis=1)], axis=1
            )
            for s in (sfa, sfb)
        ]
        c = empty(m, n)
        group = 2 if pair else 1
        maps = [
            tp.tensor_map(
                packed(x) if right == "float4_e2m1" else x,
                box=(rows, k),
                dtype=t if right == "float4_e2m1" else None,
            )
            for x, rows, t in ((a, 128, left), (b, n // group, right))
        ]
        scales = [tp.tensor_map(s, box=(1, 32 * k_pieces, 16), swizzle=0) for s in laid]
        program = scaled.bind(*maps, *scales, c, block=block, n=n, pair=pair, row=row, adds=adds)
        first = 0 if adds else (K_TILES - 1) * k
        used = slice(first // block, depth // block)
        return (
            program,
            c,
            exact(a[:, first:], sfa[:, used], b[:, first:], sfb[row:, used], block),
            0.0,
        )

    words = {
        "n": n,
        "k": k if k != 1024 // tp.dtype(left).bits else 0,
        "pair": pair,
        "row": row,
        "last": not adds,
        "tail": tail,
    }
    return Case(
        " ".join([kind, *(f"{key}={value}" for key, value in words.items() if value)]), make
    )


CASES = [
    *(scaled_case("mxfp8", n) for n in (8, 64, 96, 128, 136, 256)),
    *(scaled_case("mxfp8", 64, k=k) for k in (32, 64, 256)),
    scaled_case("mxfp8", 192, k=256),
    scaled_case("mxfp8 e5m2", 128),
    *(scaled_case(kind, n) for kind in ("mxfp4", "nvfp4") for n in (8, 64, 128, 248, 256)),
    *(scaled_case(kind, 64, k=k) for kind in ("mxfp4", "nvfp4") for k in (64, 128)),
    *(
        scaled_case(kind, n, pair=True)
        for kind, n in (
            ("mxfp8", 32),
            ("mxfp8", 256),
            ("mxfp4", 128),
            ("nvfp4", 256),
            ("nvfp4", 48),
        )
    ),
    *(scaled_case(kind, n, row=64) for kind, n in (("mxfp8", 64), ("nvfp4", 192), ("mxfp8", 128))),
    *(scaled_case(kind, 64, adds=False) for kind in KINDS),
    scaled_case("mxfp8", 64, tail=32),
    scaled_case("nvfp4", 64, tail=64),
]
