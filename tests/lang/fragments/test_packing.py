"""What tracing refuses of fragments of layout "fours", which `pack` and `load` fill and only wgmma
reads.
"""

from __future__ import annotations

import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text

FOURS = (
    "a = ctx.fragment(shape=(64, 32), dtype='float8_e4m3', layout='fours')\n"
    "x = ctx.fragment(shape=(64, 32))\nx.fill(1)\n"
)
TILES = """\
tiles = ctx.smem((64, 32), 'float8_e4m3')
others = ctx.smem((64, 32), 'float8_e5m2')
columns = ctx.smem((64, 32), 'float8_e4m3', order='col', name='columns')
wide = ctx.smem((64, 64), 'float8_e4m3')
"""


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "a + 1",
            '"fours" is operand A of ctx.mma, whose registers f.pack(x) or f.load(tile) fills',
        ),
        ("a.cols(0, 16)", "it is not read otherwise: keep the value, or load the tile"),
        ("a.set(x)", "write f.pack(x) here, whose columns come in another order"),
        ("a.fill(0)", "write f.pack(x) here"),
        ("a[...] = x", "fragment 'a' (made at"),
        ("a.load(tiles[0].rows(0, 32))", "into a fragment of 64×32 float8_e4m3"),
        ("a.load(others[0])", "into a fragment of 64×32 float8_e4m3"),
        ("a.load(tiles[0].on(0))", "ldmatrix reads this CTA's shared memory, not a peer's"),
        (
            "a.load(columns[0])",
            "has four neighbours along K in a register; in the 64×32 part of 'columns'",
        ),
        ("a.load(wide[0].cols(8, 32))", "ldmatrix reads 16 elements at a multiple of 16 bytes"),
        (
            "with ctx.per_warp():\n    a.load(tiles[0])",
            "move f.load(tile) out of per_warp",
        ),
        ("ctx.store(tiles[0], a)", "it is not read otherwise"),
        ("x.pack(a)", "x' (made at"),
        ("x.pack(x)", "f.pack(x) fills a fragment of 8 bits that ctx.mma takes as A"),
        ("a.pack(3)", "f.pack(x) takes a fragment expression, got 3"),
        ("a.pack(x.cols(0, 8))", "a value of 64×8 at column 0 cannot be packed into a fragment"),
        ("a.pack(x, 8)", "a value of 64×32 at column 8 cannot be packed"),
        ("a.pack(x.cols(0, 16), 32)", "of 64×32: it needs 64 rows, and multiples of 16 columns"),
        ("a.pack(x.sum())", "a value of 64×1 at column 0"),
        ("a.pack(x.cols(0, 16), ctx.lane)", "f.pack(x, col="),
        (
            "b = ctx.fragment(shape=(128, 32), dtype='float8_e4m3', layout='fours')\n"
            "y = ctx.fragment(shape=(128, 32), layout='tmem')\nb.pack(y)",
            'of the layout of accumulators, "wgmma"; this one has layout "tmem"',
        ),
        ("ctx.fragment(shape=(64, 24), dtype='float8_e4m3', layout='fours')", "got 64×24"),
        ("ctx.fragment(shape=(64, 32), dtype='bfloat16', layout='fours')", "64×32 bfloat16"),
        ("ctx.fragment(shape=(1, 32), dtype='float8_e4m3', layout='fours')", "got 1×32"),
        ("ctx.row_index(64, layout='fours')", "got 64×1 int32"),
        ("ctx.col_index(64, layout='fours')", 'a layout is "wgmma", "tmem", or "rows:T"'),
    ],
)
def test_refused(body: str, says: str) -> None:
    with refused(tp.TraceError, says):
        role_from_text(FOURS + body, "warpgroups=1", TILES)


def test_an_operand_of_8_bits_in_the_layout_of_accumulators_is_refused() -> None:
    """Its columns are not where wgmma looks for them."""
    text = (
        "a = ctx.fragment(shape=(64, 32), dtype='float8_e4m3')\na.fill(1)\n"
        "ctx.mma(ctx.accumulator((64, 8)), a, tiles[0], accumulate=False)"
    )
    before = "tiles = ctx.smem((8, 32), 'float8_e4m3')"
    with refused(tp.TraceError, 'Load it to one of layout "fours" (`f.load(tile)`)'):
        role_from_text(text, "warpgroups=1", before)
