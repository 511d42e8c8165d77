"""Scale factors in tensor memory while a kernel is traced: what a wrong shape, type or place is
told as.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.errors import TraceError

Body = Callable[["Parts"], object]


class Parts:
    """A kernel's tiles and tensor memory, in the one lane that issues MMAs."""

    def __init__(self, ctx: tp.Context, group: int) -> None:
        self.ctx = ctx
        self.tmem = tp.TmemAllocation(ctx, 512, cta_group=group)
        shapes = {
            "fp8": ("float8_e4m3", 128),
            "e5m2": ("float8_e5m2", 128),
            "fp4": ("float4_e2m1", 256),
            "bf16": ("bfloat16", 64),
        }
        self.a = {
            name: ctx.smem((128, k), dtype, name=f"a_{name}")[0]
            for name, (dtype, k) in shapes.items()
        }
        self.b = {
            name: ctx.smem((64 // group, k), dtype, name=f"b_{name}")[0]
            for name, (dtype, k) in shapes.items()
        }
        self.tile = {
            dtype: ctx.smem((64, 16), dtype, swizzle=0, name=f"t_{dtype}")[0]
            for dtype in ("float8_e8m0", "float8_e4m3", "uint8")
        }
        self.wide = ctx.smem((8, 128), "float8_e8m0", swizzle=128, name="swizzled")[0]

    def mma(
        self,
        a: str = "fp8",
        b: str = "fp8",
        sfa: Any = None,
        sfb: Any = None,
        n: int = 64,
        rows: int = 128,
    ) -> None:
        self.ctx.mma(
            self.tmem.tensor((rows, n)), self.a[a].rows(0, rows), self.b[b], sfa=sfa, sfb=sfb
        )

    def scales(
        self, rows: int = 128, blocks: int = 4, dtype: object = "float8_e8m0", col: object = 256
    ) -> tp.TmemScales:
        return self.tmem.scales((rows, blocks), dtype, col)


def traced(body: Body, group: int = 1) -> tp.Program:
    """A kernel in whose MMA warp one lane executes `body`."""

    @tp.kernel(grid=group, cluster=group)
    def k(ctx: tp.Context, x: Any) -> None:
        parts = Parts(ctx, group)
        over = tp.TmemDeallocBarrier(ctx, group)

        @ctx.role("mma", warps=1)
        def mma() -> None:
            parts.tmem.allocate()
            with ctx.when(ctx.cta_rank == 0), ctx.elect_one():
                body(parts)
            over.complete_dealloc(parts.tmem)

        @ctx.role("epilogue", warpgroups=1)
        def epilogue() -> None:
            over.signal_complete()

    return k.bind(np.zeros(4, np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "group"),
    [
        (lambda p: p.mma(sfa=p.scales(), sfb=p.scales(64)), 1),
        (lambda p: p.mma("e5m2", sfa=p.scales(), sfb=p.scales(64)), 1),
        (lambda p: p.mma("fp4", "fp4", sfa=p.scales(128, 8), sfb=p.scales(64, 8)), 1),
        (
            lambda p: p.mma(
                "fp4", "fp4", sfa=p.scales(128, 16, "e4m3"), sfb=p.scales(64, 16, "e4m3")
            ),
            1,
        ),
        (lambda p: p.mma(sfa=p.scales(), sfb=p.scales(64)), 2),
        (lambda p: p.mma(sfa=p.scales(), sfb=p.scales(128).rows(64, 64)), 1),
        (lambda p: p.mma(sfa=p.scales(), sfb=p.scales(256).rows(p.ctx.block_id * 64, 64)), 1),
        (lambda p: p.ctx.tmem_copy(p.scales(256), p.tile["float8_e8m0"]), 1),
        (lambda p: p.ctx.tmem_copy(p.scales(40, 7), p.tile["float8_e8m0"]), 1),
        (
            lambda p: p.ctx.tmem_copy(p.scales(128, 4, "e4m3"), p.tile["float8_e4m3"].rows(32, 32)),
            1,
        ),
    ],
)
def test_what_is_taken(body: Body, group: int) -> None:
    assert "scales" in str(traced(body, group))


REFUSED: dict[str, tuple[Body, tuple[str, ...]]] = {
    "one of the two": (
        lambda p: p.mma(sfa=p.scales()),
        ("sfa and sfb are both scale factors in tensor memory", "None"),
    ),
    "a tile": (
        lambda p: p.mma(sfa=p.tile["uint8"], sfb=p.tile["uint8"]),
        ("sfa and sfb are both", "<tile of 't_uint8'"),
    ),
    "fp4 without": (
        lambda p: p.mma("fp4", "fp4"),
        ("got float4_e2m1 and float4_e2m1, which takes scale factors: sfa=, sfb=",),
    ),
    "bf16": (
        lambda p: p.mma("bf16", "bf16", sfa=p.scales(128, 2), sfb=p.scales(64, 2)),
        ("block-scaled are float8_e4m3 and float8_e5m2", "got bfloat16 with float8_e8m0"),
    ),
    "e4m3 scales of fp8": (
        lambda p: p.mma(sfa=p.scales(dtype="e4m3"), sfb=p.scales(64, dtype="e4m3")),
        ("got float8_e4m3 with float8_e4m3",),
    ),
    "two kinds of scales": (
        lambda p: p.mma(sfa=p.scales(), sfb=p.scales(64, dtype="e4m3")),
        ("float8_e4m3 with float8_e4m3",),
    ),
    "fewer blocks": (
        lambda p: p.mma(sfa=p.scales(128, 3), sfb=p.scales(64)),
        ("sfa has 128 rows × 3 blocks", "k = 128 in blocks of 32 is 4"),
    ),
    "rows of B": (
        lambda p: p.mma(sfa=p.scales(), sfb=p.scales(128)),
        ("sfb has 128 rows × 4 blocks; B has 64 rows",),
    ),
    "64 rows of A": (
        lambda p: p.mma(sfa=p.scales(64), sfb=p.scales(64), rows=64),
        ("m = 64: a block-scaled accumulator has 128 rows",),
    ),
    "shapes": (
        lambda p: p.mma(sfa=p.scales(), sfb=p.scales(64), n=72),
        ("need A 128×k and B 72×k",),
    ),
    "scales of bf16": (
        lambda p: p.scales(dtype="bfloat16"),
        ("scale factors are float8_e8m0", "not bfloat16"),
    ),
    "no shape": (
        lambda p: p.tmem.scales(128),  # type: ignore[arg-type]
        ("scale factors are (rows, blocks of K)", "got (128, None)"),
    ),
    "many rows": (lambda p: p.scales(257), ("1 to 256 rows", "got (257, 4)")),
    "outside": (
        lambda p: p.scales(256, 8, col=500),
        ("columns [500, 516) of 'tmem', which has 512 columns",),
    ),
    "too wide": (
        lambda p: p.scales(256, 1000),
        ("take 2000 columns of tensor memory, which has 512",),
    ),
    "part of rows": (
        lambda p: p.scales().rows(32, 64),
        ("rows [32, 32 + 64) of scale factors of 128 rows", "multiple of 64"),
    ),
    "part beyond": (lambda p: p.scales().rows(64, 65), ("rows [64, 64 + 65)",)),
    "traced part": (lambda p: p.scales().rows(p.ctx.block_id, 64), ("such as `i * 64`",)),
    "copy to a part": (
        lambda p: p.ctx.tmem_copy(p.scales(256).rows(64, 128), p.tile["float8_e8m0"]),
        ("copy to the whole matrix",),
    ),
    "copy of bytes": (
        lambda p: p.ctx.tmem_copy(p.scales(256), p.tile["uint8"]),
        ("float8_e8m0 are copied from a tile of uint8",),
    ),
    "copy of too little": (
        lambda p: p.ctx.tmem_copy(p.scales(256, 5), p.tile["float8_e8m0"]),
        (
            "256 rows × 5 blocks are 4 pieces (128 rows × 4 blocks) of 512 bytes",
            "64×16 of 't_float8_e8m0' has 1024",
        ),
    ),
    "copy of a swizzled tile": (
        lambda p: p.ctx.tmem_copy(p.scales(256), p.wide),
        ("unswizzled row-major", "swizzle 128"),
    ),
    "copy to nothing": (
        lambda p: p.ctx.tmem_copy(cast(Any, p.tile["uint8"]), p.tile["uint8"]),
        ("tmem_copy copies a shared tile to tensor memory",),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    body, words = REFUSED[name]
    with pytest.raises(TraceError) as caught:
        traced(body)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"the message lacks {missing}:\n{caught.value}"
    assert "test_scales.py" in str(caught.value)


def test_a_pair_needs_the_scale_factors_of_all_of_b() -> None:
    with pytest.raises(
        TraceError,
        match="sfb has 32 rows × 4 blocks; B has 64 rows, all of them in either CTA of a pair",
    ):
        traced(lambda p: p.mma(sfa=p.scales(), sfb=p.scales(32)), 2)


def test_scale_factors_of_a_block_end_with_it() -> None:
    def body(p: Parts) -> None:
        with p.ctx.when(p.ctx.block_id == 0):
            inside = p.scales()
        inside.rows(0, 64)

    with pytest.raises(TraceError, match="view of tensor memory"):
        traced(body)


def test_what_a_view_says_of_itself() -> None:
    def body(p: Parts) -> None:
        s = p.scales(200, 9)
        assert (s.shape, s.dtype, s.columns) == ((200, 9), tp.float8_e8m0, 24)
        assert s.rows(64, 100).shape == (100, 9)
        assert repr(s) == "<scale factors 200×9 float8_e8m0 in tensor memory>"
        p.ctx.print("{}", s.offset())

    traced(body)


def test_wgmma_has_no_scale_factors() -> None:
    @tp.kernel()
    def k(ctx: tp.Context, x: Any) -> None:
        tile = ctx.smem((64, 128), "float8_e4m3")[0]

        @ctx.role("math", warpgroups=1)
        def math() -> None:
            ctx.mma(ctx.accumulator((64, 64)), tile, tile, sfa=x, sfb=x)

    with pytest.raises(TraceError, match="scale factors are for an accumulator in tensor memory"):
        k.bind(np.zeros(4, np.float32))
