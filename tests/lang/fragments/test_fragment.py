"""Fragments: shapes, dtypes, in-place change, and expressions that have gone stale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import in_role, refused, role_from_text

ACC = "f = ctx.accumulator((64, 32))\nf.fill(1)\n"


def stored(body: Any) -> Any:
    """The fragment (64, 32) that `body(ctx, f)` gives, f[r, c] = r + c / 32."""
    out = np.zeros((64, 32), np.float32)

    @tp.kernel()
    def k(ctx: tp.Context, source: Any, out: Any) -> None:
        tiles = ctx.smem((64, 32), "float32", count=2, name="tiles")

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            for i in ctx.range(16):
                ctx.store(
                    tiles[0][ctx.thread // 2, ctx.thread % 2 * 16 + i],
                    ctx.load(source[ctx.thread // 2, ctx.thread % 2 * 16 + i]),
                )
            ctx.sync_warpgroup()
            f = ctx.fragment(shape=(64, 32))
            f.load(tiles[0])
            ctx.store(tiles[1], body(ctx, f))
            ctx.sync_warpgroup()
            for i in ctx.range(16):
                ctx.store(
                    out[ctx.thread // 2, ctx.thread % 2 * 16 + i],
                    ctx.load(tiles[1][ctx.thread // 2, ctx.thread % 2 * 16 + i]),
                )

    k.bind(SOURCE, out).run()
    return out


SOURCE = (np.arange(64)[:, None] + np.arange(32)[None, :] / 32).astype(np.float32)


def in_place(ctx: tp.Context, f: Any) -> Any:
    f += 1
    f *= 2
    f -= 3
    f /= 4
    return f


def partly(ctx: tp.Context, f: Any) -> Any:
    f.set(2.5, col=24)
    f.set(f.max(), col=16)
    return f


def every_row(ctx: tp.Context, f: Any) -> Any:
    f.set(f.max())
    return f


def narrow(ctx: tp.Context, f: Any) -> Any:
    """The same in 16 bits, where two columns share a register."""
    g = ctx.fragment(f.to("float16"))
    g.set(1, col=8)
    g.set(f.cols(0, 8).to("float16"), col=24)
    return g.to("float32")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("body", "want"),
    [
        (lambda ctx, f: f, SOURCE),
        (lambda ctx, f: f * 2 + 1, SOURCE * 2 + 1),
        (lambda ctx, f: 1 - f / 4, 1 - SOURCE / 4),
        (lambda ctx, f: -f, -SOURCE),
        (lambda ctx, f: f.maximum(10).minimum(20), SOURCE.clip(10, 20)),
        (lambda ctx, f: f - f.max(), SOURCE - SOURCE.max(axis=1, keepdims=True)),
        (
            lambda ctx, f: f * 0 + f.sum(),
            np.broadcast_to(SOURCE.sum(axis=1, keepdims=True), SOURCE.shape),
        ),
        (in_place, ((SOURCE + 1) * 2 - 3) / 4),
        (
            partly,
            np.concatenate(
                [
                    SOURCE[:, :16],
                    np.broadcast_to(SOURCE[:, :24].max(1, keepdims=True).clip(2.5), (64, 16)),
                ],
                axis=1,
            ),
        ),
        (every_row, np.broadcast_to(SOURCE.max(1, keepdims=True), (64, 32))),
        (
            narrow,
            np.concatenate(
                [
                    SOURCE[:, :8].astype(np.float16),
                    np.ones((64, 16)),
                    SOURCE[:, :8].astype(np.float16),
                ],
                axis=1,
            ),
        ),
        (
            lambda ctx, f: f.to("bfloat16").to("float32"),
            SOURCE.astype(tp.bfloat16.numpy).astype(np.float32),
        ),
        (lambda ctx, f: ctx.fragment(f + 1) - 1, SOURCE),
    ],
)
def test_fragment_arithmetic(body: Any, want: Any) -> None:
    assert np.allclose(stored(body), want, rtol=1e-6)


def test_columns_are_set_apart() -> None:
    def body(ctx: tp.Context, f: Any) -> Any:
        g = ctx.fragment(shape=(64, 32))
        g.set(f.cols(16, 16), col=0)
        g.set(f.cols(0, 16), col=16)
        return g

    assert np.array_equal(stored(body), np.roll(SOURCE, 16, axis=1))


def _assigned(f: Any) -> None:
    f[...] = f.cols(0, 24)


@pytest.mark.parametrize("change", [lambda f: f.set(f.cols(0, 24)), _assigned], ids=["set", "..."])
def test_fewer_columns_are_set_only_where_said(change: Any) -> None:
    def body(ctx: tp.Context, f: Any) -> Any:
        change(f)
        return f

    said = "a value of 64×24 is set in a fragment of 64×32, whose other 8 columns would stay"
    with pytest.raises(tp.TraceError, match=said):
        stored(body)


@pytest.mark.parametrize(
    "change",
    [
        "f.fill(0)",
        "f += 1",
        "f[...] = 3",
        "f.set(f * 2)",
        "f.load(tile[0])",
        "ctx.mma(f, a[0], b[0])\nctx.wgmma_commit()\nctx.wgmma_wait(0)",
    ],
)
def test_a_stale_expression_is_refused(change: str) -> None:
    before = """
    tile = ctx.smem((64, 32), 'float32', name='tile')
    a = ctx.smem((64, 64), 'bfloat16', name='a')
    b = ctx.smem((32, 64), 'bfloat16', name='b')
    """
    with refused(
        tp.TraceError,
        "reads 'f' (made at <cell",
        "written after the expression was made",
        "ctx.fragment(expression)",
        "ctx.fragment(x)",
    ):
        role_from_text(
            f"{ACC}x = f * 2\n{change}\nctx.fragment(x)", warps="warpgroups=1", before=before
        )


def test_a_kept_copy_is_not_stale() -> None:
    def body(ctx: tp.Context, f: Any) -> Any:
        kept = ctx.fragment(f * 2)
        f.fill(0)
        return kept + f

    assert np.allclose(stored(body), SOURCE * 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ctx.accumulator((60, 8))", ("multiple of 64 rows", "60×8")),
        ("ctx.accumulator((64, 12))", ("of 8 columns", "64×12")),
        ("ctx.accumulator((0, 8))", ("multiple of 64 rows", "0×8")),
        ("ctx.fragment()", ("needs a value or a shape",)),
        ("f.cols(4, 8)", ("columns [4, 12)", "multiples of 8")),
        ("f.cols(24, 16)", ("columns [24, 40)", "of 32")),
        ("f.set(ctx.fragment(shape=(64, 16)), col=24)", ("64×16 at column 24", "64×32")),
        ("f.set(ctx.fragment(shape=(128, 32)))", ("128×32", "64×32")),
        ("f + ctx.fragment(shape=(64, 16))", ("(64, 32)", "(64, 16)", "broadcast")),
        ("f.set(0, col=4)", ("multiple of 8", "got 4")),
        ("f.set(0, col=32)", ("fragment of 32", "got 32")),
        ("f.set(0, col=-8)", ("got -8",)),
        ("f //= 2", ("`+=`, `-=`, `*=` and `/=`", "f.set(...)")),
        ("f **= 2", ("`+=`, `-=`, `*=` and `/=`", "f.set(...)")),
        ("f.fill(float('nan'))", ("constant is NaN",)),
        ("import numpy as np\nf.fill(np.float32('nan'))", ("constant is NaN",)),
        ("with ctx.per_warp():\n    f.load(wide[0])", ("whole warpgroup", "out of per_warp")),
        ("ctx.load(a[0])", ("reads one element", "tile of 'a' 64×64", "f.load(tile)")),
        ("ctx.mma(f, f, 5)", ("mma: B must be a tile, got 5",)),
        ("ctx.mma(f, out, b[0])", ("mma: A must be a tile or a fragment, got <tensor 'out'",)),
        ("ctx.mma(a[0], a[0], b[0])", ("mma: acc must be a fragment",)),
        ("a[0.5]", ("index of a tile must be an integer", "float32 0.5")),
        ("f[0] = 1", ("f[...] = x",)),
        ("if f: pass", ("truth of a fragment",)),
        ("f.load(tile[0])", ("cannot load", "64×32 float32")),
        (
            "ctx.fragment(shape=(128, 1)).load(tile[0].rows(0, 1))",
            ("cannot load", "tile of 'tile' 1×64", "fragment of 128×1"),
        ),
        ("ctx.store(tile[0], f)", ("64×32 here", "64×64")),
        ("ctx.store(tile[0], 1)", ("stored from a fragment", "tile[r, c]")),
        (
            "ctx.mma(f, a[0], tile[0])",
            ("acc 64×32 += A 64×64 · (B 64×64)", "need A 64×k and B 32×k"),
        ),
        ("ctx.mma(f, a[0], b32[0])", ("the same for A and B", "bfloat16 and float32")),
        (
            "ctx.mma(ctx.fragment(shape=(64, 32), dtype='bfloat16'), a[0], b[0])",
            ("accumulator must be float32", "bfloat16"),
        ),
        (
            "ctx.mma(f, a[0].cols(0, 8), b[0].cols(0, 8))",
            ("k = 8 must be a multiple of 16", "32 bytes of bfloat16"),
        ),
        (
            "with ctx.elect_one():\n    ctx.mma(f, a[0], b[0])",
            ("all 128 threads", "elect block at"),
        ),
        (
            "with ctx.per_warp():\n    ctx.mma(f, a[0], b[0])",
            ("all 128 threads", "per_warp block at"),
        ),
        ("ctx.wgmma_wait(8)", ("0..7, got 8",)),
        ("ctx.tma_store_wait(-1)", ("one lane",)),
        ("a[0].rows(60, 8)", ("rows [60, 68) leave a tile of 64×64",)),
        ("a[0].cols(0, 0)", ("cols [0, 0) leave a tile",)),
        ("a[1]", ("tile 1 of 'a', which has 1",)),
        ("ctx.load(a[0][64, 0])", ("index 64 is outside a tile of 64×64",)),
        ("ctx.load(a[0][1])", ("takes 2 indices, got 1",)),
        ("ctx.load(out[0, 0])", ("takes 1 indices, got 2",)),
        ("ctx.load(a[0][1.5, 0])", ("index must be an integer", "float32")),
    ],
)
def test_refused_fragments_and_tiles(text: str, words: tuple[str, ...]) -> None:
    before = """
    a = ctx.smem((64, 64), 'bfloat16', name='a')
    b = ctx.smem((32, 64), 'bfloat16', name='b')
    b32 = ctx.smem((32, 64), 'float32', name='b32')
    tile = ctx.smem((64, 64), 'bfloat16', name='tile')
    wide = ctx.smem((64, 32), 'float32', name='wide')
    """
    with refused(tp.TraceError, *words):
        role_from_text(ACC + text, warps="warpgroups=1", before=before)


def test_wide_mma_is_refused() -> None:
    before = "a = ctx.smem((64, 64), 'bfloat16')\nb = ctx.smem((264, 64), 'bfloat16')"
    with refused(tp.TraceError, "n = 264", "at most 256", "two accumulators"):
        role_from_text(
            "f = ctx.accumulator((64, 264))\nctx.mma(f, a[0], b[0])",
            warps="warpgroups=1",
            before=before,
        )


def test_undefined_accumulators_are_poison() -> None:
    def body(ctx: tp.Context, out: Any) -> None:
        acc = ctx.accumulator((64, 8))
        row = acc.sum()
        acc.set(row)

    with refused(tp.PoisonError, "acc"):
        in_role(body, warpgroups=1).run()


def test_columns_set_to_one_value_compile() -> None:
    """The GPU's text of `partly` and `narrow`: what fills columns does not run over the end."""

    def body(ctx: tp.Context, out: Any) -> None:
        f = ctx.fragment(shape=(64, 32))
        f.fill(0)
        tile = narrow(ctx, partly(ctx, f))
        f.set(tile)

    assert in_role(body, warpgroups=1).compile().spill_bytes == 0


def test_any_is_of_a_condition_in_one_warp() -> None:
    with refused(tp.TraceError, "any() asks the lanes of one warp", "ctx.per_warp()"):
        role_from_text(ACC + "(f > 0).any()", warps="warpgroups=1")
    with refused(tp.TraceError, "any() is of a condition", "float32"):
        role_from_text(ACC + "with ctx.per_warp():\n    f.any()", warps="warpgroups=1")
    with refused(tp.TraceError, "any() is executed by all threads", "of the warp, under per_warp"):
        role_from_text(
            ACC + "with ctx.per_warp(), ctx.when(ctx.lane < 3):\n    (f > 0).any()",
            warps="warpgroups=1",
        )
    text = str(
        role_from_text(
            ACC + "with ctx.per_warp():\n    with ctx.when((f > 0).any()):\n        f *= 2",
            warps="warpgroups=1",
        )
    )
    assert "any = fragment_any acc > 0" in text
    assert "when any:" in text


def test_what_a_fragment_shows_when_it_is_printed() -> None:
    """Its shape, dtype and line, not an address."""
    shown: list[str] = []

    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        @ctx.role("one", warpgroups=1)
        def one() -> None:
            f = ctx.fragment(shape=(64, 32))
            f.fill(0)
            shown.extend(map(repr, (f, f * 2, f > 0)))

    k.bind()
    first = k.function.__code__.co_firstlineno
    assert shown == [
        f"<fragment 'f' (made at test_fragment.py:{first + 4}) 64×32 float32>",
        f"<fragment expression 64×32 float32 of 'f' (made at test_fragment.py:{first + 4})>",
        f"<fragment expression 64×32 boolean of 'f' (made at test_fragment.py:{first + 4})>",
    ]


def test_what_rings_stages_and_elements_show_when_they_are_printed() -> None:
    shown: list[str] = []

    @tp.kernel()
    def k(ctx: tp.Context, out: Any) -> None:
        pipe = tp.ProducerConsumerPipeline.allocate(
            ctx, 2, producer_arrivals=1, consumer_arrivals=1, name="ring"
        )
        words = tp.SMemArray(ctx, "int32", 4, "words")

        @ctx.role("one", warps=1)
        def one() -> None:
            stage = pipe.acquire_producer()
            shown.extend(map(repr, (pipe, words, words[0], out[0], stage)))
            stage.release()

    k.bind(np.zeros(4, np.int32))
    line = k.function.__code__.co_firstlineno + 9
    assert shown == [
        "<ProducerConsumerPipeline 'ring' of 2 stages>",
        "<array of 4 int32 in shared memory>",
        "<element of 'words' int32>",
        "<element of 'out' int32>",
        f"<the producer stage of 'ring' acquired at test_fragment.py:{line}>",
    ]
