"""Small kernels on fragments, each with what NumPy says of it: run in the simulator, compiled, and
run on a GPU by the same list.

A case makes its program anew from a random generator, with the array that the kernel writes, what
that must then hold, and how far it may be off (relative and absolute).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.ir.dtypes import dtype

Array = npt.NDArray[Any]
Made = tuple[tp.Program, Array, Array, float]
Rng = np.random.Generator


@dataclass(frozen=True)
class Case:
    """`make(rng)` gives (program, output array, reference, tolerance)."""

    name: str
    make: Callable[[Rng], Made]


def matrix(rng: Rng, shape: tuple[int, ...], kind: str, order: str = "row", pad: int = 0) -> Array:
    """Normal numbers in a dtype, in the order wanted; `pad`: elements between one line and the
    next.
    """
    rows, cols = (1, *shape)[-2:]
    values = rng.standard_normal(shape).astype(dtype(kind).numpy)
    lines, width = (rows, cols) if order == "row" else (cols, rows)
    base = np.zeros(
        (*shape[:-2], lines, width + pad) if len(shape) > 1 else (width + pad,), values.dtype
    )[..., :width]
    out = base if order == "row" else base.swapaxes(-1, -2)
    out[...] = values
    return out


def wide(x: Array) -> Array:
    return x.astype(np.float32)


def tolerance(kind: str) -> float:
    """Two units in the last place of the dtype that was rounded to; float32 sums and functions are
    off by a little.
    """
    return {
        "float32": 2e-6,
        "float16": 2e-3,
        "bfloat16": 1.6e-2,
        "float8_e4m3": 0.13,
        "float8_e5m2": 0.26,
    }[kind]


# -- tensors ---------------------------------------------------------------------------


# Cases whose fragments lie outside of their tensors, of which a run advises.
OUTSIDE = {"nothing_inside"}


@tp.kernel(grid=1)
def moved(
    ctx: tp.Context,
    source: Any,
    out: Any,
    *,
    shape: tuple[int, int],
    at: tuple[int, ...],
    to: tuple[int, ...],
) -> None:
    """out[to ...] = 2 · source[at ...] + 1, in pieces of one fragment."""

    @ctx.role("move", warpgroups=1)
    def move() -> None:
        part = ctx.load_global(source, at, shape)
        ctx.store_global(out, to, part.to("float32") * 2 + 1)


def window(source: Array, shape: tuple[int, int], at: tuple[int, ...]) -> Array:
    """What `load_global` reads: zeros outside the array."""
    box = (1,) * (source.ndim - (1 if 1 in shape else 2)) + (
        (shape[0] * shape[1],) if 1 in shape else shape
    )
    out = np.zeros(box, np.float32)
    spans = [
        (max(a, 0), min(a + n, extent)) for a, n, extent in zip(at, box, source.shape, strict=True)
    ]
    if all(lo < hi for lo, hi in spans):
        there = tuple(slice(lo, hi) for lo, hi in spans)
        here = tuple(slice(lo - a, hi - a) for (lo, hi), a in zip(spans, at, strict=True))
        out[here] = source[there].astype(np.float32)
    return out


def put(out: Array, values: Array, to: tuple[int, ...]) -> Array:
    """`out` with a window written, clipped."""
    result = out.copy()
    spans = [
        (max(a, 0), min(a + n, extent))
        for a, n, extent in zip(to, values.shape, out.shape, strict=True)
    ]
    if all(lo < hi for lo, hi in spans):
        there = tuple(slice(lo, hi) for lo, hi in spans)
        here = tuple(slice(lo - a, hi - a) for (lo, hi), a in zip(spans, to, strict=True))
        result[there] = values[here].astype(out.dtype)
    return result


def move(
    kind: str,
    full: tuple[int, ...],
    shape: tuple[int, int],
    at: tuple[int, ...],
    to: tuple[int, ...] | None = None,
    order: str = "row",
    pad: int = 0,
    out_kind: str = "float32",
    box: bool = False,
) -> Callable[[Rng], Made]:
    """A window of an array, to the same window, or `to`, of another."""

    def make(rng: Rng) -> Made:
        source, out = matrix(rng, full, kind, order, pad), matrix(rng, full, out_kind, order, pad)
        out[...] = 7
        there = at if to is None else to
        want = put(out, window(source, shape, at) * 2 + 1, there)
        boxes = (1,) * (len(full) - 2) + (8, 8)
        given = [
            tp.tensor_map(x, box=boxes[-len(full) :] if len(full) > 1 else (16,)) if box else x
            for x in (source, out)
        ]
        return moved.bind(*given, shape=shape, at=at, to=there), out, want, 0

    return make


KINDS = ("float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")
MOVES = {
    **{f"move_{k}": move(k, (70, 50), (64, 48), (3, 1)) for k in KINDS},
    **{f"move_to_{k}": move("float32", (70, 50), (64, 48), (3, 1), out_kind=k) for k in KINDS},
    **{
        f"edges_{k}": move(k, (50, 29), (64, 32), (0, 0), out_kind=k)
        for k in ("float32", "bfloat16", "float8_e4m3")
    },
    **{
        f"columns_first_{k}": move(k, (80, 37), (64, 40), (10, 2), order="col", out_kind=k)
        for k in ("float32", "float16")
    },
    **{
        f"pairs_{k}": move(k, (130, 56), (128, 56), (4, 8), out_kind=k, box=True)
        for k in ("float32", "bfloat16", "float16")
    },
    # 16-byte strides and an odd extent: the last pair of a line is half outside
    **{
        f"odd_pairs_{k}": move(k, (65, 45), (64, 48), (2, 2), pad=3, out_kind=k, box=True)
        for k in ("float32", "bfloat16")
    },
    "before_the_start": move("float32", (70, 50), (64, 48), (-5, -3), to=(-4, -6)),
    "pairs_before_the_start": move(
        "bfloat16", (72, 56), (64, 48), (-5, -4), to=(-4, -6), out_kind="bfloat16", box=True
    ),
    "nothing_inside": move("float32", (70, 50), (64, 48), (70, 0), to=(0, 50)),
    "batch": move("bfloat16", (3, 70, 40), (64, 32), (2, 3, 5), to=(1, 10, 12)),
    "batch_col": move(
        "float16", (3, 70, 40), (64, 32), (2, 3, 5), to=(1, 10, 12), order="col", out_kind="float16"
    ),
    "value_a_column": move("bfloat16", (100,), (1, 96), (5,), to=(9,)),
    "value_a_column_pairs": move(
        "bfloat16", (100,), (1, 96), (6,), to=(8,), out_kind="bfloat16", pad=4, box=True
    ),
    "value_a_column_f32_pairs": move("float32", (99,), (1, 96), (6,), to=(8,), pad=1, box=True),
    "value_a_column_of_a_row": move("float32", (5, 100), (1, 96), (3, 5), to=(4, 3)),
    "value_a_column_strided": move(
        "float16", (5, 100), (1, 96), (3, 5), to=(4, 3), order="col", out_kind="bfloat16"
    ),
    "value_a_row": move("float32", (200,), (128, 1), (5,), to=(100,)),
    "value_a_row_f16": move("float16", (150,), (128, 1), (-7,), to=(60,), out_kind="bfloat16"),
    "value_a_row_of_a_batch": move("float8_e5m2", (2, 150), (128, 1), (1, 30), to=(0, 3)),
}


# -- arithmetic ------------------------------------------------------------------------


@tp.kernel(grid=1)
def computed(
    ctx: tp.Context,
    a: Any,
    row: Any,
    col: Any,
    out: Any,
    *,
    body: Callable[..., Any],
    shape: tuple[int, int],
) -> None:
    """out = body(ctx, a, row, col): a (m, n), row (m, 1), col (1, n)."""

    @ctx.role("compute", warpgroups=1)
    def compute() -> None:
        m, n = shape
        x = ctx.load_global(a, (0, 0), shape)
        r, c = ctx.load_global(row, (0,), (m, 1)), ctx.load_global(col, (0,), (1, n))
        ctx.store_global(out, (0, 0), body(ctx, x, r, c))


def compute(
    body: Callable[..., Any],
    reference: Callable[..., Any],
    kind: str = "float32",
    shape: tuple[int, int] = (64, 40),
    out: str = "float32",
) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        m, n = shape
        a, row, col = matrix(rng, shape, kind), matrix(rng, (m,), kind), matrix(rng, (n,), kind)
        result = np.zeros(shape, dtype(out).numpy)
        want = np.broadcast_to(reference(wide(a), wide(row)[:, None], wide(col)[None]), shape)
        program = computed.bind(a, row, col, result, body=body, shape=shape)
        return (
            program,
            result,
            want.astype(result.dtype),
            4 * tolerance(out if out != "float32" else kind),
        )

    return make


def gelu(x: Any, tanh: Callable[[Any], Any]) -> Any:
    return 0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def columns_apart(ctx: tp.Context, a: Any, r: Any, c: Any) -> Any:
    """Vectors set by columns, in place, from themselves; in 16 bits as well."""
    f = ctx.fragment(shape=(1, 40))
    f.set(c.cols(8, 32), col=0)
    f.set(c.cols(0, 8) * 3, col=32)
    f.set(f.cols(0, 16) + 1, col=8)
    g = ctx.fragment(f.to("bfloat16"))
    g.set(f.cols(24, 8).to("bfloat16"), col=0)
    g.set(g.cols(8, 16), col=24)
    g += 1
    a.set(g.to("float32"))
    a.set(f.cols(16, 24), col=16)
    return a


def columns_apart_reference(a: Array, r: Array, c: Array) -> Array:
    f = np.concatenate([c[:, 8:40], c[:, :8] * 3], axis=1)
    f[:, 8:24] = f[:, :16] + np.float32(1)
    g = f.astype(tp.bfloat16.numpy)
    g[:, :8] = f[:, 24:32]
    g[:, 24:40] = g[:, 8:24].copy()
    g += np.asarray(1, g.dtype)
    return np.concatenate([g.astype(np.float32)[:, :16], f[:, 16:40]], axis=1)


def kept(ctx: tp.Context, a: Any, r: Any, c: Any) -> Any:
    """A column vector that is computed once and used in a reduction."""
    scale = ctx.fragment(c * c + 1)
    total = ctx.fragment((a * scale).sum())
    return a * scale / (total.maximum(1) + r * 0)


def masked(ctx: tp.Context, a: Any, r: Any, c: Any) -> Any:
    return ctx.select((a > r) & ~(a >= c), a, ctx.select(r < 0, c, -1.0))


def masked_reference(a: Array, r: Array, c: Array) -> Array:
    return np.where((a > r) & ~(a >= c), a, np.where(r < 0, c, -1.0))


def causal(ctx: tp.Context, a: Any, r: Any, c: Any) -> Any:
    """What a causal mask of attention does, for rows from 5 on and columns from 16 on."""
    rows, columns = ctx.row_index(a.shape[0]), 16 + ctx.col_index(a.shape[1])
    return ctx.select((5 + rows >= columns) & (columns < 40), a, r * rows.to("float32"))


def causal_reference(a: Array, r: Array, c: Array) -> Array:
    rows, columns = np.arange(a.shape[0])[:, None], 16 + np.arange(a.shape[1])
    return np.where((5 + rows >= columns) & (columns < 40), a, r * rows)


def column_filled(ctx: tp.Context, a: Any, r: Any, c: Any) -> Any:
    f = ctx.fragment(shape=(64, 40))
    f.set(r)
    f.set(c.cols(8, 16) - 1, col=16)
    return f[...]


def column_filled_reference(a: Array, r: Array, c: Array) -> Array:
    f = np.repeat(r, 40, axis=1)
    f[:, 16:32] = c[:, 8:24] - 1
    return f


COMPUTATIONS = {
    "bias": compute(lambda ctx, a, r, c: a + c, lambda a, r, c: a + c),
    "bias_bfloat16": compute(
        lambda ctx, a, r, c: a.to("float32") + c, lambda a, r, c: a + c, "bfloat16", (128, 64)
    ),
    "scales": compute(
        lambda ctx, a, r, c: a * r * c, lambda a, r, c: a * r * c, "float16", (64, 8), "float16"
    ),
    "outer_product": compute(lambda ctx, a, r, c: r * c, lambda a, r, c: r * c),
    "column_filled": compute(column_filled, column_filled_reference),
    "columns_apart": compute(columns_apart, columns_apart_reference),
    "kept": compute(
        kept,
        lambda a, r, c: a * (c * c + 1) / np.maximum((a * (c * c + 1)).sum(1, keepdims=True), 1),
        shape=(128, 32),
    ),
    "relu": compute(lambda ctx, a, r, c: (a + c).maximum(0), lambda a, r, c: np.maximum(a + c, 0)),
    "gelu": compute(
        lambda ctx, a, r, c: gelu(a, lambda x: x.apply("tanh")), lambda a, r, c: gelu(a, np.tanh)
    ),
    "silu": compute(
        lambda ctx, a, r, c: a / (1 + (-a).apply("exp")), lambda a, r, c: a / (1 + np.exp(-a))
    ),
    "clamp": compute(
        lambda ctx, a, r, c: a.maximum(-0.5).minimum(c.maximum(0)),
        lambda a, r, c: np.minimum(np.maximum(a, -0.5), np.maximum(c, 0)),
    ),
    "select": compute(masked, masked_reference),
    **{f"causal_{m}": compute(causal, causal_reference, shape=(m, 40)) for m in (64, 128, 192)},
    "select_by_scalar": compute(
        lambda ctx, a, r, c: (
            ctx.select(ctx.block_id == 0, c, r) - ctx.select(ctx.block_id > 0, a, r)
        ),
        lambda a, r, c: c - r,
    ),
}


# -- shared tiles ----------------------------------------------------------------------


@tp.kernel(grid=2, cluster=2)
def exchanged(
    ctx: tp.Context,
    a: Any,
    out: Any,
    *,
    shape: tuple[int, int],
    order: str,
    swizzle: int,
    push: bool,
) -> None:
    """out[rank] = a[rank] + a[1 - rank] / 2: each CTA's part through the other's shared memory,
    pushed there or fetched from it.
    """
    tile = ctx.smem(shape, a.dtype, order=order, swizzle=swizzle, name="tile")
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")
    read = tp.SharedMemBarrier.allocate(ctx, 1, "read")

    @ctx.role("sum", warpgroups=1)
    def add() -> None:
        peer = 1 - ctx.cta_rank
        where = (ctx.cta_rank, 0) if 1 in shape else (ctx.cta_rank, 0, 0)
        mine = ctx.load_global(a, where, shape)
        theirs = ctx.fragment(shape=shape, dtype=a.dtype)
        ctx.store(tile[0].on(peer) if push else tile[0], mine)
        ctx.sync_warpgroup()
        with ctx.elect_one("role"):
            full.arrive_cluster(peer)
        full.wait(0)
        theirs.load(tile[0] if push else tile[0].on(peer))
        ctx.sync_warpgroup()
        with ctx.elect_one("role"):
            read.arrive_cluster(peer)
        ctx.store_global(out, where, mine.to("float32") + theirs.to("float32") / 2)
        read.wait(0)


def exchange(
    kind: str,
    shape: tuple[int, int] = (64, 32),
    order: str = "row",
    swizzle: int = 0,
    push: bool = True,
) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        full = (2, shape[0] * shape[1]) if 1 in shape else (2, *shape)
        a, out = matrix(rng, full, kind), np.zeros(full, np.float32)
        program = exchanged.bind(a, out, shape=shape, order=order, swizzle=swizzle, push=push)
        return program, out, wide(a) + wide(a[::-1]) / 2, 2e-6

    return make


_LAYOUTS = {
    "": ("row", 0),
    "_col": ("col", 0),
    "_swizzled": ("row", 64),
    "_col_swizzled": ("col", 32),
}
EXCHANGES = {
    f"{'push' if push else 'fetch'}_{kind}{name}": exchange(kind, (128, 32), *layout, push=push)
    for push in (True, False)
    for kind in ("float32", "bfloat16", "float16")
    for name, layout in _LAYOUTS.items()
} | {
    f"{'push' if push else 'fetch'}_{kind}_{'×'.join(map(str, shape))}": exchange(
        kind, shape, push=push
    )
    for push in (True, False)
    for kind in ("float32", "bfloat16")
    for shape in ((1, 48), (64, 1), (64, 24))
}


@tp.kernel(grid=1)
def through_tile(ctx: tp.Context, a: Any, out: Any, *, shape: tuple[int, int], order: str) -> None:
    """out = a, stored to a tile of this CTA and loaded from it."""
    tile = ctx.smem(shape, a.dtype, order=order, swizzle=0, name="tile")

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        where = (0,) if 1 in shape else (0, 0)
        ctx.store(tile[0], ctx.load_global(a, where, shape))
        ctx.sync_warpgroup()
        back = ctx.fragment(shape=shape, dtype=a.dtype)
        back.load(tile[0])
        ctx.store_global(out, where, back)


def local(kind: str, shape: tuple[int, int], order: str = "row") -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a = matrix(rng, (shape[0] * shape[1],) if 1 in shape else shape, kind)
        out = np.zeros_like(a)
        return through_tile.bind(a, out, shape=shape, order=order), out, a.copy(), 0

    return make


LOCALS = {
    f"local_{kind}_{'×'.join(map(str, shape))}_{order}": local(kind, shape, order)
    for kind in ("float32", "bfloat16")
    for shape in ((64, 24), (128, 32), (1, 40), (64, 1))
    for order in ("row", "col")
}


@tp.kernel(grid=1)
def turned(ctx: tp.Context, a: Any, out: Any, *, rows: int, start: int) -> None:
    """out = 2 · a[start:], one value a row, from a tile of one row."""
    tile = ctx.smem((1, rows + start), a.dtype, swizzle=0, name="tile")

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        ctx.store(tile[0], ctx.load_global(a, (0,), (1, rows + start)))
        ctx.sync_warpgroup()
        f = ctx.fragment(shape=(rows, 1), dtype=a.dtype)
        f.load(tile[0].cols(start, rows))
        ctx.store_global(out, (0,), f * 2)


def turn(kind: str, rows: int, start: int) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a = matrix(rng, (rows + start,), kind)
        out = np.zeros(rows, a.dtype)
        return turned.bind(a, out, rows=rows, start=start), out, (a[start:] * 2).astype(a.dtype), 0

    return make


TURNS = {
    f"turned_{kind}_{rows}_{start}": turn(kind, rows, start)
    for kind in ("float32", "bfloat16")
    for rows, start in ((64, 0), (64, 40), (128, 8))
}


@tp.kernel(grid=1)
def spread(ctx: tp.Context, a: Any, sums: Any, out: Any, *, kind: str, per_warp: bool) -> None:
    """out = a + sums + a's row sums, with 32 consecutive rows of 128 in each warp, by way of a
    shared tile of dtype `kind`.
    """
    shape = (128, 32)
    tile = ctx.smem(shape, kind, name="tile")[0]

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        x = ctx.load_global(a, (0, 0), shape, layout="tmem").to("float32")
        value = ctx.fragment(x + ctx.load_global(sums, (0,), (128, 1), layout="tmem") + x.sum())
        if per_warp:
            with ctx.per_warp() as warp:
                ctx.store(tile.rows(32 * warp, 32), value)
        else:
            ctx.store(tile, value)
        ctx.sync_warpgroup()
        back = ctx.fragment(shape=shape, dtype=kind, layout="tmem")
        back.load(tile)
        ctx.store_global(out, (0, 0), back)


def spread_rows(kind: str, per_warp: bool) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a, sums = (
            rng.integers(-8, 9, (128, 32)).astype(np.float32),
            rng.integers(-8, 9, 128).astype(np.float32),
        )
        out = np.zeros((128, 32), dtype(kind).numpy)
        want = a + sums[:, None] + a.sum(1, keepdims=True)
        return (
            spread.bind(a, sums, out, kind=kind, per_warp=per_warp),
            out,
            want.astype(out.dtype),
            0,
        )

    return make


@tp.kernel(grid=1)
def numbered(ctx: tp.Context, a: Any, out: Any, *, layout: str) -> None:
    """out = a · row + column, in a layout of 128 rows."""

    @ctx.role("number", warpgroups=1)
    def number() -> None:
        m, n = 128, 24
        x = ctx.load_global(a, (0, 0), (m, n), layout=layout)
        ctx.store_global(
            out,
            (0, 0),
            x * ctx.row_index(m, layout=layout).to("float32")
            + (ctx.block_id + ctx.col_index(n)).to("float32"),
        )


def number(layout: str) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a, out = matrix(rng, (128, 24), "float32"), np.zeros((128, 24), np.float32)
        return (
            numbered.bind(a, out, layout=layout),
            out,
            a * np.arange(128, dtype=np.float32)[:, None] + np.arange(24),
            1e-5,
        )

    return make


@tp.kernel(grid=1)
def doubled_by_warp(ctx: tp.Context, a: Any, out: Any, *, layout: str) -> None:
    """Rows of a warp in which some number is above 3 are doubled, and 1 is added where the sum of a
    row of it is above 8.
    """

    @ctx.role("double", warpgroups=1)
    def double() -> None:
        m, n = (128 if layout == "tmem" else 64), 24
        x = ctx.load_global(a, (0, 0), (m, n), layout=layout)
        total = x.sum()
        with ctx.per_warp():
            with ctx.when((x > 3).any()):
                x *= 2
            with ctx.when((total > 8).any() & (x < 20).any()):
                x += 1
        ctx.store_global(out, (0, 0), x)


def double_by_warp(layout: str) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        m, each = (128, 32) if layout == "tmem" else (64, 16)
        a, out = rng.integers(-2, 2, (m, 24)).astype(np.float32), np.zeros((m, 24), np.float32)
        a[each + 7, 5] = a[3 * each + 9, 23] = 5
        a[2 * each + 11] = 1
        want = a.copy()
        for rows in (want[w * each : (w + 1) * each] for w in range(4)):
            above = rows.sum(1).max() > 8
            rows *= 1 + (rows.max() > 3)
            rows += float(above and rows.min() < 20)
        return doubled_by_warp.bind(a, out, layout=layout), out, want, 0

    return make


@tp.kernel(grid=1)
def biased_by_warp(ctx: tp.Context, a: Any, bias: Any, out: Any, *, layout: str) -> None:
    """out = a + bias, where `bias` has one value a column and is read under per_warp; rows of a
    warp with a number above the bias of its column are doubled, and 1 is added where some bias is
    positive.
    """

    @ctx.role("add", warpgroups=1)
    def add() -> None:
        m, n = 128, 24
        x = ctx.load_global(a, (0, 0), (m, n), layout=layout)
        b = ctx.load_global(bias, (0,), (1, n))
        with ctx.per_warp():
            with ctx.when((x > b).any()):
                x *= 2
            x += b
            with ctx.when((b > 0).any()):
                x += 1
            with ctx.when((b.cols(8, 16) > 100).any()):
                x.fill(0)
        ctx.store_global(out, (0, 0), x)


def bias_by_warp(layout: str) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a, out = rng.integers(-9, 0, (128, 24)).astype(np.float32), np.zeros((128, 24), np.float32)
        bias = np.arange(24, dtype=np.float32)
        # the one number above the bias of its column: of warp 1, or with "wgmma" of warp 2
        a[37, 5] = 6
        want = a.copy()
        want[32 : 64 if layout == "tmem" else 48] *= 2
        if layout == "wgmma":
            want[96:112] *= 2  # the rows of warp 2 in the second 64
        return biased_by_warp.bind(a, bias, out, layout=layout), out, want + bias + 1, 0

    return make


ANY = {f"any_{layout}": double_by_warp(layout) for layout in ("wgmma", "tmem")}
BIASED = {f"bias_per_warp_{layout}": bias_by_warp(layout) for layout in ("wgmma", "tmem")}
NUMBERS = {f"numbers_{layout}": number(layout) for layout in ("wgmma", "tmem")}
SPREADS = {
    f"spread_{kind}{'_per_warp' if per_warp else ''}": spread_rows(kind, per_warp)
    for kind in ("float32", "bfloat16")
    for per_warp in (False, True)
}

CASES = [
    Case(name, make)
    for table in (MOVES, COMPUTATIONS, EXCHANGES, LOCALS, TURNS, SPREADS, NUMBERS, ANY, BIASED)
    for name, make in table.items()
]


def check(got: Array, want: Array, limit: float) -> None:
    """The output is what NumPy gives."""
    np.testing.assert_allclose(wide(got), wide(want), rtol=limit, atol=limit)
