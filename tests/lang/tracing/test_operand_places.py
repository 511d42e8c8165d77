"""A tile that the hardware cannot reach is refused at the line of the kernel that uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused

Body = Callable[[tp.Context, Any, Any], object]


def bound(
    body: Body,
    box: tuple[int, int] = (64, 64),
    swizzle: int | None = None,
    shape: tuple[int, int] = (64, 128),
) -> tp.Program:
    """A kernel with one warpgroup, whose body is `body(ctx, tensor, tile)`; the tile is of
    `shape`.
    """

    @tp.kernel()
    def k(ctx: tp.Context, a: Any) -> None:
        tiles = ctx.smem(shape, a.dtype, swizzle=swizzle)

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            body(ctx, a, tiles[0])

    return k.bind(tp.tensor_map(np.zeros((64, 128), np.float16), box=box, swizzle=swizzle))


def store(ctx: tp.Context, a: Any, tile: Any) -> None:
    with ctx.elect_one("role"):
        ctx.tma_store(a, (0, 0), tile)
        ctx.tma_store_commit()


def multiply(ctx: tp.Context, a: Any, b: Any) -> None:
    acc = ctx.accumulator((64, 64))
    acc.fill(0)
    ctx.mma(acc, a, b)
    ctx.wgmma_commit()
    ctx.wgmma_wait(0)


def test_tma() -> None:
    bound(lambda ctx, a, t: store(ctx, a, t.cols(64, 64)))
    with refused(tp.TraceError, "tma_store", "whole panels", "column 32", "test_operand_places.py"):
        bound(lambda ctx, a, t: store(ctx, a, t.cols(32, 64)))
    with refused(
        tp.TraceError, "tma_store", "64 × 2 = 128 bytes apart", "128 × 2 = 256 bytes apart"
    ):
        bound(lambda ctx, a, t: store(ctx, a, t.cols(0, 64)), swizzle=0)
    with refused(tp.TraceError, "multiple of 128 bytes, 8 lines of 16", "row 4"):
        bound(lambda ctx, a, t: store(ctx, a, t.rows(4, 8)), (8, 8), 0, (64, 8))


def test_wgmma() -> None:
    bound(lambda ctx, a, t: multiply(ctx, t.cols(48, 32), t.cols(16, 32)))
    with refused(tp.TraceError, "mma", "atoms of 8 rows", "row 4", "test_operand_places.py"):
        bound(lambda ctx, a, t: multiply(ctx, t.rows(4, 64), t.rows(0, 64)), shape=(128, 64))
    with refused(tp.TraceError, "no swizzle", "swizzle=128"):
        bound(lambda ctx, a, t: multiply(ctx, t.cols(0, 64), t.cols(0, 64)), swizzle=0)


def test_stmatrix() -> None:
    def narrowed(start: int) -> Body:
        def body(ctx: tp.Context, a: Any, tile: Any) -> None:
            acc = ctx.accumulator((64, 64))
            acc.fill(1)
            ctx.store(tile.cols(start, 64), acc)

        return body

    bound(narrowed(8))
    with refused(tp.TraceError, "store", "stmatrix", "16 bytes", "column 4"):
        bound(narrowed(4))


@pytest.mark.parametrize(
    ("offset", "shown"),
    [
        (lambda ctx, i: i * 16, True),
        (lambda ctx, i: ctx.let(i * 16), True),
        (lambda ctx, i: i // 16 * 16, True),
        (lambda ctx, i: ctx.var(16).get(), False),
        (lambda ctx, i: i * 8, False),
    ],
)
def test_offsets_known_when_the_kernel_runs(
    offset: Callable[[tp.Context, Any], Any], shown: bool
) -> None:
    def body(ctx: tp.Context, a: Any, tile: Any) -> None:
        for i in ctx.range(4):
            start = offset(ctx, i)
            multiply(ctx, tile.cols(start, 16), tile.cols(start, 16))

    if shown:
        bound(body)
    else:
        with refused(tp.TraceError, "not known to be a multiple of 16", "// 16 * 16"):
            bound(body)


def test_the_index_of_a_loop_has_the_multiple_of_its_step() -> None:
    def body(ctx: tp.Context, a: Any, tile: Any) -> None:
        for start in ctx.range(0, 128, 32):
            multiply(ctx, tile.cols(start, 32), tile.cols(start, 32))

    bound(body)
