"""What attention takes, its float64 reference, and that the bounds hold for a right kernel and
catch wrong ones.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe.kernels.attention import sm90_bind as kernel
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.reference import (
    AttentionOptions,
    attention,
    compare_attention,
    head,
)
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention.validation import boxed, check_attention

Array = npt.NDArray[Any]
BF16, FP16 = ml_dtypes.bfloat16, np.float16


def operands(
    s_q: int,
    s_kv: int,
    d: int = 64,
    heads: int = 2,
    kv_heads: int = 1,
    dtype: Any = BF16,
    batch: int = 1,
) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = (batch, s_q, heads, d), (batch, s_kv, kv_heads, d), (batch, s_kv, kv_heads, d)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def as_kernels(
    q: Array, k: Array, v: Array, causal: bool, scale: float | None = None, skip: int = -1
) -> tuple[Array, Array]:
    """What a kernel computes, block by block of 128 keys: float32, P rounded. `skip`: a block that
    is forgotten.
    """
    (batch, s_q, heads, d), s_kv, group = q.shape, k.shape[1], q.shape[2] // k.shape[2]
    c = np.float32((scale or 1 / np.sqrt(d)) * math.log2(math.e))
    out, lse = np.zeros(q.shape, q.dtype), np.zeros((batch, heads, s_q), np.float32)
    seen = Window.of(causal, None).seen(s_q, s_kv)[1][:, None]
    for b, h in np.ndindex(batch, heads):
        qs, ks, vs = (
            x.astype(np.float32) for x in (q[b, :, h], k[b, :, h // group], v[b, :, h // group])
        )
        sums, top, total = (
            np.zeros((s_q, d), np.float32),
            np.full((s_q, 1), -np.inf, np.float32),
            np.zeros((s_q, 1), np.float32),
        )
        for n in range(0, s_kv, 128):
            if n // 128 == skip:
                continue
            x = np.where(np.arange(n, min(n + 128, s_kv)) < seen, qs @ ks[n : n + 128].T, -np.inf)
            new = np.maximum(top, x.max(1, keepdims=True))
            base = np.where(np.isinf(new), 0, new)
            p, old = np.exp2(x * c - base * c), np.exp2((top - base) * c)
            total = total * old + p.sum(1, keepdims=True)
            sums = sums * old + p.astype(q.dtype).astype(np.float32) @ vs[n : n + 128]
            top = new
        some = total > 0
        out[b, :, h] = np.where(some, sums / np.where(some, total, 1), 0).astype(q.dtype)
        lse[b, h] = np.where(
            some,
            (np.where(some, top, 0) * c + np.log2(np.where(some, total, 1))) * np.log(2),
            -np.inf,
        )[:, 0]
    return out, lse


SHAPES = [
    (128, 128, False),
    (200, 520, True),
    (520, 200, True),
    (7, 3, False),
    (64, 2048, False),
    (2, 2, True),
]


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize(("s_q", "s_kv", "causal"), SHAPES)
@pytest.mark.parametrize("spread", [0.05, 1.0, 8.0])
def test_a_right_kernel_is_within_the_bounds(
    s_q: int, s_kv: int, causal: bool, dtype: Any, spread: float
) -> None:
    q, k, v = operands(s_q, s_kv, dtype=dtype)
    q = (q.astype(np.float32) * spread).astype(dtype)
    out, lse = as_kernels(q, k, v, causal)
    found = compare_attention(out, q, k, v, causal=causal, lse=lse)
    assert found.ok, found
    assert found.worst > 0.01  # the bounds are not so wide that nothing could be wrong
    assert compare_attention(out, q, k, v, causal=causal, lse=lse, worst=True).worst <= found.worst


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("skip", [0, 3, 15])
def test_a_forgotten_block_of_keys_is_wrong(skip: int, dtype: Any) -> None:
    q, k, v = operands(64, 2048, dtype=dtype)
    right, wrong = as_kernels(q, k, v, False), as_kernels(q, k, v, False, skip=skip)
    assert compare_attention(wrong[0], q, k, v).worst > 20
    only_lse = compare_attention(right[0], q, k, v, lse=wrong[1])
    assert not only_lse.ok
    assert len(only_lse.worst_at) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda q, k, v: as_kernels(q, k, v, False),
        lambda q, k, v: as_kernels(q, k[:, :-1], v[:, :-1], True),  # the mask one key off
        lambda q, k, v: as_kernels(q, k, v, True, scale=0.13),
        lambda q, k, v: as_kernels(q, k, v[:, ::-1], True),
        # heads of K and V exchanged
        lambda q, k, v: as_kernels(q, k[:, :, ::-1], v[:, :, ::-1], True),
    ],
)
def test_other_mistakes_are_wrong(wrong: Any) -> None:
    q, k, v = operands(300, 300, heads=4, kv_heads=2)
    assert compare_attention(as_kernels(q, k, v, True)[0], q, k, v, causal=True).ok
    found = compare_attention(wrong(q, k, v)[0], q, k, v, causal=True)
    assert found.worst > 5, found


def test_values_that_are_not_random_need_the_worst_case() -> None:
    q, k, v = operands(16, 1000)
    v = np.ones_like(v)
    # all probabilities but one are the same, and are rounded the same way
    k[:, 0], k[:, 1:] = 4 * q[0, 0, 0], k[:, 2:3]
    out, lse = as_kernels(q, k, v, False)
    assert compare_attention(out, q, k, v, lse=lse, worst=True).ok


def test_queries_without_keys_are_exact() -> None:
    q, k, v = operands(300, 100)
    out, lse = as_kernels(q, k, v, True)
    assert (out[:, :200] == 0).all()
    assert (lse[:, :, :200] == -np.inf).all()
    assert np.isfinite(lse[:, :, 200:]).all()
    assert compare_attention(out, q, k, v, causal=True, lse=lse).ok
    out[0, 5, 0, 3] = 1e-6
    found = compare_attention(out, q, k, v, causal=True)
    assert (found.ok, found.worst_at) == (False, (0, 5, 0, 3))
    for value in (-1e30, np.nan, 0.0):
        lse[0, 1, 7] = value
        assert compare_attention(
            as_kernels(q, k, v, True)[0], q, k, v, causal=True, lse=lse
        ).worst_at == (0, 1, 7)


def test_nan_never_passes() -> None:
    q, k, v = operands(16, 16)
    out, _ = as_kernels(q, k, v, False)
    out[0, 3, 1, 2] = np.nan
    found = compare_attention(out, q, k, v)
    assert (found.ok, found.worst_at) == (False, (0, 3, 1, 2))


def test_the_reference_is_softmax() -> None:
    q, k, v = operands(5, 7, heads=4, kv_heads=2, batch=2)
    out, lse = attention(q, k, v, causal=True, scale=0.3)
    for b, h, i in np.ndindex(2, 4, 5):
        seen = i + 7 - 5 + 1
        x = 0.3 * k[b, :seen, h // 2].astype(np.float64) @ q[b, i, h].astype(np.float64)
        np.testing.assert_allclose(lse[b, h, i], np.log(np.exp(x).sum()), rtol=1e-12)
        np.testing.assert_allclose(
            out[b, i, h],
            np.exp(x - lse[b, h, i]) @ v[b, :seen, h // 2].astype(np.float64),
            rtol=1e-10,
        )


def test_some_queries_are_those_of_all() -> None:
    q, k, v = operands(700, 600)
    out, lse = attention(q, k, v, causal=True)
    rows = np.array([3, 99, 100, 101, 650, 699])
    options = AttentionOptions(causal=True)
    found = head(q[0, rows, 1], k[0, :, 0], v[0, :, 0], rows, 700, 1, options, tp.bfloat16)
    np.testing.assert_allclose(found.out, out[0, rows, 1], atol=1e-14)
    np.testing.assert_allclose(found.lse, lse[0, 1, rows], atol=1e-12)


def array(*shape: int, dtype: Any = BF16) -> Array:
    return np.zeros(shape, dtype)


def test_extents_of_what_fits() -> None:
    q, k, v = operands(40, 100, d=128, heads=6, kv_heads=2, dtype=FP16, batch=3)
    found = check_attention(q, k, v, np.zeros_like(q), np.zeros((3, 6, 40), np.float32))
    assert (found.batch, found.s_q, found.s_kv, found.heads, found.kv_heads, found.d) == (
        3,
        40,
        100,
        6,
        2,
        128,
    )
    assert (found.dtype, found.scale, found.group) == (tp.float16, 1 / np.sqrt(128), 3)
    assert check_attention(q, k, v, scale=np.float32(0.5)).scale == 0.5
    assert (boxed("k", k, (64, 128)).box, boxed("k", k, (64, 128)).shape) == (
        (1, 1, 64, 128),
        (3, 2, 100, 128),
    )
    assert (
        boxed("v", v, (128, 64), turned=True).order,
        boxed("v", v, (128, 64), turned=True).shape,
    ) == ("col", (3, 2, 128, 100))
    assert check_attention(q[:, :0], k, v, empty=True).empty
    assert not found.empty


Q, K = array(2, 8, 4, 64), array(2, 16, 2, 64)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"q": [1.0]}, "attention: q must be an array, got [1.0]"),
        ({"q": Q[0]}, "q must have 4 dimensions (batch, s_q, heads, d), it has shape (8, 4, 64)"),
        ({"v": K[0]}, "v must have 4 dimensions (batch, s_kv, kv_heads, d)"),
        (
            {"v": array(2, 15, 2, 64)},
            "the same batch, keys and heads: dimensions 0 to 2; they have (2, 16, 2, 64) and (2,",
        ),
        ({"q": array(3, 8, 4, 64)}, "must have the same batch and d"),
        ({"q": array(2, 8, 4, 128)}, "must have the same batch and d"),
        ({"q": array(2, 8, 3, 64)}, "q has 3 heads and k 2; heads of q must be a multiple"),
        (
            {"q": array(2, 8, 4, 100), "k": array(2, 16, 2, 100)},
            "a head of q and k has a multiple of 8 elements, 256 at most; it has 100",
        ),
        (
            {"v": array(2, 16, 2, 264)},
            "a head of v has a multiple of 8 elements, 256 at most; it has 264",
        ),
        ({"q": Q.astype(FP16)}, "the same for q, k, v; got q float16, k bfloat16, v bfloat16"),
        ({"out": Q.astype(np.float32)}, "the same for q, k, v, out"),
        ({"q": Q.astype(np.float64)}, "attention takes bfloat16 or float16"),
        ({"q": array(2, 8, 4, 64, dtype="complex64")}, "attention: q: "),
        (
            {"out": array(2, 4, 8, 64)},
            "out must have the shape (2, 8, 4, 64), of q with the last dimension of v; it has",
        ),
        (
            {"lse": array(2, 4, 8)},
            "lse must be float32 of shape (2, 4, 8), (batch, heads, s_q); it is bfloat16",
        ),
        ({"lse": array(2, 8, 4, dtype=np.float32)}, "of (2, 8, 4)"),
        ({"scale": "1"}, "scale must be a number"),
        ({"scale": True}, "scale must be a number"),
        ({"scale": 0}, "scale must be positive and finite"),
        ({"scale": -0.125}, "for a negative one pass -q"),
        ({"scale": float("nan")}, "got nan"),
        ({"scale": float("inf")}, "got inf"),
        ({"scale": 1e-38}, "2^-100 to 2^100"),
        ({"k": K[:, :0], "v": K[:, :0]}, "ops.attention returns the result"),
        ({"k": K[:, :, :0], "v": K[:, :, :0]}, "q has 4 heads and k 0"),
    ],
)
def test_what_does_not_fit_is_one_sentence(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError) as error:
        check_attention(**({"q": Q, "k": K, "v": K} | arguments))
    assert words in str(error.value)


def test_strides_that_tma_cannot_take_are_told_by_name() -> None:
    with pytest.raises(tp.BindError, match=r"attention: k: .*positive multiples of 16 bytes"):
        boxed("k", np.broadcast_to(K[:1], K.shape), (16, 64))
    with pytest.raises(tp.BindError, match=r"attention: v: .*dimension 3 must be contiguous"):
        boxed("v", array(2, 16, 64, 2).swapaxes(2, 3), (64, 16), turned=True)


@pytest.mark.parametrize("slope", [0.45, 0.5, 0.6])
def test_weights_below_the_normal_numbers_of_float32_may_be_lost(slope: float) -> None:
    """With a sink, far keys weigh so little that ex2.approx.ftz gives 0."""
    q, k, v = operands(200, 1, 32, heads=1)
    out, lse = np.zeros_like(q), np.zeros((1, 1, 200), np.float32)
    options: dict[str, Any] = {
        "causal": True,
        "align": "first",
        "slopes": np.array([slope], np.float32),
        "sinks": np.ones(1, np.float32),
    }
    kernel.bind(q, k, v, out, lse, AttentionConfig(bn=32), **options).run()
    assert compare_attention(out, q, k, v, lse=lse, **options).ok
    out[0, 10] = 0  # queries near the key do see it
    assert not compare_attention(out, q, k, v, lse=lse, **options).ok
