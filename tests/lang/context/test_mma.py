"""ctx.mma while tracing: which operands it takes, what `accumulate` may be, and how both print."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text

BUFFERS = """
a = ctx.smem((64, 64), 'bfloat16', name='a')
b = ctx.smem((32, 64), 'bfloat16', name='b')
a8 = ctx.smem((64, 64), 'e4m3', name='a8')
b8 = ctx.smem((32, 64), 'e5m2', name='b8')
b8_wide = ctx.smem((64, 64), 'e5m2', name='b8_wide')
a32 = ctx.smem((64, 32), 'float32', name='a32')
b32 = ctx.smem((32, 32), 'float32', name='b32')
a8_col = ctx.smem((64, 64), 'e4m3', order='col', name='a8_col')
b32_col = ctx.smem((32, 32), 'float32', order='col', name='b32_col')
b64 = ctx.smem((32, 64), 'float64', swizzle=0, name='b64')
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ctx.mma(acc, a8_col[0], b8[0])",
            (
                "float8_e4m3 only where K is contiguous",
                "64×64 part of 'a8_col'",
                'order="row"',
                "16 bits",
            ),
        ),
        ("ctx.mma(acc, a32[0], b32_col[0])", ("float32 only where K is contiguous", "'b32_col'")),
        (
            "ctx.mma(acc, a8[0], b[0])",
            ("float8_e4m3 and float8_e5m2 in any mix", "got float8_e4m3 and bfloat16"),
        ),
        ("ctx.mma(acc, a[0], b8[0])", ("the same for A and B", "got bfloat16 and float8_e5m2")),
        (
            "ctx.mma(acc, a8[0].T, b8[0])",
            ("float8_e4m3 only where K is contiguous", "64×64 part of 'a8.T'"),
        ),
        ("ctx.mma(acc, a[0], a[0].T.rows(8, 32).cols(0, 64))", ("'a.T'", "row 8", "of 64")),
        ("ctx.store(b[0].T, acc)", ("b.T' 64×32 bfloat16> is stored into", "without .T")),
        ("ctx.load(b[0].T[0, 0])", ("is addressed", "read by ctx.mma on Hopper alone")),
        ("ctx.mma(acc, b64[0], b64[0])", ("need A 64×k",)),
        ("ctx.mma(acc, a[0], b64[0])", ("got bfloat16 and float64",)),
        (
            "ctx.mma(acc, a8[0].cols(0, 48), b8[0].cols(0, 48))",
            ("k = 48 must be a multiple of 32 (32 bytes of float8_e4m3)",),
        ),
        (
            "ctx.mma(acc, a32[0].cols(0, 12), b32[0].cols(0, 12))",
            ("k = 12 must be a multiple of 8 (32 bytes of float32)",),
        ),
        (
            "ctx.mma(acc, a8[0].cols(16, 32), b8[0].cols(0, 32))",
            ("one wgmma takes 32 elements of K", "column 16", "multiple of 32"),
        ),
        (
            "ctx.mma(acc, a32[0].cols(4, 8), b32[0].cols(0, 8))",
            ("one wgmma takes 8 elements of K", "column 4"),
        ),
        (
            "ctx.mma(acc, acc, b32[0])",
            (
                "A in registers is bfloat16 or float16; fragment 'acc' (made at",
                'to("bfloat16")',
                "ctx.store",
            ),
        ),
        ("ctx.mma(acc, a[0].on(0), b[0])", ("this CTA's shared memory", "peer's copy of 'a'")),
        (
            "ctx.mma(acc, a[0], b[0], accumulate=1)",
            ("True, False or a traced condition", "got 1", "`!= 0`"),
        ),
        (
            "ctx.mma(acc, a[0], b[0], accumulate=ctx.lane)",
            ("True, False or a traced condition", "lane"),
        ),
        (
            "ctx.mma(acc, a[0], b[0], accumulate=ctx.lane > 0)",
            ("accumulate must be the same in every thread", "varies by lane"),
        ),
        (
            "ctx.mma(acc, a[0], b[0], accumulate=ctx.warp > 0)",
            ("accumulate must be the same in every thread", "varies by warp"),
        ),
        (
            "ctx.mma(acc, a[0], b[0], accumulate='no')",
            ("expected a number or a traced value", "'no'"),
        ),
    ],
)
def test_what_mma_refuses(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(
            f"acc = ctx.accumulator((64, 32))\n{text}", warps="warpgroups=1", before=BUFFERS
        )


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("ctx.mma(acc, a8[0], b8[0])", "wgmma acc += a8[0] · b8[0]ᵀ "),
        ("ctx.mma(acc, a32[0], b32[0], accumulate=True)", "wgmma acc += a32[0] · b32[0]ᵀ "),
        ("ctx.mma(acc, a[0], b[0], accumulate=np.False_)", "wgmma acc = a[0] · b[0]ᵀ "),
        (
            "for k in ctx.range(4):\n    ctx.mma(acc, a[0], b[0], accumulate=k > 0)",
            "wgmma acc = a[0] · b[0]ᵀ (+= where i > 0) ",
        ),
        (
            "v = ctx.var(False)\nctx.mma(acc, a[0], b[0], accumulate=v)",
            "wgmma acc = a[0] · b[0]ᵀ (+= where ",
        ),
    ],
)
def test_how_an_mma_prints(text: str, printed: str) -> None:
    end = "\nctx.wgmma_commit()\nctx.wgmma_wait(0)"
    program = role_from_text(
        f"acc = ctx.accumulator((64, 32))\n{text}{end}", warps="warpgroups=1", before=BUFFERS, np=np
    )
    assert printed in str(program)


def accumulating(*conditions: Any, wait: bool = True) -> tp.Program:
    """A program of one MMA of zeros for each condition, `(ctx, out) -> accumulate`, and a read of
    the accumulator.
    """

    @tp.kernel()
    def k(ctx: tp.Context, out: Any) -> None:
        tile = ctx.smem((64, 16), "bfloat16", swizzle=32, name="tile")[0]

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            for i in range(8):
                ctx.store(tile[ctx.thread // 2, ctx.thread % 2 * 8 + i], 0)
            ctx.fence_proxy_async()
            ctx.sync_warpgroup()
            acc = ctx.accumulator((64, 64))
            for condition in conditions:
                ctx.mma(acc, tile, tile, accumulate=condition(ctx, out))
            ctx.wgmma_commit()
            if wait:
                ctx.wgmma_wait(0)
            acc.set(acc + 1)

    return k.bind(np.zeros(1, np.int32))


@pytest.mark.parametrize(
    "conditions",
    [
        [lambda ctx, out: False],
        [lambda ctx, out: False, lambda ctx, out: True],
        [lambda ctx, out: ctx.load(out[0]) > 0],
        [lambda ctx, out: ctx.load(out[0]) > 0, lambda ctx, out: ctx.load(out[0]) == 0],
    ],
)
def test_an_overwritten_accumulator_need_not_be_set(conditions: list[Any]) -> None:
    accumulating(*conditions).run()


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([lambda ctx, out: True], ("wgmma acc += tile",)),
        ([lambda ctx, out: ctx.load(out[0]) == 0], ("wgmma acc = tile[0] · tile[0]ᵀ (+= where ",)),
    ],
)
def test_adding_to_what_was_never_set_is_poison(
    conditions: list[Any], words: tuple[str, ...]
) -> None:
    with refused(
        tp.PoisonError,
        *words,
        "adds to accumulator 'acc' (made at test_mma.py:",
        ", of which 64 columns were never set",
        ".fill(0)",
        "accumulate=False",
    ):
        accumulating(*conditions).run()


def test_an_overwritten_accumulator_is_read_after_the_wait() -> None:
    with refused(
        tp.RaceError,
        "reads fragment 'acc' (made at test_mma.py:",
        " while 1 wgmma that writes it is in flight",
    ):
        accumulating(lambda ctx, out: False, wait=False).run()
