"""Columns of a fragment are known while tracing; where they are not, the error says what to
write, and that is possible.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("f.cols(n * 8, 8)", "f.cols(<traced int32 block_id * 8>, 8): which columns these are"),
        ("f.cols(0, n)", "f.cols(0, <traced int32 block_id>)"),
        ("(f + 1).cols(v, 8)", "which columns these are must be known while tracing"),
        ("f.set(f.cols(0, 8), col=n * 8)", "f.set(x, col=<traced int32 block_id * 8>)"),
        ("f[:, n:n + 8]", "f[:, <traced int32 block_id>:<traced int32 block_id + 8>]"),
    ],
)
def test_traced_columns_are_refused_with_what_to_write(text: str, what: str) -> None:
    with refused(
        tp.TraceError,
        what,
        "`for c in range(0, f.shape[1], 8):`",
        "`with ctx.when(n == c):`",
        "`ctx.select(ctx.col_index(cols) == n, x, y)`",
    ):
        role_from_text(
            "n = ctx.block_id\nv = ctx.var(8)\nf = ctx.fragment(shape=(64, 64))\nf.fill(0)\n"
            + text,
            warps="warpgroups=1",
        )


def test_what_is_no_number_is_refused_without_that_advice() -> None:
    with refused(tp.TraceError, "f.cols('a', 8): columns are numbers, f.cols(start, count)."):
        role_from_text(
            "f = ctx.fragment(shape=(64, 64))\nf.fill(0)\nf.cols('a', 8)", warps="warpgroups=1"
        )


@tp.kernel(grid=8)
def advised(ctx: tp.Context, out: Any) -> None:
    """CTA n writes 1 to columns 8 n to 8 n + 7, and 2 to column n, as the error says."""

    @ctx.role("all", warpgroups=1)
    def everything() -> None:
        n, f = ctx.block_id, ctx.fragment(shape=(64, 64), dtype="float32")
        f.fill(0)
        for c in range(0, f.shape[1], 8):
            with ctx.when(n * 8 == c):
                f.set(f.cols(c, 8) + 1, col=c)
        f.set(ctx.select(ctx.col_index(64) == n, 2.0, f))
        ctx.store_global(out, (n, 0, 0), f)


def test_the_advice_gives_the_columns() -> None:
    out, want = np.zeros((8, 64, 64), np.float32), np.zeros((8, 64, 64), np.float32)
    for n in range(8):
        want[n, :, 8 * n : 8 * n + 8] = 1
        want[n, :, n] = 2
    advised.bind(out).run()
    assert np.array_equal(out, want)
