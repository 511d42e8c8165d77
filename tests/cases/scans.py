"""Sums of rows up to each column, each with what NumPy says of it: bit for bit, by references that
add element by element in the order that the language states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng
from tests.cases.reductions import values

ZERO = np.float32(0)


def scanned_row(row: Array, layout: str) -> list[Any]:
    """The sums of a row, which threads hold in vectors of `width` columns, in turn."""
    threads, width = (int(layout[5:]), 8) if layout.startswith("rows:") else (4, 2)
    sums: list[Any] = []
    total = ZERO
    for first in range(0, len(row), threads * width):
        mine = row[first : first + threads * width].reshape(threads, width).tolist()
        for vector in mine:
            for i in range(1, width):
                vector[i] = np.float32(np.float32(vector[i - 1]) + np.float32(vector[i]))
        upto = [np.float32(vector[-1]) for vector in mine]
        step = 1
        while step < threads:
            upto = [upto[t] + upto[t - step] if t >= step else upto[t] for t in range(threads)]
            step *= 2
        for t, vector in enumerate(mine):
            before = total + upto[t - 1] if t else total
            sums += [before + np.float32(x) for x in vector]
        total = total + upto[-1]
    return sums


def scanned(a: Array, layout: str) -> Array:
    if a.dtype.kind in "iu":
        wrapped: Array = a.cumsum(axis=1, dtype=a.dtype)
        return wrapped
    return np.array([scanned_row(row.astype(np.float32), layout) for row in a]).astype(a.dtype)


@tp.kernel(grid=1)
def rows_scanned(
    ctx: tp.Context, a: Any, out: Any, *, shape: tuple[int, int], layout: str, warps: int
) -> None:
    """out = the sums of each row of a; two warps take turns of `shape`, a warpgroup has all."""

    @ctx.role("scan", **({"warps": warps} if warps else {"warpgroups": 1}))
    def scan() -> None:
        first = ctx.warp * shape[0] if warps else 0
        at = (first, 0) if len(a.shape) == 2 else (0,)
        ctx.store_global(out, at, ctx.load_global(a, at, shape, layout=layout).cumsum())


def rows(
    layout: str, shape: tuple[int, int], kind: str = "float32", warps: int = 0
) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a = values(rng, (shape[0] * max(warps, 1), shape[1]), kind)
        want = scanned(a, layout)
        if shape[0] == 1 and not layout.startswith("rows:"):
            a, want = a[0], want[0]
        out = np.zeros_like(a)
        program = rows_scanned.bind(a, out, shape=shape, layout=layout, warps=warps)
        return program, out, want, 0

    return make


@tp.kernel(grid=1)
def compacted(ctx: tp.Context, a: Any, out: Any) -> None:
    """Where the numbers of each row that are above 0 go, of which others are left out; by warps."""

    @ctx.role("place", warpgroups=1)
    def place() -> None:
        x = ctx.load_global(a, (0, 0), (64, 24))
        with ctx.per_warp():
            kept = (x > 0).to("int32")
            where = kept.cumsum()
            x.set(ctx.select(x > 0, (where - kept).to("float32"), -1.0))
        ctx.store_global(out, (0, 0), x)


def places(rng: Rng) -> Made:
    a, out = rng.standard_normal((64, 24)).astype(np.float32), np.zeros((64, 24), np.float32)
    want = np.where(a > 0, (a > 0).cumsum(axis=1) - (a > 0), -1)
    return compacted.bind(a, out), out, want.astype(np.float32), 0


ROWS = {
    "wgmma": ("wgmma", (64, 40), 0),
    "tmem": ("tmem", (128, 24), 0),
    "one_row": ("wgmma", (1, 72), 0),
    "thread_a_row": ("rows:1", (32, 24), 2),
    "eight_threads_a_row": ("rows:8", (16, 128), 0),
    "warp_a_row": ("rows:32", (2, 512), 2),
}
CASES = [
    Case(name, make)
    for name, make in {
        **{
            f"scan_{name}_{kind}": rows(layout, shape, kind, warps)
            for name, (layout, shape, warps) in ROWS.items()
            for kind in ("float32", "bfloat16", "int32", "uint32")
            if name in ("wgmma", "warp_a_row") or kind in ("float32", "bfloat16")
        },
        "scan_wgmma_float16": rows("wgmma", (64, 16), "float16"),
        "scan_places": places,
    }.items()
]
