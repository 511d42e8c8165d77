"""Which rows a warp holds: every row is held once, and where `ir.fragment.Fragment` says."""

from __future__ import annotations

import pytest

from tilepipe.ir import dtypes
from tilepipe.ir.expressions import Binary, FragmentRead, const
from tilepipe.ir.fragment import BLOCK, Fragment, first_row, warp_parts
from tilepipe.sim.sites import layout_of


@pytest.mark.parametrize(
    ("layout", "rows"), [("wgmma", 64), ("wgmma", 192), ("tmem", 128), ("tmem", 256)]
)
def test_every_row_is_held_once(layout: str, rows: int) -> None:
    by_block = [
        [
            row + i
            for block in range(rows // (4 * BLOCK))
            for row in [first_row(layout, block, warp)]
            for i in range(BLOCK)
        ]
        for warp in range(4)
    ]
    by_part = [
        [row for first, stop in warp_parts(layout, warp, 0, rows) for row in range(first, stop)]
        for warp in range(4)
    ]
    assert by_block == by_part
    assert sorted(row for part in by_part for row in part) == list(range(rows))


def test_the_rows_of_the_two_layouts() -> None:
    assert [first_row("wgmma", i, w) for w in (0, 3) for i in (0, 1)] == [0, 64, 48, 112]
    assert [first_row("tmem", i, w) for w in (0, 3) for i in (0, 1)] == [0, 16, 96, 112]
    assert warp_parts("tmem", 2, 0, 128) == ((64, 96),)
    assert warp_parts("wgmma", 2, 8, 136) == ((40, 56), (104, 120))


def test_the_layout_of_a_value() -> None:
    f, columns = (
        Fragment("f", dtypes.float32, 128, 8, layout="tmem"),
        Fragment("v", dtypes.float32, 1, 8),
    )
    read = FragmentRead(dtypes.float32, shape=(128, 8), fragment=f)
    bias = FragmentRead(dtypes.float32, shape=(1, 8), fragment=columns)
    assert layout_of(read) == "tmem"
    assert layout_of(Binary(dtypes.float32, shape=(128, 8), op="add", a=bias, b=read)) == "tmem"
    assert layout_of(bias) == layout_of(const(1.0)) == "wgmma"
