"""Atomic operations and flags in global memory, between CTAs, with what NumPy says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware.tma import REDUCED
from tilepipe.lang.memory.strong_memory import DTYPES

CTAS, PLACES = 3, 4
_REDUCED: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@tp.kernel(grid=CTAS)
def reduced(ctx: tp.Context, x: Any, out: Any, *, operation: str) -> None:
    """Every lane of every CTA combines its number with one of a few elements."""

    @ctx.role("one", warps=1)
    def one() -> None:
        value = ctx.load(x[ctx.block_id, ctx.lane])
        getattr(ctx, f"atomic_{operation}")(out[ctx.lane % PLACES], value)


def reducing(operation: str, dtype: DType) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        low, high = (-4, 5) if dtype.kind != "uint" else (0, 9)
        x = rng.integers(low, high, (CTAS, 32)).astype(dtype.numpy)
        if dtype.bits == 64 and dtype.is_integer:
            x <<= 33  # beyond 32 bits
        out = rng.integers(0, 4, PLACES).astype(dtype.numpy)
        want = out.copy()
        for i, value in enumerate(x.reshape(-1)):
            want[i % PLACES] = _REDUCED[operation](want[i % PLACES], value)
        return reduced.bind(x, out, operation=operation), out, want, 0

    return make


@tp.kernel(grid=CTAS)
def swapped(ctx: tp.Context, out: Any, old: Any, *, cas: bool) -> None:
    """Lane i of CTA c exchanges element c, i; with `cas` every second one, whose value it knows."""

    @ctx.role("one", warps=1)
    def one() -> None:
        at, lane = ctx.block_id, ctx.lane
        new = (lane + 100).to(out.dtype)
        if cas:
            found = ctx.atomic_cas(out[at, lane], (lane - lane % 2).to(out.dtype), new)
        else:
            found = ctx.atomic_exchange(out[at, lane], new)
        ctx.store(old[at, lane], found)


def swapping(cas: bool, dtype: DType) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        del rng
        lanes = np.broadcast_to(np.arange(32), (CTAS, 32)).astype(dtype.numpy)
        both = np.zeros((2, CTAS, 32), dtype.numpy)
        both[0] = lanes
        want = np.stack([lanes + 100, lanes])
        if cas:
            want[0] = np.where(np.arange(32) % 2 == 0, lanes + 100, lanes)
        return swapped.bind(both[0], both[1], cas=cas), both, want, 0

    return make


@tp.kernel(grid=lambda x: x.shape[0], cooperative=True)
def prefix(ctx: tp.Context, x: Any, out: Any, flags: Any, *, fences: bool) -> None:
    """out[c] = sum of x[:c + 1]: each CTA waits for the flag of the one before it."""
    relaxed = {"order": "relaxed"}
    acquire, release = (relaxed, relaxed) if fences else ({}, {"order": "release"})

    @ctx.role("one", warps=1)
    def one() -> None:
        total = ctx.var(ctx.load(x[ctx.block_id, ctx.lane]))
        with ctx.when(ctx.block_id > 0):
            with ctx.elect_one():
                ctx.wait_until(flags[ctx.block_id - 1], lambda value: value == 1, **acquire)
                if fences:
                    ctx.fence()
            ctx.syncwarp()
            total += ctx.load(out[ctx.block_id - 1, ctx.lane])
        ctx.store(out[ctx.block_id, ctx.lane], total.get())
        ctx.syncwarp()
        with ctx.elect_one():
            if fences:
                ctx.fence("sc")
            ctx.store(flags[ctx.block_id], 1, **release)


def summing(fences: bool) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        x = rng.integers(-9, 9, (CTAS, 32)).astype(np.float32)
        out = np.full_like(x, np.nan)
        return prefix.bind(x, out, np.zeros(CTAS, np.uint32), fences=fences), out, x.cumsum(0), 0

    return make


@tp.kernel(grid=lambda x: x.shape[0])
def last(ctx: tp.Context, x: Any, parts: Any, count: Any, out: Any, *, tma: bool) -> None:
    """out = sum of 2 x over the CTAs, by whichever comes last, from what the others have stored."""
    tile = ctx.smem((CTAS, 32), x.dtype, swizzle=0, name="tile")[0]
    loaded = tp.SharedMemBarrier.allocate(ctx, 1, "loaded")

    @ctx.role("one", warps=1)
    def one() -> None:
        ctx.store(parts[ctx.block_id, ctx.lane], 2 * ctx.load(x[ctx.block_id, ctx.lane]))
        if tma:
            ctx.fence_proxy_async("global")
        ctx.syncwarp()
        drawn = ctx.var(0 * ctx.lane)
        with ctx.when(ctx.lane == 0):
            drawn.set(ctx.atomic_add(count[0], 1, order="acq_rel"))
        ctx.syncwarp()
        with ctx.when(ctx.shuffle(drawn.get(), 0) == ctx.num_clusters - 1):
            if tma:
                with ctx.elect_one():
                    ctx.fence_proxy_async("global")
                    loaded.expect_bytes(tile.nbytes)
                    ctx.tma_load(parts, (0, 0), tile, loaded)
                loaded.wait(0)
            total = ctx.var(ctx.lane.to("float32") * 0)
            for c in range(CTAS):
                total += ctx.load(tile[c, ctx.lane] if tma else parts[c, ctx.lane])
            ctx.store(out[ctx.lane], total.get())


def reducing_last(tma: bool) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        x = rng.integers(-9, 9, (CTAS, 32)).astype(np.float32)
        parts, count = np.zeros_like(x), np.zeros(1, np.int32)
        out = np.full(32, np.nan, np.float32)
        given = tp.tensor_map(parts, box=(CTAS, 32)) if tma else parts
        return last.bind(x, given, count, out, tma=tma), out, 2 * x.sum(0), 0

    return make


@tp.kernel(grid=CTAS)
def reduced_boxes(ctx: tp.Context, x: Any, out: Any, *, operation: str) -> None:
    """Every CTA loads two boxes and reduces them into the same places of `out`, whose last rows and
    columns are beyond its end.
    """
    rows, cols = x.box[-2:]
    tiles = ctx.smem((rows, cols), x.dtype, count=2, swizzle=0, name="tiles")
    loaded = tp.SharedMemBarrier.allocate(ctx, 1, "loaded")

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            loaded.expect_bytes(2 * tiles.tile_bytes)
            for i in range(2):
                ctx.tma_load(x, (ctx.block_id, 0, cols * i), tiles[i], loaded)
        loaded.wait(0)
        with ctx.elect_one():
            for i in range(2):
                ctx.tma_store(out, (0, cols * i), tiles[i], reduce=operation)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


def reducing_boxes(operation: str, dtype: DType) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        rows, cols = 8, 16
        low, high = (-4, 5) if dtype.kind != "uint" else (0, 9)
        x = rng.integers(low, high, (CTAS, rows, 2 * cols)).astype(dtype.numpy)
        if dtype.bits == 64:
            x <<= 33  # beyond 32 bits
        out = rng.integers(0, 4, (rows - 1, 2 * cols - 4)).astype(dtype.numpy)
        padded = np.zeros((rows, 2 * cols), dtype.numpy)[: rows - 1, : 2 * cols - 4]
        padded[:] = out
        want = out.copy()
        for part in x:
            want = _REDUCED[operation](want, part[: rows - 1, : 2 * cols - 4]).astype(dtype.numpy)
        maps = [
            tp.tensor_map(array, box=(1,) * (array.ndim - 2) + (rows, cols), swizzle=0)
            for array in (x, padded)
        ]
        return reduced_boxes.bind(*maps, operation=operation), padded, want, 0

    return make


@tp.kernel(grid=CTAS)
def reduced_fragments(
    ctx: tp.Context,
    x: Any,
    out: Any,
    *,
    shape: tuple[int, int],
    layout: str,
    warps: int,
    rows: int | None,
) -> None:
    """Every CTA adds its part of x, doubled, to the same place of `out`, which ends before it; or
    two warps of it each do, or only the first rows.
    """

    @ctx.role("one", **({"warps": warps} if warps else {"warpgroups": 1}))
    def one() -> None:
        at = (0,) * out.rank
        value = ctx.load_global(x, (ctx.block_id, *at), shape, layout=layout)
        twice = (value if out.dtype.is_integer else value.to("float32")) * (1 if warps else 2)
        if rows is None:
            ctx.store_global(out, at, twice, reduce="add")
        else:
            ctx.store_global(out, at, twice, rows=rows, reduce="add")


def reducing_fragments(
    dtype: DType,
    shape: tuple[int, int],
    inside: tuple[int, ...],
    *,
    boxed: bool,
    layout: str = "wgmma",
    warps: int = 0,
    rows: int | None = None,
) -> Callable[[Rng], Made]:
    """`warps`: none, for a warpgroup, or two, of which each adds x instead of 2 x."""

    def make(rng: Rng) -> Made:
        extents = shape if 1 not in shape else (max(shape),)
        low = 0 if dtype.kind == "uint" else -4
        x = rng.integers(low, 5, (CTAS, *extents)).astype(dtype.numpy)
        padded = np.zeros(tuple(-(-n // 8) * 8 for n in inside), dtype.numpy)
        out = padded[tuple(slice(n) for n in inside)]
        out[...] = rng.integers(low, 5, inside)
        part = x[(slice(None), *(slice(n) for n in inside))].astype(np.float32)
        if rows is not None:
            part[:, rows:] = 0
        want = (out.astype(np.float32) + 2 * part.sum(0)).astype(dtype.numpy)
        given = tp.tensor_map(out, box=(8, 8)) if boxed else out
        program = reduced_fragments.bind(
            x, given, shape=shape, layout=layout, warps=warps, rows=rows
        )
        return program, out, want, 0

    return make


_FLOATS = (dtypes.float32, dtypes.float16, dtypes.bfloat16)
_ADDED = (*_FLOATS, dtypes.int32, dtypes.uint32)

CASES = [
    *(
        Case(f"reduce_boxes_{operation}_{dtype}", reducing_boxes(operation, dtype))
        for operation in _REDUCED
        for dtype in REDUCED[operation]
    ),
    *(
        Case(
            f"reduce_fragments_{dtype}{'_pairs' * boxed}",
            reducing_fragments(dtype, *where, boxed=boxed),
        )
        for dtype in _ADDED
        for boxed, where in ((True, ((64, 32), (62, 29))), (False, ((64, 16), (61, 16))))
    ),
    Case("reduce_rows", reducing_fragments(dtypes.float32, (64, 1), (50,), boxed=False)),
    *(
        Case(
            f"reduce_{name}_{dtype}",
            reducing_fragments(dtype, shape, inside, boxed=False, layout=layout),
        )
        for dtype in _ADDED
        for name, layout, shape, inside in (
            ("rows_8", "rows:8", (16, 128), (13, 120)),
            ("rows_64_odd", "rows:64", (2, 512), (2, 509)),
        )
    ),
    *(
        Case(f"reduce_{name}", reducing_fragments(dtypes.bfloat16, *where, boxed=False, **settings))
        for name, where, settings in (
            ("rows_1_of_rows_16", ((16, 1), (13,)), {"layout": "rows:16"}),
            ("columns_of_rows_8", ((1, 128), (101,)), {"layout": "rows:8"}),
            ("rows_4_of_warps", ((8, 64), (7, 64)), {"layout": "rows:4", "warps": 2}),
            ("first_rows_of_rows_8", ((16, 64), (16, 64)), {"layout": "rows:8", "rows": 5}),
        )
    ),
    Case("reduce_columns", reducing_fragments(dtypes.bfloat16, (1, 32), (27,), boxed=False)),
    *(
        Case(f"atomic_{operation}_{dtype}", reducing(operation, dtype))
        for operation in _REDUCED
        for dtype in DTYPES[operation]  # type: ignore[index]
    ),
    *(Case(f"exchange_{dtype}", swapping(False, dtype)) for dtype in DTYPES["exchange"]),
    *(Case(f"cas_{dtype}", swapping(True, dtype)) for dtype in DTYPES["cas"]),
    Case("prefix_by_flags", summing(False)),
    Case("prefix_by_fences", summing(True)),
    Case("last_cta_loads", reducing_last(False)),
    Case("last_cta_copies", reducing_last(True)),
]
