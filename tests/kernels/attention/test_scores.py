"""Windows, changed scores and sinks, and head sizes: right in the simulator beside float64,
verified, compiled without spills; mistakes in their arguments are one sentence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.support.examples import share
from tilepipe.kernels.attention import sm90_bind as kernel
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.reference import NumpyScore, compare_attention
from tilepipe.kernels.attention.scores import ScoreFunction, Window

Array = npt.NDArray[Any]
Bounds = tuple[int | None, int | None]
SMALL = AttentionConfig(bn=32, consumers=1)


def problem(
    s_q: int, s_kv: int, heads: int = 2, kv_heads: int = 1, d: int = 64, d_v: int = 0, seed: int = 0
) -> tuple[Array, Array, Array, Array]:
    """q, k, v and the result, of one batch."""
    rng = np.random.default_rng(seed)
    shapes = (1, s_q, heads, d), (1, s_kv, kv_heads, d), (1, s_kv, kv_heads, d_v or d)
    q, k, v = (rng.standard_normal(shape).astype(tp.bfloat16.numpy) for shape in shapes)
    return q, k, v, np.full((1, s_q, heads, d_v or d), np.nan, q.dtype)


def verify(
    arrays: tuple[Array, Array, Array, Array],
    cfg: AttentionConfig | None = None,
    score: ScoreFunction | None = None,
    numpy_score: NumpyScore | None = None,
    **options: Any,
) -> Array:
    """Runs the kernel, compares with float64, and gives the logarithms."""
    q, k, v, out = arrays
    lse = np.full((1, q.shape[2], q.shape[1]), np.nan, np.float32)
    kernel.bind(q, k, v, out, lse, cfg, score=score, **options).run(seed=1)
    assert compare_attention(out, q, k, v, lse=lse, score=numpy_score, **options).ok
    return lse


WINDOWS: dict[str, tuple[int, int, Bounds]] = {
    "left and right": (200, 300, (10, 20)),
    "no key on the right": (200, 300, (40, 0)),
    "only a left side": (200, 300, (40, None)),
    "only a right side": (200, 300, (-1, 7)),
    "the key of its place alone": (100, 150, (0, 0)),
    "wider than all keys": (100, 150, (1000, 1000)),
    "queries that see none": (300, 100, (5, 5)),
    "one tile of keys between the edges": (64, 400, (150, 0)),
}


@pytest.mark.parametrize("cfg", [None, SMALL], ids=["chosen", "small tiles"])
@pytest.mark.parametrize(("s_q", "s_kv", "window"), WINDOWS.values(), ids=WINDOWS)
def test_windows(s_q: int, s_kv: int, window: Bounds, cfg: AttentionConfig | None) -> None:
    verify(problem(s_q, s_kv), cfg, window=window)


@pytest.mark.slow
@pytest.mark.parametrize("cfg", [None, SMALL], ids=["chosen", "small tiles"])
@pytest.mark.parametrize("window", [None, (40, 3)], ids=["causal", "window"])
@pytest.mark.parametrize(("s_q", "s_kv"), [(200, 300), (300, 100), (64, 64)])
def test_aligned_to_the_first(
    s_q: int, s_kv: int, window: Bounds | None, cfg: AttentionConfig | None
) -> None:
    arrays = problem(s_q, s_kv)
    slopes = np.array([0.5, 0.1], np.float32)
    options: dict[str, Any] = {"causal": window is None, "window": window, "slopes": slopes}
    options["align"] = "first"
    verify(arrays, cfg, **options)
    if window is None:
        assert np.array_equal(arrays[3][0, 0], np.repeat(arrays[2][0, 0], 2, axis=0))


def test_an_alignment_that_there_is_not() -> None:
    with pytest.raises(tp.BindError, match=r"align is \"last\" .* got 'top'"):
        kernel.bind(*problem(64, 64), align="top")


@pytest.mark.slow
@settings(max_examples=share(30), deadline=None)
@given(
    s_q=st.integers(1, 200),
    s_kv=st.integers(1, 200),
    left=st.one_of(st.none(), st.integers(0, 220)),
    right=st.one_of(st.none(), st.integers(0, 220)),
    causal=st.booleans(),
    consumers=st.integers(1, 3),
    bn=st.sampled_from([16, 32, 64]),
)
def test_any_window(
    s_q: int,
    s_kv: int,
    left: int | None,
    right: int | None,
    causal: bool,
    consumers: int,
    bn: int,
) -> None:
    cfg = AttentionConfig(bn=bn, consumers=consumers)
    verify(problem(s_q, s_kv), cfg, causal=causal, window=(left, right))


def test_keys_outside_a_window_are_not_loaded() -> None:
    """Tiles of keys that no query of a tile sees may hold anything: they are skipped."""
    q, k, v, out = problem(64, 640)
    k[:, :448], v[:, :448] = np.nan, np.nan  # the first query stands at key 576
    kernel.bind(q, k, v, out, cfg=SMALL, window=(100, 0)).run()
    assert np.isfinite(out.astype(np.float32)).all()


@pytest.mark.parametrize("consumers", [1, 2])
def test_softcap(consumers: int) -> None:
    arrays = problem(100, 200)
    arrays[0][...] *= np.asarray(8, arrays[0].dtype)
    verify(arrays, AttentionConfig(bn=32, consumers=consumers), softcap=5.0)
    plain = compare_attention(arrays[3], *arrays[:3])
    assert not plain.ok, "the cap changes the result"


@pytest.mark.slow
def test_slopes_are_alibi() -> None:
    slopes = np.array([0.5, 0.25], np.float32)
    verify(problem(70, 200), SMALL, causal=True, slopes=slopes)
    verify(problem(70, 200), SMALL, slopes=slopes, softcap=10.0)


@pytest.mark.slow
def test_sinks_take_their_part_of_the_sum() -> None:
    sinks = np.array([1.5, -0.5], np.float32)
    verify(problem(100, 60), SMALL, sinks=sinks)
    arrays = problem(100, 60)
    lse = verify(arrays, SMALL, causal=True, sinks=sinks)
    assert not arrays[3][0, :40].any()
    np.testing.assert_allclose(lse[0, :, :40], sinks[:, None].repeat(40, 1), rtol=1e-6)


def only_even(
    ctx: tp.Context,
    x: tp.FragmentValue,
    query: tp.FragmentValue,
    key: tp.FragmentValue,
    head: tp.Value,
) -> tp.FragmentValue:
    """Even queries see even keys, odd ones odd keys; head h adds h / 4."""
    shifted: Any = x + head.to("float32") * 0.25
    return ctx.select((query + key) % 2 == 0, shifted, -np.inf)


@pytest.mark.slow
def test_a_score_function() -> None:
    def same(x: Any, query: Array, key: Array, head: int) -> Any:
        return np.where((query + key) % 2 == 0, x + 0.25 * head, -np.inf)

    verify(problem(70, 100), SMALL, only_even, same, causal=True)
    verify(problem(70, 100), SMALL, only_even, same, softcap=4.0, slopes=np.ones(2, np.float32))


def forgets(ctx: tp.Context, x: Any, query: Any, key: Any, head: Any) -> None:
    """Without a return."""


def test_a_score_function_that_returns_no_scores_is_named_with_its_line() -> None:
    line = forgets.__code__.co_firstlineno
    with pytest.raises(tp.BindError) as caught:
        kernel.bind(*problem(64, 64), cfg=SMALL, score=forgets)  # type: ignore[arg-type]
    assert "it returned None (has it a `return`?)" in str(caught.value)
    assert str(caught.value).endswith(f"test_scores.py:{line}: forgets")


WRONG_SCORES: dict[str, tuple[Any, str]] = {
    "columns": (lambda ctx, x, i, j, h: x.cols(0, 8), r"here \(64, 32\).* float32 \(64, 8\)"),
    "condition": (lambda ctx, x, i, j, h: i >= j, r"boolean \(64, 32\): ctx\.select\(condition, x"),
    "queries": (lambda ctx, x, i, j, h: i, r'int32 \(64, 1\): `\.to\("float32"\)` converts it'),
    "keys": (lambda ctx, x, i, j, h: j, r"returned int32 \(1, 32\)"),
    "head": (lambda ctx, x, i, j, h: h, r"returned int32 \(1, 1\)"),
    "rounded": (lambda ctx, x, i, j, h: x.to("bfloat16"), r"returned bfloat16 \(64, 32\)"),
    "a truth value": (lambda ctx, x, i, j, h: True, "returned True"),
    "of one": (lambda x: x, r"\(ctx, scores, query, key, head\).*these five: too many positional"),
    "of six": (lambda a, b, c, d, e, f: b, "these five: missing a required argument: 'f'"),
}


@pytest.mark.sampled
@pytest.mark.parametrize(("score", "message"), WRONG_SCORES.values(), ids=WRONG_SCORES)
def test_a_wrong_score_function_is_refused(score: Any, message: str) -> None:
    with pytest.raises(tp.BindError, match=f"(?s)attention: score .*{message}.*test_scores.py:"):
        kernel.bind(*problem(64, 64), cfg=SMALL, score=score)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("score", "same"),
    [
        (lambda ctx, x, i, j, h: 0, lambda x, i, j, h: 0 * x),
        (lambda ctx, x, i, j, h: h.to("float32"), lambda x, i, j, h: 0 * x + h),
        (lambda ctx, x, i, j, h: i.to("float32"), lambda x, i, j, h: 0 * x + i),
        (lambda ctx, x, i, j, h: (j % 5).to("float32"), lambda x, i, j, h: 0 * x + j % 5),
        (lambda ctx, x, *others: x, lambda x, i, j, h: x),
    ],
    ids=["a number", "one value", "one a query", "one a key", "other parameters"],
)
def test_scores_of_fewer_values_stand_for_all(score: Any, same: NumpyScore) -> None:
    verify(problem(70, 100), SMALL, score, same)


@pytest.mark.sampled(3, suite=2)
@pytest.mark.parametrize(
    ("d", "d_v"),
    [(8, 8), (32, 32), (72, 72), (96, 96), (120, 40), (192, 128), (256, 256), (64, 256), (64, 128)],
)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_sizes_of_heads(d: int, d_v: int, causal: bool) -> None:
    verify(problem(130, 170, d=d, d_v=d_v), causal=causal)


@pytest.mark.slow
def test_parts_and_stores_of_heads() -> None:
    in_parts = AttentionConfig(bn=64, qk_stages=2)
    verify(problem(130, 70, d=80, d_v=48), in_parts)
    verify(problem(130, 70, d=80, d_v=64), AttentionConfig(bn=64, store="tile"))
    with pytest.raises(tp.BindError, match=r"whole spans of 64 columns.* use store="):
        kernel.bind(*problem(130, 70, d=80, d_v=48), cfg=AttentionConfig(bn=64, store="tile"))


@pytest.mark.slow
@pytest.mark.sampled(suite=100)
@pytest.mark.parametrize(("d", "d_v"), [(256, 256), (64, 64), (128, 128), (192, 128)])
@pytest.mark.parametrize(
    "options",
    [
        {
            "window": (90, 9),
            "softcap": 8.0,
            "slopes": np.ones(2, np.float32),
            "sinks": np.ones(2, np.float32),
        },
        {"causal": True},
        {"window": (512, 0)},
        {"softcap": 30.0},
    ],
    ids=["all", "causal", "window", "softcap"],
)
def test_compiles_without_spills(d: int, d_v: int, options: dict[str, Any]) -> None:
    """Of the largest heads, which leave the fewest registers, with all options. `make test-all`
    adds each size with each option.
    """
    q, k, v, out = problem(128, 256, d=d, d_v=d_v)
    compiled = kernel.bind(q, k, v, out, **options).compile("sm_90a")
    assert compiled.spill_bytes == 0
    assert "C75" not in compiled.log


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"window": (40, 0)},
        {"window": (20, 30), "softcap": 5.0},
        {"sinks": np.ones(2, np.float32), "causal": True},
    ],
    ids=["causal window", "window", "sinks"],
)
@pytest.mark.parametrize("s_kv", [100, 160])
def test_every_order_is_right(s_kv: int, options: dict[str, Any]) -> None:
    q, k, v, out = problem(128, s_kv)
    cfg = AttentionConfig(bn=16, stages=2)
    assert tp.testing.check(kernel.bind(q, k, v, out, None, cfg, **options)).ok


def test_seen_keys_are_those_of_the_definition() -> None:
    for window in (
        Window(None, 0),
        Window(3, 2),
        Window(0, None),
        Window(None, None),
        Window(9, 0),
    ):
        first, stop = window.seen(7, 12)
        for i in range(7):
            place = i + 5
            seen = [
                j
                for j in range(12)
                if (window.left is None or j >= place - window.left)
                and (window.right is None or j <= place + window.right)
            ]
            assert list(range(first[i], stop[i])) == seen


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"causal": 1}, "causal is True or False, got 1"),
        ({"window": 5}, "window is a pair (left, right)"),
        ({"window": (1, 2, 3)}, "window is a pair (left, right)"),
        ({"window": (-2, 0)}, "window's left is None or -1 (no bound), or a number of keys"),
        ({"window": (0, 2.0)}, "window's right is None or -1"),
        ({"softcap": -1.0}, "softcap is 0 (none) or positive and finite"),
        ({"softcap": "50"}, "softcap is a number, 0 for none; got '50'"),
        ({"softcap": float("nan")}, "softcap is 0 (none) or positive and finite"),
        ({"slopes": np.ones(3, np.float32)}, "slopes has a number for each head of q"),
        ({"slopes": np.ones(2)}, "float32 of shape (2,); it is float64 of (2,)"),
        ({"sinks": [1.0, 2.0]}, "sinks has a number for each head of q"),
        ({"score": 3}, "score is a function of (ctx, scores, query, key, head); got 3"),
    ],
)
def test_what_does_not_fit_is_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError) as error:
        kernel.bind(*problem(8, 8), **options)
    assert words in str(error.value)
