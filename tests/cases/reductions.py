"""Small kernels that reduce fragments, each with what NumPy says of it. Sums are wanted bit for
bit: their references add element by element in the order that the language states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng
from tilepipe.ir.dtypes import dtype

ZERO = np.float32(0)


def values(rng: Rng, shape: tuple[int, int], kind: str) -> Array:
    """Numbers whose sums are rounded; of integers, of all their bits."""
    t = dtype(kind)
    if t.is_integer:
        low = -(2 ** (t.bits - 1)) if t.kind == "int" else 0
        return rng.integers(low, low + 2**t.bits, shape, t.numpy)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape)).astype(t.numpy)


def in_turn(numbers: Array) -> Any:
    """float32 additions from 0 on, one after the other."""
    total = ZERO
    for x in numbers:
        total = np.float32(total + x)
    return total


def neighbours_first(numbers: list[Any]) -> Any:
    """2^k numbers: each with its neighbour, the results with their neighbours, and so on."""
    while len(numbers) > 1:
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        numbers = [np.float32(a + b) for a, b in pairs]
    return numbers[0]


def row_sum(row: Array, layout: str) -> Any:
    """The sum of a row: of what each thread holds, then of the threads."""
    columns = np.arange(len(row))
    if not layout.startswith("rows:"):
        return neighbours_first([in_turn(row[columns % 8 // 2 == t]) for t in range(4)])
    threads = int(layout[5:])
    sums = []
    for t in range(threads):
        mine = row[columns // 8 % threads == t]
        chain = [in_turn(mine[np.arange(len(mine)) % 4 == c]) for c in range(4)]
        sums.append(np.float32((chain[0] + chain[2]) + (chain[1] + chain[3])))
    return neighbours_first(sums)


def of_rows(a: Array, op: str, layout: str) -> Array:
    """The reference: of each row, in the dtype of `a`."""
    if op != "sum":
        found: Array = np.maximum.reduce(a, axis=1) if op == "max" else np.minimum.reduce(a, axis=1)
        return found
    if a.dtype.kind in "iu":
        wrapped: Array = a.sum(axis=1, dtype=a.dtype)  # round, as the GPU's
        return wrapped
    return np.array([row_sum(row.astype(np.float32), layout) for row in a]).astype(a.dtype)


@tp.kernel(grid=1)
def rows_reduced(
    ctx: tp.Context, a: Any, out: Any, *, op: str, shape: tuple[int, int], layout: str, warps: int
) -> None:
    """out = `op` of each row of a; two warps take turns of `shape`, a warpgroup has all."""

    @ctx.role("reduce", **({"warps": warps} if warps else {"warpgroups": 1}))
    def reduce() -> None:
        first = ctx.warp * shape[0] if warps else 0
        x = ctx.load_global(a, (first, 0), shape, layout=layout)
        found = {"sum": x.sum, "max": x.max, "min": x.min}[op]()
        ctx.store_global(out, (first,), found.to(out.dtype))


def rows(
    op: str, layout: str, shape: tuple[int, int], kind: str = "float32", warps: int = 0
) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a = values(rng, (shape[0] * max(warps, 1), shape[1]), kind)
        out = np.zeros(len(a), np.float32 if a.dtype.kind not in "iu" else a.dtype)
        program = rows_reduced.bind(a, out, op=op, shape=shape, layout=layout, warps=warps)
        return program, out, of_rows(a, op, layout).astype(out.dtype), 0

    return make


ROWS = {
    "wgmma": ("wgmma", (64, 40), 0),
    "tmem": ("tmem", (128, 24), 0),
    "thread_a_row": ("rows:1", (32, 24), 2),
    "eight_threads_a_row": ("rows:8", (16, 128), 0),
    "warp_a_row": ("rows:32", (2, 512), 2),
    "two_warps_a_row": ("rows:64", (4, 512), 0),
    "four_warps_a_row": ("rows:128", (2, 2048), 0),
}
REDUCED = {
    f"row_{op}_{name}_{kind}": rows(op, layout, shape, kind, warps)
    for name, (layout, shape, warps) in ROWS.items()
    for op in ("sum", "max", "min")
    for kind in ("float32", "bfloat16", "int32", "uint32")
    # a maximum or a minimum of 16-bit floats is that of float32
    if (kind, op) not in (("bfloat16", "max"), ("bfloat16", "min"))
}


@tp.kernel(grid=1)
def extremes_of_rows(
    ctx: tp.Context, a: Any, out: Any, *, shape: tuple[int, int], layout: str
) -> None:
    """out = the bits of the greatest, and of the least, number of each row of a."""

    @ctx.role("extremes", warpgroups=1)
    def extremes() -> None:
        x = ctx.load_global(a, (0, 0), shape, layout=layout)
        ctx.store_global(out, (0, 0), x.max().to("float32").bitcast("uint32"))
        ctx.store_global(out, (1, 0), x.min().to("float32").bitcast("uint32"))


def extremes_of_zeros_and_nans(
    layout: str, shape: tuple[int, int], kind: str = "float32"
) -> Callable[[Rng], Made]:
    """Rows with some NaNs, of NaNs alone, of zeros of both signs, and of one infinity."""

    def make(rng: Rng) -> Made:
        a = rng.standard_normal(shape).astype(tp.dtype(kind).numpy).astype(np.float32)
        a[:, 1::2] = np.nan
        a[1], a[3], a[5] = np.nan, -np.inf, np.inf
        a[0], a[0, 7], a[2], a[2, -1] = 0, -0.0, -0.0, 0
        a[4], a[4, 0] = np.nan, -0.0
        greatest = np.fmax.reduce(a, axis=1, initial=-np.inf)
        least = np.fmin.reduce(a, axis=1, initial=np.inf)
        greatest[[0, 2, 4]], least[[0, 2, 4]] = [0, 0, -0.0], -0.0
        out = np.zeros((2, shape[0]), np.uint32)
        want = np.stack([greatest, least]).astype(np.float32).view(np.uint32)
        small = a.astype(tp.dtype(kind).numpy)
        return extremes_of_rows.bind(small, out, shape=shape, layout=layout), out, want, 0

    return make


EXTREMES = {
    f"extremes_of_zeros_and_nans_{layout.replace(':', '_')}": extremes_of_zeros_and_nans(
        layout, shape
    )
    for layout, shape in (("wgmma", (64, 16)), ("rows:8", (16, 128)), ("rows:128", (8, 1024)))
} | {
    # of pairs as they stand
    f"extremes_of_zeros_and_nans_{layout.replace(':', '_')}_{kind}": extremes_of_zeros_and_nans(
        layout, shape, kind
    )
    for layout, shape, kind in (
        ("rows:8", (16, 128), "bfloat16"),
        ("rows:128", (8, 2048), "float16"),
    )
}


@tp.kernel(grid=1)
def found_in_rows(
    ctx: tp.Context, a: Any, out: Any, *, op: str, shape: tuple[int, int], layout: str, warps: int
) -> None:
    """out = the greatest or least number of each row of a, then its column."""

    @ctx.role("find", **({"warps": warps} if warps else {"warpgroups": 1}))
    def find() -> None:
        first = ctx.warp * shape[0] if warps else 0
        x = ctx.load_global(a, (first, 0), shape, layout=layout)
        best, column = x.argmax() if op == "argmax" else x.argmin()
        ctx.store_global(out, (0, first), best.to(out.dtype))
        ctx.store_global(out, (1, first), column.to(out.dtype))


def found(
    op: str, layout: str, shape: tuple[int, int], kind: str = "float32", warps: int = 0
) -> Callable[[Rng], Made]:
    """Rows with several best elements, in any columns."""

    def make(rng: Rng) -> Made:
        rows, cols = shape[0] * max(warps, 1), shape[1]
        a = values(rng, (rows, cols), kind)
        best = a.max() if op == "argmax" else a.min()
        for row in range(0, rows, 2):
            a[row, rng.integers(0, cols, 3)] = best
        if a.dtype.kind not in "iu":
            nan, least = np.float32("nan"), np.float32("-inf" if op == "argmax" else "inf")
            a[:, ::5], a[1] = nan, nan
            if rows > 5:
                a[3], a[3, :2], a[5], a[5, -3], a[5, 3] = least, nan, -0.0, 0, nan
        out = np.zeros((2, rows), a.dtype if a.dtype.kind in "iu" else np.float32)
        program = found_in_rows.bind(a, out, op=op, shape=shape, layout=layout, warps=warps)
        return program, out, np.stack(first_best(a, op)).astype(out.dtype), 0

    return make


def first_best(a: Array, op: str) -> tuple[Array, Array]:
    """The reference: (values, columns), where a NaN counts as the infinity that loses."""
    if a.dtype.kind not in "iu":
        a = a.astype(np.float32)
        a = np.where(np.isnan(a), np.float32("-inf" if op == "argmax" else "inf"), a)
    at = a.argmax(axis=1) if op == "argmax" else a.argmin(axis=1)
    return a[np.arange(len(a)), at], at


FOUND = {
    f"row_{op}_{name}_{kind}": found(op, layout, shape, kind, warps)
    for name, (layout, shape, warps) in ROWS.items()
    for op in ("argmax", "argmin")
    for kind in ("float32", "bfloat16", "int32", "uint32")
    # layouts differ in which threads meet, and dtypes in instructions
    if kind == "float32" or name in ("wgmma", "warp_a_row", "four_warps_a_row")
}


def rows_of_holders(layout: str, rows: int, threads: int) -> list[list[int]]:
    """The rows that threads hold which hold different rows, in order, each from the first on."""
    if layout.startswith("rows:"):
        groups = threads // int(layout[5:])
        return [list(range(g, rows, groups)) for g in range(groups)]
    warp, block = (32, 16) if layout == "tmem" else (16, 64)
    return [
        [block * i + warp * w + 8 * h + lane for i in range(rows // 64) for h in range(2)]
        for w in range(4)
        for lane in range(8)
    ]


def column_sum(column: Array, layout: str, threads: int) -> Any:
    """The sum of a column: of what each thread holds, then of the threads."""
    holders = rows_of_holders(layout, len(column), threads)
    return neighbours_first([in_turn(column[mine]) for mine in holders])


def whole_sum(a: Array, layout: str, threads: int) -> Any:
    """The sum of a value: of the four sums of each thread, then of the threads."""
    rows, cols = a.shape
    if rows == 1:
        return row_sum(a[0], layout)
    if cols == 1:
        return column_sum(a[:, 0], layout, threads)
    columns, sums = np.arange(cols), []
    for mine in rows_of_holders(layout, rows, threads):
        if layout.startswith("rows:"):
            of_row = int(layout[5:])
            for t in range(of_row):
                held = a[np.ix_(mine, columns[columns // 8 % of_row == t])]
                chain = [in_turn(held[:, c::4].ravel()) for c in range(4)]
                sums.append(np.float32((chain[0] + chain[2]) + (chain[1] + chain[3])))
            continue
        for t in range(4):
            held = a[np.ix_(mine, columns[columns % 8 // 2 == t])]
            chain = [in_turn(held[h::2, low::2].ravel()) for h in range(2) for low in range(2)]
            sums.append(np.float32((chain[0] + chain[2]) + (chain[1] + chain[3])))
    return neighbours_first(sums)


@tp.kernel(grid=1)
def columns_reduced(
    ctx: tp.Context, a: Any, out: Any, *, op: str, shape: tuple[int, int], layout: str, warps: int
) -> None:
    """out = `op` of each column of a; warps have different columns, a warpgroup has all."""

    @ctx.role("reduce", **({"warps": warps} if warps else {"warpgroups": 1}))
    def reduce() -> None:
        first = ctx.warp * shape[1] if warps else 0
        x = ctx.load_global(a, (0, first), shape, layout=layout)
        found = {"sum": x.sum, "max": x.max, "min": x.min}[op](axis=0)
        # every thread holds the results of its columns
        ctx.store_global(out, (0, first), x.to(out.dtype) - found.to(out.dtype))
        ctx.store_global(out, (shape[0], first), found.to(out.dtype))


def columns(
    op: str, layout: str, shape: tuple[int, int], kind: str = "float32", warps: int = 0
) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a = values(rng, (shape[0], shape[1] * max(warps, 1)), kind)
        wide = np.float32 if a.dtype.kind not in "iu" else a.dtype
        if op != "sum":
            found = a.max(axis=0) if op == "max" else a.min(axis=0)
        elif a.dtype.kind in "iu":
            found = a.sum(axis=0, dtype=a.dtype)
        else:
            threads = 32 if warps else 128
            by_column = a.astype(np.float32).T
            found = np.array([column_sum(column, layout, threads) for column in by_column])
        out = np.zeros((shape[0] + 1, a.shape[1]), wide)
        rounded = found.astype(a.dtype).astype(wide)
        want = np.concatenate([a.astype(wide) - rounded, rounded[None]])
        program = columns_reduced.bind(a, out, op=op, shape=shape, layout=layout, warps=warps)
        return program, out, want, 0

    return make


COLUMNS = {
    f"column_{op}_{name}_{kind}": columns(op, layout, shape, kind, warps)
    for name, (layout, shape, warps) in {
        "wgmma": ("wgmma", (128, 24), 0),
        "tmem": ("tmem", (128, 64), 0),
        "wide": ("wgmma", (64, 128), 0),
        "eight_threads_a_row": ("rows:8", (32, 128), 0),
        "eight_threads_a_row_of_warps": ("rows:8", (12, 64), 2),
        "warp_a_row": ("rows:32", (8, 256), 0),
        "two_warps_a_row": ("rows:64", (4, 1024), 0),
        "four_warps_a_row": ("rows:128", (3, 1024), 0),
    }.items()
    for op in ("sum", "max", "min")
    for kind in ("float32", "bfloat16", "uint32")
    if op == "sum" or name == "wgmma"
}


@tp.kernel(grid=1)
def tile_reduced(
    ctx: tp.Context, a: Any, out: Any, *, op: str, shape: tuple[int, int], layout: str, groups: int
) -> None:
    """out = `op` of the tile that each warpgroup, or the one warp, has of a."""

    @ctx.role("reduce", **({"warpgroups": groups} if groups else {"warps": 1}))
    def reduce() -> None:
        first = ctx.warpgroup_rank * shape[0] if groups else 0
        at = (first, 0) if 1 not in shape else (0,)
        x = ctx.load_global(a, at, shape, layout=layout)
        found = {"sum": x.sum, "max": x.max, "min": x.min}[op](axis=None)
        with ctx.when(ctx.lane == 0):
            # each warp has it
            warp = ctx.warp if groups else 0
            ctx.store(out[warp], found.to(out.dtype))


def tiles(
    op: str, layout: str, shape: tuple[int, int], kind: str = "float32", groups: int = 1
) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a = values(rng, (shape[0] * max(groups, 1), shape[1]), kind)
        if op == "sum" and a.dtype.kind == "i":  # a scalar, which must fit
            a //= shape[0] * shape[1]
        parts = a.reshape(max(groups, 1), *shape)
        wide = np.float32 if a.dtype.kind not in "iu" else a.dtype
        if op != "sum":
            found = parts.max(axis=(1, 2)) if op == "max" else parts.min(axis=(1, 2))
        elif a.dtype.kind in "iu":
            found = parts.sum(axis=(1, 2), dtype=a.dtype)
        else:
            threads = 128 if groups else 32
            each = parts.astype(np.float32)
            found = np.array([whole_sum(part, layout, threads) for part in each])
        want = np.repeat(found.astype(a.dtype).astype(wide), 4 if groups else 1)
        out = np.zeros(len(want), wide)
        tensor = a if 1 not in shape else a.reshape(-1)
        program = tile_reduced.bind(tensor, out, op=op, shape=shape, layout=layout, groups=groups)
        return program, out, want, 0

    return make


TILES = {
    f"tile_{op}_{name}_{kind}": tiles(op, layout, shape, kind, groups)
    for name, (layout, shape, groups) in {
        "wgmma": ("wgmma", (64, 40), 2),
        "tmem": ("tmem", (128, 16), 1),
        "rows": ("wgmma", (128, 1), 1),
        "row": ("wgmma", (1, 64), 1),
        "warp_a_row": ("rows:32", (8, 256), 1),
        "warp_alone": ("rows:8", (8, 64), 0),
        "two_warps_a_row": ("rows:64", (4, 512), 2),
        "rows_of_two_warps": ("rows:64", (4, 1), 1),
        "row_of_two_warps": ("rows:64", (1, 512), 1),
        "rows_of_eight_threads": ("rows:8", (32, 1), 1),
        "four_warps_a_row": ("rows:128", (2, 1024), 1),
    }.items()
    for op in ("sum", "max", "min")
    for kind in ("float32", "bfloat16", "int32")
    if op == "sum" or name in ("wgmma", "two_warps_a_row")
}

CASES = [
    Case(name, make)
    for table in (REDUCED, EXTREMES, FOUND, COLUMNS, TILES)
    for name, make in table.items()
]
