"""Small kernels on fragments of layout "rows:T", each with what NumPy says of it (`fragments`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng, matrix, tolerance, wide


def role_of(groups: int) -> dict[str, int]:
    """A role of so many warpgroups, or of two warps."""
    return {"warpgroups": groups} if groups else {"warps": 2}


@tp.kernel(grid=2)
def scaled_by_largest(
    ctx: tp.Context,
    a: Any,
    weight: Any,
    out: Any,
    sums: Any,
    *,
    threads: int,
    groups: int,
    shape: tuple[int, int],
    col: int,
) -> None:
    """sums = Σ a of each row, out = a / (max(a) + 1) · weight + row + column, in rows of `threads`
    threads.
    """

    @ctx.role("scale", **role_of(groups))
    def scale() -> None:
        layout = f"rows:{threads}"
        agent = ctx.warpgroup_rank if groups else ctx.warp
        number, rows = groups or 2, shape[0]
        w = ctx.load_global(weight, (col,), (1, shape[1]), layout=layout)
        first = (ctx.block_id * number + agent) * rows
        for row in ctx.range(first, a.shape[0], 2 * number * rows):
            x = ctx.load_global(a, (row, col), shape, layout=layout)
            v = x.to("float32")
            ctx.store_global(sums, (row,), v.sum())
            one = (row + ctx.row_index(rows, layout=layout) if rows > 1 else row) + ctx.col_index(
                shape[1], layout=layout
            )
            v = v / (v.max() + 1) * w.to("float32")
            ctx.store_global(out, (row, col), v + one.to("float32"))


def scale(
    threads: int,
    groups: int,
    shape: tuple[int, int],
    kind: str = "bfloat16",
    size: tuple[int, int] = (13, 250),
    order: str = "row",
    pad: int = 6,
    col: int = 0,
) -> Callable[[Rng], tuple[tp.Program, Array, Array, Array, Array, float]]:
    def make(rng: Rng) -> tuple[tp.Program, Array, Array, Array, Array, float]:
        a = matrix(rng, size, kind, order, pad)
        weight = matrix(rng, size[1:], kind)
        out, sums = np.zeros_like(a), np.zeros(size[0], np.float32)
        program = scaled_by_largest.bind(
            a, weight, out, sums, threads=threads, groups=groups, shape=shape, col=col
        )
        # what lies outside the tensor is 0, for the maximum too
        seen = wide(a)[:, col : col + shape[1]]
        largest = seen.max(1, initial=-np.inf if seen.shape[1] == shape[1] else 0)
        want = seen / (largest[:, None] + 1) * wide(weight)[None, col:]
        want = want + np.arange(size[0])[:, None] + np.arange(seen.shape[1])[None, :]
        whole = np.zeros(size, np.float32)
        whole[:, col : col + shape[1]] = want
        return program, out, whole.astype(a.dtype), sums, seen.sum(1), tolerance(kind)

    return make


def first_of(
    made: Callable[[Rng], tuple[tp.Program, Array, Array, Array, Array, float]], sums: bool
) -> Callable[[Rng], Made]:
    """The case of one of the two outputs."""

    def make(rng: Rng) -> Made:
        program, out, want, total, want_total, limit = made(rng)
        return (program, total, want_total, 2e-5) if sums else (program, out, want, limit)

    return make


SCALES = {
    "warpgroup_a_row": scale(128, 1, (1, 1024), size=(5, 1000)),
    "warpgroup_a_row_of_two": scale(128, 2, (1, 1024), size=(9, 1024), pad=0),
    "two_warps_a_row": scale(64, 1, (4, 512), size=(9, 500), pad=4),
    "two_warps_a_row_odd": scale(64, 2, (2, 512), size=(9, 397), pad=0),
    "warp_a_row": scale(32, 1, (8, 256)),
    "warp_a_row_float": scale(32, 1, (4, 256), "float32", pad=2),
    "warp_a_row_in_warps": scale(32, 0, (2, 256), "float16"),
    "eight_threads_a_row": scale(8, 1, (16, 256)),
    "eight_threads_a_row_of_warps": scale(8, 0, (8, 256), pad=0),
    "thread_a_row": scale(1, 0, (32, 16), "float32", (40, 16), pad=0),
    "from_column_8": scale(8, 1, (16, 64), size=(20, 72), pad=0, col=8),
    "from_column_3": scale(8, 1, (16, 64), size=(20, 67), pad=0, col=3),
    "column_major": scale(4, 1, (32, 32), "float32", (36, 30), "col", 0),
    "of_8_bits": scale(4, 1, (32, 64), "float8_e4m3", (36, 60), pad=0),
}


@tp.kernel(grid=1)
def cut(ctx: tp.Context, a: Any, out: Any, *, threads: int, dtype: str) -> None:
    """out = a with the second quarter of its columns, doubled, in place of the last, and the third
    negated; the sums of rows in place of the first.
    """

    @ctx.role("cut", warpgroups=1)
    def turn() -> None:
        layout, step = f"rows:{threads}", 8 * threads
        rows = 128 // threads
        x = ctx.load_global(a, (0, 0), (rows, 4 * step), layout=layout)
        f = ctx.fragment(shape=(rows, 4 * step), dtype=dtype, layout=layout)
        f[...] = x
        f.set(f.cols(step, step) * 2, col=3 * step)
        f.set(-f.cols(2 * step, step), col=2 * step)
        total = ctx.fragment(f.cols(step, step).to("float32").sum() + f.max().to("float32"))
        first = ctx.fragment(shape=(rows, step), dtype="float32", layout=layout)
        first.set(total)
        f.set(first, col=0)
        ctx.store_global(out, (0, 0), f)


def cut_columns(threads: int, kind: str) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        rows, step = 128 // threads, 8 * threads
        a = rng.integers(-4, 4, (rows, 4 * step)).astype(np.float32)
        small = a.astype(tp.dtype(kind).numpy)
        out = np.zeros_like(small)
        want = a.copy()
        want[:, 3 * step :] = 2 * want[:, step : 2 * step]
        want[:, 2 * step : 3 * step] *= -1
        total = want[:, step : 2 * step].sum(1) + want.max(1)
        want[:, :step] = total[:, None]
        return cut.bind(small, out, threads=threads, dtype=kind), out, want, 0

    return make


CUTS = {
    f"cut_{threads}_{kind}": cut_columns(threads, kind)
    for threads, kind in ((64, "float32"), (16, "float16"), (2, "float32"))
}


@tp.kernel(grid=1)
def halved_in_place(ctx: tp.Context, a: Any, *, threads: int, rows: int) -> None:
    """a = a / 2, with no barrier between the load and the store of an element."""

    @ctx.role("halve", warpgroups=1)
    def halve() -> None:
        shape, layout = (rows, 16 * threads), f"rows:{threads}"
        for row in ctx.range(0, a.shape[0], rows):
            x = ctx.load_global(a, (row, 0), shape, layout=layout)
            ctx.store_global(a, (row, 0), x.to("float32") / 2)


def halve(threads: int, rows: int) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a = matrix(rng, (2 * rows, 16 * threads), "bfloat16")
        want = (wide(a) / 2).astype(a.dtype)
        return halved_in_place.bind(a, threads=threads, rows=rows), a, want, 0

    return make


IN_PLACE = {
    f"halve_{threads}": halve(threads, rows) for threads, rows in ((128, 1), (64, 2), (8, 16))
}


@tp.kernel(grid=2, cluster=2)
def sums_of_parts(
    ctx: tp.Context, a: Any, out: Any, *, threads: int, groups: int, shape: tuple[int, int]
) -> None:
    """out = a + Σ a of each row, of which each warpgroup (or warp) of a cluster has a part."""
    number = groups or 2
    parts, (rows, width), layout = 2 * number, shape, f"rows:{threads}"
    sums = ctx.smem((2 * parts * rows, 1), "float32", swizzle=0, name="sums")[0]

    @ctx.role("parts", **role_of(groups))
    def part_of_rows() -> None:
        part = ctx.cta_rank * number + (ctx.warpgroup_rank if groups else ctx.warp)
        x = ctx.load_global(a, (0, part * width), shape, layout=layout)
        mine = x.to("float32").sum()
        for cta in range(2):
            ctx.store(sums.rows(part * rows, rows).on(cta), mine)
        ctx.cluster_arrive()
        ctx.cluster_wait()
        total = ctx.fragment(shape=(rows, 1), layout=layout)
        total.fill(0)
        for other in range(parts):
            theirs = ctx.fragment(shape=(rows, 1), layout=layout)
            theirs.load(sums.rows(other * rows, rows))
            total += theirs
        ctx.store_global(out, (0, part * width), x.to("float32") + total)


def sum_parts(threads: int, groups: int, shape: tuple[int, int]) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a = matrix(rng, (shape[0], 2 * (groups or 2) * shape[1]), "float32")
        out = np.zeros_like(a)
        program = sums_of_parts.bind(a, out, threads=threads, groups=groups, shape=shape)
        return program, out, a + a.sum(1, keepdims=True), 1e-4

    return make


PARTS = {
    "parts_of_warpgroups": sum_parts(128, 2, (1, 1024)),
    "parts_of_two_warps": sum_parts(64, 1, (4, 512)),
    "parts_of_a_warp": sum_parts(32, 1, (8, 256)),
    "parts_of_eight_threads": sum_parts(8, 2, (32, 64)),
    "parts_in_warps": sum_parts(16, 0, (4, 128)),
}


@tp.kernel(grid=1)
def largest_of_rows(
    ctx: tp.Context, a: Any, out: Any, *, shape: tuple[int, int], layout: str
) -> None:
    """out = the maximum of each row of a."""

    @ctx.role("largest", warpgroups=1)
    def largest() -> None:
        x = ctx.load_global(a, (0, 0), shape, layout=layout)
        ctx.store_global(out, (0,), x.max())


def largest_among_nans(layout: str, shape: tuple[int, int]) -> Callable[[Rng], Made]:
    """Rows with some NaNs, of NaNs alone, and of -inf alone."""

    def make(rng: Rng) -> Made:
        a = matrix(rng, shape, "float32")
        a[:, 1::2] = np.nan
        a[3], a[5] = np.nan, -np.inf
        out = np.zeros(shape[0], np.float32)
        want = np.fmax.reduce(a, axis=1, initial=-np.inf)
        return largest_of_rows.bind(a, out, shape=shape, layout=layout), out, want, 0

    return make


LARGEST = {
    f"largest_among_nans_{layout.replace(':', '_')}": largest_among_nans(layout, shape)
    for layout, shape in (("wgmma", (64, 64)), ("rows:8", (16, 128)), ("rows:128", (8, 1024)))
}

CASES = [
    *(
        Case(name + ("_sums" if sums else ""), first_of(make, sums))
        for name, make in SCALES.items()
        for sums in (False, True)
    ),
    *(
        Case(name, make)
        for table in (CUTS, IN_PLACE, PARTS, LARGEST)
        for name, make in table.items()
    ),
]
