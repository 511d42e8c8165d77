"""Coordinates of `load_global` and `store_global`: rows and columns are clipped at the edges of a
tensor; an index of a dimension before them that is outside is a fault.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp


def program(
    parts: np.ndarray[Any, Any],
    coords: tuple[int, ...],
    op: str = "store",
    shape: tuple[int, int] = (64, 8),
    layout: str = "wgmma",
    rows: int | None = None,
) -> tp.Program:
    @tp.kernel()
    def kernel(ctx: tp.Context, parts: Any, extra: Any, rows: Any) -> None:
        @ctx.role("rows", warpgroups=1)
        def body() -> None:
            where = (coords[0] + extra, *coords[1:])
            if op == "load":
                ctx.load_global(parts, where, shape, layout=layout)
                return
            f = ctx.fragment(shape=shape, dtype="float32", layout=layout)
            f.fill(1)
            count = {} if shape[0] == 1 else {"rows": rows}
            ctx.store_global(parts, where, f, reduce="add" if op == "add" else None, **count)

    return kernel.bind(parts, 0, shape[0] if rows is None else rows)


@pytest.mark.parametrize("op", ["store", "load", "add"])
@pytest.mark.parametrize(
    ("shape", "layout"),
    [((64, 8), "wgmma"), ((1, 8), "wgmma"), ((4, 256), "rows:32"), ((1, 1024), "rows:128")],
)
@pytest.mark.parametrize(("index", "outside"), [(2, True), (-1, True), (1, False)])
def test_an_index_outside_is_a_fault(
    op: str, shape: tuple[int, int], layout: str, index: int, outside: bool
) -> None:
    parts = np.zeros((2, 64, 1024), np.float32)
    made = program(parts, (index, 0, 0), op, shape, layout)
    if not outside:
        made.run()
        assert parts[0].sum() == 0
        assert parts[1].sum() == (0 if op == "load" else shape[0] * shape[1])
        return
    words = (
        rf"coordinates \({index}, 0, 0\) of tensor 'parts' of shape \(2, 64, 1024\), whose"
        r" dimension 0 has indices 0\.\.1\. (?s:.*)guard the access with ctx\.when"
    )
    with pytest.raises(tp.SimFault, match=words) as caught:
        made.run()
    assert caught.value.loc is not None
    assert caught.value.loc.source.startswith(("ctx.store_global(", "ctx.load_global("))
    verdict = program(parts, (index, 0, 0), op, shape, layout).check()
    assert "indices 0..1." in verdict.faults[0].message


@pytest.mark.parametrize("coords", [(0, 64, 0), (0, -64, 0), (0, 0, 1024), (1, 99, 999)])
def test_a_whole_fragment_beyond_rows_or_columns_is_clipped(coords: tuple[int, ...]) -> None:
    parts = np.zeros((2, 64, 1024), np.float32)
    run = program(parts, coords).run()
    assert not parts.any()
    words = (
        " has no effect: at each execution the whole fragment was outside of tensor 'parts' of"
        f" shape (2, 64, 1024), first at coordinates {coords}."
    )
    assert [words in text for text in run.advice] == [True]
    verdict = program(parts, coords).check()
    assert verdict.verdict == "verified"
    assert [words in text for text in verdict.advice] == [True]


@pytest.mark.parametrize("op", ["store", "load"])
def test_advice_is_of_lines_that_are_outside_each_time(op: str) -> None:
    """CTAs and unrolled rounds beyond the edge are normal; a vector of one value a CTA, too."""

    @tp.kernel(grid=3)
    def kernel(ctx: tp.Context, out: Any, losses: Any, offset: Any) -> None:
        @ctx.role("rows", warpgroups=1)
        def body() -> None:
            f = ctx.fragment(shape=(64, 8), dtype="float32")
            f.fill(1)
            for j in range(2):
                where = (64 * ctx.block_id, 8 * j)
                if op == "load":
                    f.set(ctx.load_global(out, where, (64, 8)))
                else:
                    ctx.store_global(out, where, f)
            one = ctx.fragment(shape=(1, 1), dtype="float32", layout="rows:128")
            one.fill(1)
            ctx.store_global(losses, (ctx.block_id + offset,), one)

    def bound(offset: int) -> tp.Program:
        out, losses = np.zeros((64, 8), np.float32), np.zeros(2, np.float32)
        return kernel.bind(out, losses, offset)

    assert bound(0).run().advice == []
    assert bound(1).check().advice == []
    for advice in (bound(1000).run().advice, bound(1000).check().advice):
        assert len(advice) == 1
        assert "'losses' of shape (2,), first at coordinates (1000,)" in advice[0]


def test_an_index_of_no_rows_is_not_used() -> None:
    parts = np.zeros((2, 64, 1024), np.float32)
    program(parts, (5, 0, 0), rows=0).run()
    assert not parts.any()


def test_each_index_is_checked() -> None:
    parts = np.zeros((2, 3, 64, 8), np.float32)
    program(parts, (1, 2, 0, 0)).run()
    assert parts[1, 2].all()
    with pytest.raises(tp.SimFault, match=r"dimension 1 has indices 0\.\.2"):
        program(parts, (1, 3, 0, 0)).run()
