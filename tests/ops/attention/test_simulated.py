"""ops.attention on NumPy arrays: simulated, and every mistake one sentence."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe.kernels.attention.reference import compare_attention
from tilepipe.ops import attention

Array = npt.NDArray[Any]
BF16 = ml_dtypes.bfloat16


def operands(
    s_q: int,
    s_kv: int,
    d: int = 64,
    heads: int = 2,
    kv_heads: int = 1,
    dtype: Any = BF16,
    batch: int = 2,
) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = (batch, s_q, heads, d), (batch, s_kv, kv_heads, d), (batch, s_kv, kv_heads, d)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize(
    ("s_q", "s_kv", "causal"), [(100, 200, True), (130, 70, True), (40, 300, False)]
)
@pytest.mark.parametrize(("d", "dtype"), [(64, BF16), (128, np.float16)])
def test_what_it_gives_is_attention(
    s_q: int, s_kv: int, causal: bool, d: int, dtype: Any, layout: str
) -> None:
    q, k, v = operands(s_q, s_kv, d, dtype=dtype)
    given = (
        (q, k, v)
        if layout == "bshd"
        else tuple(np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v))
    )
    out, lse = attention(*given, causal=causal, return_lse=True, layout=layout)
    assert out.shape == given[0].shape
    assert out.flags.c_contiguous
    found = compare_attention(
        out if layout == "bshd" else out.swapaxes(1, 2), q, k, v, causal=causal, lse=lse
    )
    assert found.ok, found
    alone = attention(*given, causal=causal, layout=layout)
    assert np.array_equal(alone.view(np.uint16), out.view(np.uint16))


def test_a_scale_of_ones_own_and_settings() -> None:
    q, k, v = operands(70, 90)
    out = attention(q, k, v, scale=float(np.float32(0.3)), bn=64, stages=3, consumers=1)
    assert compare_attention(out, q, k, v, scale=float(np.float32(0.3))).ok
    assert not compare_attention(out, q, k, v).ok


def test_parts_of_a_fused_projection_are_read_and_written_in_place() -> None:
    rng = np.random.default_rng(1)
    fused = rng.standard_normal((2, 60, 4, 3, 64)).astype(np.float16)
    before = fused.copy()
    q, k, v = (fused[:, :, :2, 0], fused[:, :, 2:3, 1], fused[:, :, 3:, 2])
    out = fused[:, :, :2, 2]
    assert attention(q, k, v, out=out) is out
    assert compare_attention(out, q, k, v).ok
    fused[:, :, :2, 2] = before[:, :, :2, 2]
    assert np.array_equal(fused.view(np.uint16), before.view(np.uint16))  # nothing else was written


def test_transposed_operands_give_a_result_laid_out_as_q() -> None:
    q, k, v = operands(40, 50)
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k, v)]
    out = attention(*turned)
    assert out.strides == turned[0].strides
    assert compare_attention(out, q, k, v).ok


@pytest.mark.parametrize("return_lse", [False, True])
@pytest.mark.parametrize(
    ("batch", "s_q", "s_kv", "heads"),
    [(0, 4, 4, 2), (2, 0, 4, 2), (2, 4, 0, 2), (2, 4, 4, 0), (0, 0, 0, 0)],
)
def test_nothing_to_attend_to(
    batch: int, s_q: int, s_kv: int, heads: int, return_lse: bool
) -> None:
    q, k, v = (
        np.zeros((batch, s_q, heads, 64), BF16),
        *(np.zeros((batch, s_kv, heads, 64), BF16) for _ in range(2)),
    )
    out = np.full(q.shape, 7, BF16)
    got = attention(q, k, v, out=out, return_lse=return_lse)
    if return_lse:
        got, lse = got
        assert lse.shape == (batch, heads, s_q)
        assert (lse == -np.inf).all()
    assert got is out
    assert (out == 0).all()


def test_the_seed_changes_the_order_and_not_the_result() -> None:
    q, k, v = operands(70, 90, batch=1)
    first, second = attention(q, k, v), attention(q, k, v, seed=5)
    assert np.array_equal(first.view(np.uint16), second.view(np.uint16))


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    attention(*operands(70, 90, batch=1), progress=lambda done, total: told.append((done, total)))
    assert told
    assert told[-1][0] == told[-1][1]


Q, K, V = operands(8, 16)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"q": Q.tolist()}, "q must be a NumPy array or a tensor of PyTorch, got list"),
        ({"q": Q.astype(np.float32)}, "takes bfloat16 or float16"),
        ({"k": K[..., :32]}, "the same batch and d"),
        ({"q": Q[0]}, "q must have 4 dimensions"),
        ({"layout": "sbhd"}, 'layout is "bshd" or "bhsd", got \'sbhd\''),
        ({"layout": "bhsd"}, "layout='bhsd' exchanges the middle two"),
        ({"bm": 64}, "does not know the setting bm; it has bn, stages"),
        ({"bn": 24}, "bn must be a multiple of 16"),
        ({"bn": 256}, "registers of a thread"),
        ({"scale": -1.0}, "positive"),
        ({"out": Q.tolist()}, "out must be a NumPy array as q, k and v are, got list"),
        ({"out": np.zeros((2, 2, 8, 64), BF16)}, r"out must have the shape \(2, 8, 2, 64\), of q"),
        ({"out": np.broadcast_to(Q[:1], Q.shape)}, "share memory: dimension 0 has"),
        ({"out": Q}, "attention: out shares memory with q, which is still read while out is wri"),
        (
            {"k": np.broadcast_to(K[:1], K.shape)},
            "k: .*: the strides of .*, and dimension 0",
        ),
        (
            {"v": np.asfortranarray(V)},
            "v: .*: elements are .* bytes apart along dimension 3",
        ),
        ({"v": np.asfortranarray(V), "layout": "bshd"}, r"np.array\(v, order='C'\)"),
        ({"causal": "yes"}, "causal is True or False"),
    ],
)
def test_what_does_not_fit_is_one_sentence(options: dict[str, Any], words: str) -> None:
    arguments = {"q": Q, "k": K, "v": V} | options
    with pytest.raises(tp.BindError, match=words):
        attention(arguments.pop("q"), arguments.pop("k"), arguments.pop("v"), **arguments)


def test_settings_are_those_of_the_configuration() -> None:
    with pytest.raises(
        tp.BindError, match=r"stages must be at least 2: .* \(AttentionConfig\(stages=1, "
    ):
        attention(Q, K, V, stages=1)


attend: Any = tp.ops.attention  # as somebody calls it who checks no types


def test_advice_on_other_heads_is_possible() -> None:
    """Zeros make a head longer; none makes one shorter."""
    for d, words in (
        (100, "Shorter ones can be padded with zeros"),
        (320, "256 at most; it has 320"),
    ):
        q = np.zeros((1, 8, 1, d), np.float16)
        with pytest.raises(tp.BindError) as caught:
            attention(q, q, q)
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("casual", "causal="), ("windows", "window="), ("soft_cap", "softcap=")],
)
def test_a_keyword_that_is_misspelt_names_the_one_here(name: str, meant: str) -> None:
    q = np.zeros((1, 8, 1, 64), np.float16)
    with pytest.raises(tp.BindError) as caught:
        attend(q, q, q, **{name: True})
    for words in (f"Did you mean {meant}?", "attention takes q, k, v, causal, window"):
        assert words in str(caught.value)


def test_booleans_of_numpy() -> None:
    q = np.random.default_rng(0).standard_normal((1, 8, 1, 64)).astype(np.float16)
    one, other = (
        attend(q, q, q, causal=x, return_lse=y) for x, y in ((True, True), (np.True_, np.True_))
    )
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.slow
def test_every_option_reaches_the_kernel() -> None:
    rng = np.random.default_rng(3)
    q, k, v = (
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        for shape in ((1, 4, 70, 96), (1, 2, 90, 96), (1, 2, 90, 40))
    )
    slopes, sinks = rng.random(4).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    options: dict[str, Any] = {
        "window": (30, 4),
        "softcap": 6.0,
        "slopes": slopes,
        "sinks": sinks,
        "scale": 0.2,
    }
    out, lse = attention(q, k, v, layout="bhsd", return_lse=True, **options)
    assert out.shape == (1, 4, 70, 40)
    turned = (x.swapaxes(1, 2) for x in (out, q, k, v))
    assert compare_attention(*turned, lse=lse, **options).ok
    for name in options:
        others = {n: x for n, x in options.items() if n != name}
        again = (x.swapaxes(1, 2) for x in (out, q, k, v))
        assert not compare_attention(*again, **others).ok, f"{name} changes the result"


def test_no_keys_leave_the_sinks() -> None:
    q = np.ones((1, 3, 2, 64), np.float16)
    none = np.ones((1, 0, 2, 64), np.float16)
    sinks = np.array([1.0, 2.0], np.float32)
    out, lse = attention(q, none, none, sinks=sinks, return_lse=True)
    assert not out.any()
    assert (lse == sinks[None, :, None]).all()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("is_causal", "write causal="),
        ("softmax_scale", "write scale="),
        ("window_size", "write window=(left, right)"),
        ("attn_mask", "a score function that gives -inf"),
        ("enable_gqa", "leave it out"),
        ("dropout_p", "there is no dropout"),
    ],
)
def test_names_of_other_libraries_are_explained(name: str, words: str) -> None:
    q = np.ones((1, 3, 2, 64), np.float16)
    with pytest.raises(tp.BindError, match=re.escape(f"attention has no argument {name}: ")) as e:
        attend(q, q, q, **{name: 1})
    assert words in str(e.value)


@pytest.mark.parametrize(("layout", "axis"), [("bshd", 1), ("bhsd", 2)])
def test_strides_are_told_as_the_caller_has_them(layout: str, axis: int) -> None:
    x = np.zeros((1, 5, 3, 64), BF16) if axis == 1 else np.zeros((1, 3, 5, 64), BF16)
    words = rf"attention: q: an array of shape \(1, {x.shape[1]}, {x.shape[2]}, 64\): .* dimension"
    words += rf" {axis} has a stride of -"
    with pytest.raises(tp.BindError, match=words):
        attention(np.flip(x, axis), x, x, layout=layout)


def test_addresses_are_those_that_a_gpu_takes() -> None:
    """What runs simulated would otherwise fail on a GPU."""
    wider = np.zeros((1, 5, 2, 72), BF16)
    with pytest.raises(tp.BindError, match=r"attention: q: .*: it must start at a multiple of 16"):
        attention(wider[..., 1:65], wider[..., :64], wider[..., :64])
    attention(wider[..., 8:], wider[..., :64], wider[..., :64])


def test_no_copy_of_out_is_advised() -> None:
    """The result would be in the copy."""
    x = np.zeros((1, 5, 2, 64), BF16)
    words = r"give a contiguous array of shape \(1, 5, 2, 64\), or omit out=; then copy the"
    with pytest.raises(tp.BindError, match=rf"attention: out: .*{words}"):
        attention(x, x, x, out=np.zeros((1, 5, 2, 128), BF16)[..., ::2])


def test_rows_that_are_no_multiple_of_16_bytes_are_padded() -> None:
    x, v = (np.zeros((1, 5, 2, d), ml_dtypes.float8_e4m3fn) for d in (64, 72))
    with pytest.raises(tp.BindError, match=r"v: .*pad its rows to 80 elements"):
        attention(x, x, v)
    padded = np.zeros((1, 5, 2, 80), v.dtype)
    padded[..., :72] = v
    assert attention(x, x, padded[..., :72]).shape == v.shape
