"""Stores of the first rows of fragments, as groups of rows that begin anywhere need them, each with
what NumPy says of it (`fragments`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng


@tp.kernel(grid=1)
def some_rows(
    ctx: tp.Context,
    a: Any,
    counts: Any,
    out: Any,
    *,
    shape: tuple[int, int],
    layout: str,
    first: int,
    reduce: Any,
) -> None:
    """Of each fragment of `a`, doubled, as many rows as `counts` says go to `out`, one group after
    the other from row `first` on, and from column 4 on.
    """

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        at = ctx.var(first)
        rows, cols = shape
        for i in ctx.range(counts.shape[0]):
            place = (rows * i, 0) if cols > 1 else (rows * i,)
            x = ctx.load_global(a, place, shape, layout=layout)
            count = ctx.load(counts[i])
            to = (at, 4) if cols > 1 else (at,)
            ctx.store_global(out, to, x.to("float32") * 2, rows=count, reduce=reduce)
            at.set(at + ctx.min(ctx.max(count, 0), rows))


def store(
    kind: str,
    shape: tuple[int, int],
    layout: str = "wgmma",
    *,
    first: int = 0,
    boxed: bool = False,
    reduce: str | None = None,
) -> Callable[[Rng], Made]:
    """Groups with no rows, with fewer than a fragment has, with as many, and with more; the last
    reaches beyond the tensor. `first`: the row of the first; what lies before the tensor is
    clipped.
    """

    def make(rng: Rng) -> Made:
        rows, cols = shape
        counts = np.array([5, rows, 0, 1, -7, rows - 1, rows + 99, rows], np.int32)
        inside = [int(x) for x in np.clip(counts, 0, rows)]
        height = first + sum(inside) - rows // 2
        width = cols - 2 if cols > 1 else 1
        a = rng.integers(-4, 5, (rows * len(counts), cols)).astype(tp.dtype(kind).numpy)
        # Columns beside those that the kernel sees: rows have strides that TMA takes.
        out = np.full((height, 8 + cols if cols > 1 else 1), 9).astype(a.dtype)[:, : 4 + width]
        want, at = out.astype(np.float32), first
        for i, count in enumerate(inside):
            lo = max(-at, 0)
            hi = max(min(count, height - at), lo)
            part = 2 * a[rows * i + lo : rows * i + hi, :width].astype(np.float32)
            there = want[at + lo : at + hi, 4 if cols > 1 else 0 :]
            there[...] = there + part if reduce else part
            at += count
        given: Any = a if cols > 1 else a[:, 0]
        result = out if cols > 1 else out[:, 0]
        program = some_rows.bind(
            given,
            counts,
            tp.tensor_map(result, box=(8, 8)) if boxed else result,
            shape=shape,
            layout=layout,
            first=first,
            reduce=reduce,
        )
        return program, out, want.astype(out.dtype), 0

    return make


CASES = [
    Case(f"first_rows_{name}", make)
    for name, make in {
        "float": store("float32", (64, 24)),
        "pairs": store("bfloat16", (128, 16), boxed=True),
        "8_bits": store("float8_e4m3", (64, 16)),
        "before_the_start": store("float16", (64, 24), first=-9),
        "far_before_the_start": store("float32", (64, 8), first=-80),
        "spread": store("bfloat16", (128, 16), "tmem", boxed=True),
        "a_value_a_row": store("float32", (64, 1)),
        "a_value_a_row_spread": store("bfloat16", (128, 1), "tmem"),
        "of_threads": store("bfloat16", (16, 64), "rows:8"),
        "of_threads_float": store("float32", (4, 256), "rows:32", first=-3),
        "a_value_a_row_of_threads": store("float32", (16, 1), "rows:8"),
        "added": store("float32", (64, 16), reduce="add"),
        "added_pairs": store("bfloat16", (64, 16), boxed=True, reduce="add"),
        "added_a_value_a_row": store("float32", (64, 1), reduce="add"),
    }.items()
]
