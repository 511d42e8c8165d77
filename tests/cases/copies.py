"""TMA copies as small kernels with what NumPy says of them, for the simulator, for NVRTC, and for a
GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng
from tilepipe.ir import dtypes


@tp.kernel()
def copied(
    ctx: tp.Context,
    a: Any,
    out: Any,
    *,
    at: tuple[int, ...],
    to: tuple[int, ...],
    l2: str | None = None,
) -> None:
    """The box of `a` at `at`, to `out` at `to`."""
    tile = ctx.smem((1, *a.box)[-2:], a.dtype, order=a.order, swizzle=a.swizzle, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("copy", warps=1)
    def copy() -> None:
        with ctx.elect_one():
            full.expect_bytes(tile.nbytes)
            ctx.tma_load(a, at, tile, full, l2=l2)
        full.wait(0)
        with ctx.elect_one():
            ctx.tma_store(out, to, tile)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


def spans(
    at: tuple[int, ...], box: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of an array that a box at `at` covers, and the part of the box."""
    ends = [
        (max(x, 0), max(min(x + n, extent), max(x, 0)))
        for x, n, extent in zip(at, box, shape, strict=True)
    ]
    return tuple(slice(*e) for e in ends), tuple(
        slice(lo - x, hi - x) for (lo, hi), x in zip(ends, at, strict=True)
    )


def copy(
    kind: str,
    shape: tuple[int, ...],
    box: tuple[int, ...],
    at: tuple[int, ...],
    to: tuple[int, ...],
    order: str = "row",
    swizzle: int | None = None,
    **given: Any,
) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        t = dtypes.dtype(kind)

        def array(values: Array) -> Array:
            """In memory as `order` says."""
            return (
                values
                if order == "row"
                else np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
            )

        a, out = (
            array(rng.integers(0, 8, shape).astype(t.numpy)),
            array(np.full(shape, 9).astype(t.numpy)),
        )
        moved, want = np.zeros(box, t.numpy), out.copy()
        there, here = spans(at, box, shape)
        moved[here] = a[there]
        there, here = spans(to, box, shape)
        want[there] = moved[here]
        maps = [tp.tensor_map(x, box=box, swizzle=swizzle, order=order) for x in (a, out)]
        return copied.bind(*maps, at=at, to=to, **given), out, want, 0

    return make


KINDS = [t for t in dtypes.ALL if t.in_registers and t not in (dtypes.phase, dtypes.boolean)]
COPIES = {
    **{
        f"copy_{t.name}": copy(
            t.name,
            (40, 2 * 64 // t.nbytes),
            (16, 64 // t.nbytes),
            (3, 16 // t.nbytes),
            (7, 48 // t.nbytes),
        )
        for t in KINDS
    },
    **{
        f"copy_{order}_{swizzle}_{kind}": copy(
            kind,
            (200, 208),
            (64, 128) if order == "row" else (128, 64),
            (-8, 104),
            (152, 144),
            order,
            swizzle,
        )
        for order in ("row", "col")
        for swizzle in (0, 32, 64, 128)
        for kind in ("bfloat16", "float32")
    },
    "copy_evict_first": copy("float32", (40, 32), (16, 16), (3, 4), (7, 12), l2="evict_first"),
    "copy_evict_last": copy("float32", (40, 32), (16, 16), (3, 4), (7, 12), l2="evict_last"),
    "copy_rank_1": copy("float32", (100,), (32,), (-4,), (84,)),
    "copy_rank_3": copy("float16", (3, 20, 72), (1, 16, 64), (2, 9, -8), (0, 13, 24)),
    "copy_rank_3_col": copy("float16", (3, 72, 24), (1, 64, 16), (1, 16, -5), (2, 40, 20), "col"),
    "copy_rank_4": copy("bfloat16", (2, 3, 20, 40), (1, 1, 8, 32), (1, 2, -5, 16), (0, 1, 15, 8)),
    "copy_rank_5": copy(
        "uint8", (2, 2, 3, 10, 48), (1, 1, 1, 8, 32), (1, 0, 2, -4, 16), (0, 1, 0, 5, 32)
    ),
    "copy_outside": copy("float32", (16, 16), (8, 16), (100, -40), (8, 0)),
    "copy_to_outside": copy("float32", (16, 16), (8, 16), (0, 0), (16, 16)),
}


@tp.kernel()
def slots(ctx: tp.Context, a: Any, out: Any, *, depth: int) -> None:
    """out[i] = a[i] + i, row after row, through `depth` slots: a slot is written again when its
    store has read it.
    """
    tile = ctx.smem((1, 32), a.dtype, count=depth, swizzle=0, name="tile")

    @ctx.role("one", warps=1)
    def one() -> None:
        for i in ctx.range(a.shape[0]):
            slot = tile[i % depth]
            with ctx.elect_one():
                ctx.tma_store_wait(depth - 1, read=True)
            ctx.syncwarp()
            ctx.store(slot[0, ctx.lane], ctx.load(a[i, ctx.lane]) + i)
            ctx.fence_proxy_async()
            ctx.syncwarp()
            with ctx.elect_one():
                ctx.tma_store(out, (i, 0), slot)
                ctx.tma_store_commit()
        with ctx.elect_one():
            ctx.tma_store_wait(0)


def slotted(depth: int) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a, out = rng.integers(0, 100, (50, 32)).astype(np.int32), np.zeros((50, 32), np.int32)
        return (
            slots.bind(a, tp.tensor_map(out, box=(1, 32)), depth=depth),
            out,
            a + np.arange(50)[:, None],
            0,
        )

    return make


@tp.kernel()
def rows_of_warps(ctx: tp.Context, a: Any, out: Any) -> None:
    """out = -a (64, 32) by way of bfloat16: each warp stores its 16 rows of the fragment, and
    copies them out by itself.
    """
    tile = ctx.smem((16, 32), "bfloat16", count=4, name="tile")

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        x = ctx.load_global(a, (0, 0), (64, 32))
        with ctx.per_warp() as w:
            ctx.store(tile[w], -x)
            ctx.fence_proxy_async()
            ctx.syncwarp()
            with ctx.elect_one():
                ctx.tma_store(out, (16 * w, 0), tile[w])
                ctx.tma_store_commit()
                ctx.tma_store_wait(0)


def by_warps(rng: Rng) -> Made:
    a, out = rng.standard_normal((64, 32)).astype(np.float32), np.zeros((64, 32), tp.bfloat16.numpy)
    return rows_of_warps.bind(a, tp.tensor_map(out, box=(16, 32))), out, (-a).astype(out.dtype), 0


@tp.kernel(grid=2, cluster=2)
def fenced(ctx: tp.Context, x: Any, out: Any, *, to_tensor: str, to_peer: str) -> None:
    """CTA 0 writes x by ordinary stores, and a tile of CTA 1, which loads x by TMA and stores both
    tiles by TMA.
    """
    tiles = ctx.smem((8, 32), "int32", swizzle=0, count=2, name="tiles")
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.when(ctx.cta_rank == 0):
            for row in range(8):
                ctx.store(x[row, ctx.lane], ctx.lane - row)
                ctx.store(tiles[1].on(1)[row, ctx.lane], ctx.lane * row)
            ctx.fence_proxy_async(to_tensor)
            if to_peer != to_tensor:
                ctx.fence_proxy_async(to_peer)
        ctx.cluster_arrive()
        ctx.cluster_wait()
        with ctx.when(ctx.cta_rank == 1):
            with ctx.elect_one():
                full.expect_bytes(tiles[0].nbytes)
                ctx.tma_load(x, (0, 0), tiles[0], full)
            full.wait(0)
            with ctx.elect_one():
                for i in range(2):
                    ctx.tma_store(out, (8 * i, 0), tiles[i])
                ctx.tma_store_commit()
                ctx.tma_store_wait(0)


def over_proxies(to_tensor: str, to_peer: str) -> Callable[[Rng], Made]:
    """Ordinary writes to global memory, and to a peer's tile, that TMA then reads."""

    def make(rng: Rng) -> Made:
        x, out = rng.integers(0, 9, (8, 32)).astype(np.int32), np.zeros((16, 32), np.int32)
        rows, lanes = np.arange(8)[:, None], np.arange(32)
        maps = [tp.tensor_map(a, box=(8, 32), swizzle=0) for a in (x, out)]
        return (
            fenced.bind(*maps, to_tensor=to_tensor, to_peer=to_peer),
            out,
            np.concatenate([lanes - rows, lanes * rows]),
            0,
        )

    return make


@tp.kernel()
def some_rows(ctx: tp.Context, a: Any, counts: Any, out: Any) -> None:
    """Of the i-th tile of `a`, as many rows as the i-th of `counts` says, one behind the other in
    `out`.
    """
    tile = ctx.smem(a.box, a.dtype, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("copy", warps=1)
    def copy() -> None:
        at = ctx.var(0)
        for i in ctx.range(counts.shape[0]):
            with ctx.elect_one():
                full.expect_bytes(tile.nbytes)
                ctx.tma_load(a, (i * a.box[0], 0), tile, full)
            full.wait(i % 2)
            count = ctx.load(counts[i])
            with ctx.elect_one():
                ctx.tma_store(out, (*(0,) * (out.rank - 2), at.get(), 8), tile, rows=count)
                ctx.tma_store_commit()
                ctx.tma_store_wait(0)
            ctx.syncwarp()
            at.set(at + ctx.min(ctx.max(count, 0), a.box[0]))


def ragged(kind: str, cols: int, rank: int = 2) -> Callable[[Rng], Made]:
    """The last of the counts reaches beyond the end, where the rest is clipped; some are 0, below 0
    and above the tile's rows.
    """

    def make(rng: Rng) -> Made:
        counts, rows = np.array([5, 16, 0, 1, -7, 3, 99, 16, 9], np.int32), 60
        a = rng.integers(0, 8, (16 * len(counts), cols)).astype(dtypes.dtype(kind).numpy)
        out = np.full((*(1,) * (rank - 2), rows, cols + 24), 9).astype(a.dtype)
        want, at = out.copy(), 0
        for i, count in enumerate(np.clip(counts, 0, 16)):
            part = a[16 * i : 16 * i + count][: rows - at]
            want[..., at : at + len(part), 8 : 8 + cols] = part
            at += count
        map_ = tp.tensor_map(out, box=(*(1,) * (rank - 2), 16, cols), ragged=True)
        return some_rows.bind(tp.tensor_map(a, box=(16, cols)), counts, map_), out, want, 0

    return make


@tp.kernel()
def first_lines(
    ctx: tp.Context, a: tp.GlobalTensor, counts: tp.GlobalTensor, out: tp.GlobalTensor
) -> None:
    """Copies boxes that follow each other in `a`, of each as many lines as `counts` says, and the
    zeros that come for the others.
    """
    assert a.box is not None
    shape = a.box[-2], a.box[-1]
    tile = ctx.smem(shape, a.dtype, order=a.order, swizzle=a.swizzle, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")
    axis = 0 if a.order == "row" else 1

    @ctx.role("copy", warps=1)
    def copy() -> None:
        at = ctx.var(0)
        for i in ctx.range(counts.shape[0]):
            count = ctx.load(counts[i])
            where: list[Any] = [0, 0]
            where[axis] = at.get()
            with ctx.elect_one():
                full.expect_bytes(tile.nbytes)
                ctx.tma_load(a, (*(0,) * (a.rank - 2), *where), tile, full, lines=count)
            full.wait(i % 2)
            where[axis] = i * tile.shape[axis]
            with ctx.elect_one():
                ctx.tma_store(out, where, tile)
                ctx.tma_store_commit()
                ctx.tma_store_wait(0)
            ctx.syncwarp()
            at.set(at + ctx.min(ctx.max(count, 0), tile.shape[axis]))


def ragged_load(kind: str, cols: int, order: str, rank: int = 2) -> Callable[[Rng], Made]:
    """Groups of lines that begin anywhere; the last is cut at the tensor's end, and some counts are
    0, below 0 and above the tile's lines.
    """

    def make(rng: Rng) -> Made:
        counts, lines = np.array([5, 16, 0, 1, -7, 3, 99, 16, 9], np.int32), 60
        a = rng.integers(1, 8, (lines, cols)).astype(dtypes.dtype(kind).numpy)
        want, at = np.zeros((16 * len(counts), cols), a.dtype), 0
        for i, count in enumerate(np.clip(counts, 0, 16)):
            part = a[at : at + count]
            want[16 * i : 16 * i + len(part)] = part
            at += count
        out = np.full_like(want, 9)
        given: Any = a.reshape(*(1,) * (rank - 2), *a.shape)
        box, result = (16, cols), out
        if order == "col":
            box, given, result = (cols, 16), given.swapaxes(-1, -2), out.T
        map_ = tp.tensor_map(given, box=(*(1,) * (rank - 2), *box), order=order, ragged=True)
        bound = first_lines.bind(map_, counts, tp.tensor_map(result, box=box, order=order))
        return bound, out, want, 0

    return make


def copied_bytes(
    kind: str,
    shape: tuple[int, int],
    box: tuple[int, int],
    at: tuple[int, int],
    to: tuple[int, int],
) -> Callable[[Rng], Made]:
    """`copied` of 4-bit elements or scale factors, given as their bytes; shape, box and coordinates
    count elements.
    """

    def make(rng: Rng) -> Made:
        share = dtypes.dtype(kind).per_byte
        a, out = (
            rng.integers(0, 256, (shape[0], shape[1] // share), np.uint8),
            np.full((shape[0], shape[1] // share), 0x21, np.uint8),
        )
        moved, want = np.zeros((box[0], box[1] // share), np.uint8), out.copy()
        inner = [(row, col // share) for row, col in (at, to)]
        there, here = spans(inner[0], moved.shape, a.shape)
        moved[here] = a[there]
        there, here = spans(inner[1], moved.shape, a.shape)
        want[there] = moved[here]
        maps = [tp.tensor_map(x, box=box, dtype=kind) for x in (a, out)]
        return copied.bind(*maps, at=at, to=to), out, want, 0

    return make


BYTES = {
    "copy_fp4": copied_bytes("float4_e2m1", (64, 512), (32, 256), (8, 256), (16, 0)),
    "copy_fp4_edges": copied_bytes("float4_e2m1", (50, 288), (32, 256), (30, 96), (30, 64)),
    "copy_fp4_unswizzled": copied_bytes("float4_e2m1", (20, 96), (12, 32), (4, 32), (0, 64)),
    "copy_e8m0": copied_bytes("float8_e8m0", (64, 96), (32, 64), (40, 48), (8, 16)),
}
RAGGED = {
    "ragged": ragged("bfloat16", 64),
    "ragged_panels": ragged("float32", 96),
    "ragged_rank_3": ragged("float16", 48, 3),
    "ragged_load": ragged_load("bfloat16", 64, "row"),
    "ragged_load_columns": ragged_load("float16", 128, "col", 3),
    "ragged_load_panels": ragged_load("float32", 96, "row", 3),
}
CASES = [
    Case(name, make)
    for name, make in {
        **COPIES,
        **{f"slots_{depth}": slotted(depth) for depth in (1, 2, 4)},
        "rows_of_warps": by_warps,
        "fenced_by_space": over_proxies("global", "cluster"),
        "fenced_everywhere": over_proxies("all", "all"),
        **RAGGED,
        **BYTES,
    }.items()
]
