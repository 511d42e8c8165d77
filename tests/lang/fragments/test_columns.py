"""Columns of fragment expressions: which registers they read, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text
from tilepipe.ir import printer

BEFORE = """
f = ctx.fragment(shape=(64, 64))
r = ctx.fragment(shape=(64, 1))
c = ctx.fragment(shape=(1, 64))
w = ctx.fragment(shape=(64, 16), dtype='uint32')
for x in (f, r, c, w):
    x.fill(0)
"""


def printed(text: str) -> str:
    found: list[Any] = []
    role_from_text(f"{BEFORE}found.append({text})", found=found, warps="warpgroups=1")
    return printer.expr(found[0]._expr)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("f.cols(8, 16)", "frag[:, 8:24]"),
        ("f.cols(8, 48).cols(16, 8)", "frag[:, 24:32]"),
        ("f.cols(0, 64)", "frag"),
        ("(f * r + c).cols(32, 32)", "(frag[:, 32:64] * frag_1) + frag_2[:, 32:64]"),
        ("(r + c).cols(0, 8)", "frag_1 + frag_2[:, 0:8]"),
        ("(-f).to('bfloat16').cols(56, 8)", "bfloat16(neg(frag[:, 56:64]))"),
        (
            "ctx.select(f > 0, c, 1.0).cols(0, 8)",
            "select(frag[:, 0:8] > 0.0, frag_2[:, 0:8], 1.0)",
        ),
        ("ctx.col_index(64).cols(8, 8)", "columns + 8"),
        ("ctx.col_index(64).cols(0, 8)", "columns"),
        ("w.bitcast('bfloat16').cols(16, 16)", "bits(frag_3[:, 8:16], bfloat16)"),
        ("w.bitcast('float32').cols(8, 8)", "bits(frag_3[:, 8:16], float32)"),
        ("ctx.interleave(w, w).cols(0, 16)", "interleave(frag_3[:, 0:8], frag_3[:, 0:8])"),
    ],
)
def test_columns_are_registers_of_what_the_expression_reads(text: str, want: str) -> None:
    assert printed(text) == want


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f.cols(4, 8)", ("columns [4, 12) of a fragment of 64", "multiples of 8")),
        ("(f + c).cols(32, 40)", ("columns [32, 72) of a fragment of 64",)),
        ("(f + c).cols(-8, 8)", ("columns [-8, 0)",)),
        ("r.cols(0, 1)", ("columns [0, 1) of a fragment of 1",)),
        ("w.bitcast('bfloat16').cols(8, 8)", ("columns [8, 16) of a bitcast", "multiples of 16")),
        ("w.bitcast('uint8').cols(32, 16)", ("of a bitcast", "multiples of 32")),
        ("ctx.interleave(w, w).cols(8, 16)", ("of an interleave", "multiples of 16")),
        ("f[:, 0:32]", ("`f.cols(0, 32)`", "set by `f.set(x, col=)`")),
        ("(f * 2)[:, 8:24]", ("`f.cols(8, 16)`",)),
        ("f[:, :16]", ("`f.cols(0, 16)`",)),
        ("f[0, 1]", ("some of its columns", "`f.cols(0, 64)`")),
        ("f.__setitem__((slice(None), slice(0, 8)), 1)", ("f.set(x, col=c)",)),
    ],
)
def test_a_misuse_is_refused(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        printed(text)


def test_columns_of_a_fragment_that_was_written_since_are_refused() -> None:
    with refused(
        tp.TraceError, "reads 'f' (made at <cell", "written after the expression was made"
    ):
        role_from_text(
            f"{BEFORE}part = (f + 1).cols(0, 8)\nf.fill(2)\nctx.fragment(part)",
            warps="warpgroups=1",
        )
