"""What tracing refuses of `bitcast` and `interleave`."""

from __future__ import annotations

import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text

WORDS = "f = ctx.fragment(shape=(64, 16), dtype='uint32')\nf.fill(1)\n"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("f.bitcast('boolean')", "both dtypes have as many; got uint32 (32 bits) to boolean"),
        ("f.to('uint8').bitcast('uint32')", "got uint8 (8 bits) to uint32 (32 bits)"),
        ("f.bitcast('float4_e2m1')", "threads do not compute with float4_e2m1"),
        ("ctx.lane.bitcast('bfloat16')", "got int32 (32 bits) to bfloat16 (16 bits)"),
        ("ctx.row_index(64).bitcast('bfloat16')", "of a value of 64×1 from int32 to bfloat16"),
        ("ctx.interleave(f, 3)", "takes two fragment expressions of one shape, got 3"),
        ("ctx.interleave(f, f.cols(0, 8))", "got 64×16 uint32 and 64×8 uint32"),
        ("ctx.interleave(f, f.to('int32'))", "got 64×16 uint32 and 64×16 int32"),
        (
            "f.to('float16').cols(0, 8).bitcast('uint32')",
            "of 64×8 from float16 to uint32 joins two columns of sixteen to one of eight; 8 is no",
        ),
        (
            "g = ctx.fragment(shape=(4, 256), dtype='float16', layout='rows:32')\n"
            "g.bitcast('uint32')",
            'a bitcast that joins elements takes no fragment of layout "rows:32"',
        ),
        ("r = ctx.row_index(64)\nctx.interleave(r, r)", "of at least 8 columns; got 64×1"),
        (
            "g = ctx.fragment(shape=(4, 256), dtype='uint32', layout='rows:32')\n"
            "ctx.interleave(g, g)",
            'interleave takes no fragment of layout "rows:32"',
        ),
        (
            "g = ctx.fragment(shape=(4, 256), dtype='uint32', layout='rows:32')\n"
            "g.bitcast('uint8')",
            'a bitcast that splits elements takes no fragment of layout "rows:32"',
        ),
    ],
)
def test_refused(body: str, says: str) -> None:
    with refused(tp.TraceError, says):
        role_from_text(WORDS + body, "warpgroups=1")
