"""ops.attention_decode of NumPy arrays and of CPU tensors, which run on the simulated GPU."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.attention_decode.reference import CacheArrays, compare_decode, random_cache

attention_decode = tp.ops.attention_decode
LENGTHS = np.array([70, 0, 131], np.int32)


NARROW = tp.float8_e4m3


def operands(
    page: int = 0,
    tokens: int = 1,
    dtype: tp.DType = tp.bfloat16,
    cache_dtype: tp.DType | None = None,
) -> tuple[Any, CacheArrays]:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((3, tokens, 4, 64)).astype(dtype.numpy)
    return q, random_cache(rng, LENGTHS, 160, 2, 64, cache_dtype or dtype, page)


@pytest.mark.slow
@pytest.mark.parametrize("page", [0, 16])
@pytest.mark.parametrize("causal", [False, True])
def test_numpy(page: int, causal: bool) -> None:
    q, cache = operands(page, tokens=2)
    given: dict[str, Any] = {"cache_seqlens": LENGTHS, "block_table": cache.table, "causal": causal}
    out, lse = attention_decode(q, cache.k, cache.v, return_lse=True, **given)
    found = compare_decode(out, q, cache, LENGTHS, causal=causal, lse=lse)
    assert found.ok, found
    written = np.full_like(q, 7)
    assert attention_decode(q, cache.k, cache.v, out=written, seed=3, **given) is written
    assert np.array_equal(written, out)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [tp.bfloat16, tp.float16])
def test_a_cache_of_8_bits(dtype: tp.DType) -> None:
    """With descales of each head, and with numbers."""
    q, cache = operands(16, 2, dtype, NARROW)
    given: dict[str, Any] = {"cache_seqlens": LENGTHS, "block_table": cache.table}
    descales: dict[str, Any] = {"k_descale": cache.k_scales, "v_descale": cache.v_scales}
    out, lse = attention_decode(q, cache.k, cache.v, return_lse=True, **given, **descales)
    found = compare_decode(out, q, cache, LENGTHS, lse=lse)
    assert found.ok, found
    out = attention_decode(q, cache.k, cache.v, k_descale=0.01, v_descale=2, **given)
    numbers = [np.full((3, 2), x, np.float32) for x in (0.01, 2)]
    found = compare_decode(out, q, CacheArrays(cache.k, cache.v, cache.table, *numbers), LENGTHS)
    assert found.ok, found


def test_numbers_of_8_bits_are_exact() -> None:
    """Every finite e4m3 as a value that one key has, and as a key; what float16 cannot hold of a
    bfloat16 q is no loss.
    """
    every = np.arange(256, dtype=np.uint8).view(NARROW.numpy)
    finite = every[np.isfinite(every.astype(np.float32))]
    values = np.zeros((1, 64, 1, 256), np.float32)
    values[..., : len(finite)] = finite.astype(np.float32)
    cache = np.concatenate([values[..., :128], values[..., 128:]], 2).astype(NARROW.numpy)
    q = np.full((1, 1, 2, 128), 2.0**60, tp.bfloat16.numpy)
    out, lse = attention_decode(
        q, cache, cache, cache_seqlens=np.ones(1, np.int32), scale=2.0**-60, return_lse=True
    )
    assert np.array_equal(out[0, 0], cache[0, 0].astype(tp.bfloat16.numpy))
    sums = cache[0, 0].astype(np.float64).sum(1)
    assert np.allclose(lse[0, :, 0], sums, rtol=1e-6)


@pytest.mark.parametrize("octaves", [-90, 115, 116, 121, 127])
def test_all_of_bfloat16_beside_a_cache_of_8_bits(octaves: int) -> None:
    """A power of two that q is multiplied with, and k_descale or the scale divided, has no
    effect. Without one the largest score of a large q has all of the weight.
    """
    rng = np.random.default_rng(0)
    k, v = (rng.standard_normal((1, 40, 1, 64)).astype(NARROW.numpy) for _ in range(2))
    q = rng.uniform(-1, 1, (1, 1, 2, 64)).astype(tp.bfloat16.numpy)
    large = (q.astype(np.float32) * np.float32(2.0) ** octaves).astype(q.dtype)
    wanted, of_wanted = attention_decode(q, k, v, k_descale=1.5, return_lse=True)
    descale = np.full((1, 1), 1.5 * 2.0**-octaves, np.float32)
    for one in (1.5 * 2.0**-octaves, descale):
        out, lse = attention_decode(large, k, v, k_descale=one, return_lse=True)
        assert np.array_equal(out, wanted)
        assert np.allclose(lse, of_wanted, rtol=1e-6)
    if octaves > 0:
        alone = np.zeros_like(large)
        alone[..., 0] = np.float32(2.0) ** octaves
        out = attention_decode(alone, k, v)
        first = k[0, :, 0, 0].astype(np.float32)
        heaviest = v[0, first == first.max(), 0].astype(np.float32).mean(0)
        assert np.allclose(out[0, 0].astype(np.float32), heaviest, rtol=2**-8)
        k_of_0 = np.zeros_like(k)  # of which a score is 0, however large q and the scale are
        out = attention_decode(alone, k_of_0, v, scale=2.0**20)
        assert np.isfinite(out.astype(np.float32)).all()


@pytest.mark.slow
@pytest.mark.parametrize("window", [(40, -1), (0, None), [200, 0]])
def test_windows(window: Any) -> None:
    """What is before it may be NaN, and needs no page."""
    q, cache = operands(16, 3)
    assert cache.table is not None
    k, v, table = cache.k.copy(), cache.v.copy(), cache.table.copy()
    for b, length in enumerate(LENGTHS):
        first = max(length - 3 - window[0], 0)
        k[table[b, first // 16], : first % 16] = np.nan
        v[table[b, first // 16], : first % 16] = np.nan
        table[b, : first // 16] = -1
    given: dict[str, Any] = {"cache_seqlens": LENGTHS, "block_table": table, "window": window}
    for causal in (True, False):
        out = attention_decode(q, k, v, causal=causal, **given)
        found = compare_decode(out, q, cache, LENGTHS, causal=causal, window=tuple(window))
        assert found.ok, found


@pytest.mark.slow
def test_settings_and_scale_reach_the_kernel() -> None:
    q, cache = operands(dtype=tp.float16)
    out = attention_decode(
        q, cache.k, cache.v, cache_seqlens=LENGTHS, scale=0.3, bn=32, stages=2, ctas=1
    )
    found = compare_decode(out, q, cache, LENGTHS, scale=0.3)
    assert found.ok, found


@pytest.mark.slow
def test_parts_of_larger_arrays_are_read_where_they_lie() -> None:
    q, cache = operands()
    wide = np.zeros((3, 1, 12, 64), q.dtype)  # q, k and v of a fused projection
    wide[:, :, :4] = q
    fused = np.stack([cache.k, cache.v], 3)  # a cache that has K and V beside each other
    out = attention_decode(
        wide[:, :, :4], fused[..., 0, :], fused[..., 1, :], cache_seqlens=LENGTHS
    )
    found = compare_decode(np.ascontiguousarray(out), q, cache, LENGTHS)
    assert found.ok, found


def test_tensors_on_the_cpu() -> None:
    torch = pytest.importorskip("torch")
    q, cache = operands(page=16, dtype=tp.float16)
    given = [torch.from_numpy(x) for x in (q, cache.k, cache.v)]
    assert cache.table is not None
    table, lengths = torch.from_numpy(cache.table), torch.from_numpy(LENGTHS)
    out, lse = attention_decode(*given, cache_seqlens=lengths, block_table=table, return_lse=True)
    found = compare_decode(out.numpy(), q, cache, LENGTHS, lse=lse.numpy())
    assert found.ok, found


@pytest.mark.parametrize(
    ("batch", "tokens", "keys", "most"),
    [(0, 1, 160, 0), (3, 0, 160, 0), (3, 1, 0, 0), (3, 2, 16, 3)],
)
def test_nothing_to_multiply(batch: int, tokens: int, keys: int, most: int) -> None:
    """No sequence, no token, no room in the cache; a table of a cache without pages."""
    q = np.ones((batch, tokens, 4, 64), np.float16)
    k = np.ones((0 if most else batch, keys, 2, 64), np.float16)
    table = np.zeros((batch, most), np.int32) if most else None
    lengths = np.zeros(batch, np.int32)
    out, lse = attention_decode(
        q, k, k.copy(), cache_seqlens=lengths, block_table=table, return_lse=True
    )
    assert out.shape == q.shape
    assert not out.any()
    assert lse.shape == (batch, 4, tokens)
    assert (lse == -np.inf).all()


def shifted(x: Any) -> Any:
    """The same, two bytes off a multiple of 16."""
    wider = np.zeros((*x.shape[:-1], x.shape[-1] + 8), x.dtype)
    wider[..., 1 : x.shape[-1] + 1] = x
    return wider[..., 1 : x.shape[-1] + 1]


Q, CACHE = operands()
OF_8_BITS = {
    name: x.astype(NARROW.numpy) for name, x in {"k_cache": CACHE.k, "v_cache": CACHE.v}.items()
}
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"q": Q[0]}, "q has 4 dimensions (batch, tokens, heads, d), it has shape (1, 4, 64)"),
    ({"q": 3}, "q must be a NumPy array or a tensor of PyTorch, got int"),
    ({"cache_seqlens": LENGTHS[:2]}, "cache_seqlens is int32 of shape (3,), the keys of each"),
    ({"cache_seqlens": 70}, "torch.full((3,), 70, dtype=torch.int32, device=...), or np.full"),
    (
        {"cache_seqlens": np.repeat(LENGTHS, 2)[::2]},
        "attention_decode: cache_seqlens: an array of shape (3,) with strides (8,) bytes is not"
        " contiguous; a kernel needs a stride of one element (4 bytes). Make a contiguous copy: np",
    ),
    (
        OF_8_BITS | {"k_descale": np.ones((6, 4), np.float32)[::2, ::2]},
        "attention_decode: k_descale: an array of shape (3, 2) with strides (32, 8) bytes is contig"
        "uous in neither of its last two dimensions; a kernel needs",
    ),
    ({"out": Q}, "attention_decode: out shares memory with q, which is still read while out is"),
    (
        {"k_cache": CACHE.k[:, ::-1]},
        f"k_cache: an array of shape {CACHE.k.shape}: the strides of all dimensions but the last",
    ),
    ({"v_cache": shifted(CACHE.v)}, "it must start at a multiple of 16 bytes, and starts 2 bytes"),
    ({"k": Q}, "attention_decode has no argument k: ops.append_kv writes new keys to k_cache"),
    ({"softmax_scale": 1.0}, "attention_decode has no argument softmax_scale: write scale="),
    ({"window_size": (5, 0)}, "has no argument window_size: write window=(left, right)"),
    ({"window": 5}, "attention_decode: window is a pair (left, right)"),
    ({"window": (5, 3), "causal": False}, "window's right is None or -1 (no bound) or 0"),
    ({"k_descale": 0.5}, "k_descale is of a cache of float8_e4m3; one of 16 bits needs none"),
    (OF_8_BITS | {"k_descale": -1.0}, "k_descale is float32 of shape (batch, kv_heads), or a numb"),
    (OF_8_BITS | {"v_descale": np.ones((3, 2))}, "or a number; it is float64 of (3, 2)"),
    (
        OF_8_BITS | {"v_descale": np.ones((3, 4), np.float32)},
        "is float32 of shape (3, 2), (batch, kv_heads), or a number; it is float32 of (3, 4)",
    ),
    (
        OF_8_BITS | {"k_descale": np.full((3, 2), -1, np.float32)},
        "k_descale has numbers from 0 to 2^100; of (0, 0), (batch, kv_head), it is -1.0",
    ),
    (
        OF_8_BITS | {"k_descale": np.array([[1, 1], [1, np.nan], [1, 1]], np.float32)},
        "k_descale has numbers from 0 to 2^100; of (1, 1), (batch, kv_head), it is nan",
    ),
    (
        OF_8_BITS | {"v_descale": np.full((3, 2), np.inf, np.float32)},
        "v_descale has numbers from 0 to 2^100; of (0, 0), (batch, kv_head), it is inf",
    ),
    (
        OF_8_BITS | {"k_descale": np.full((3, 2), 2.0**100, np.float32), "scale": 2.0**90},
        "scale · k_descale is what scores are multiplied with, at most 2^100; scale is 1.238e+27",
    ),
    (
        OF_8_BITS | {"k_descale": 2**100, "scale": 2.0**90},
        "scale is 1.238e+27 here, and the product 1.569e+57: lower k_descale",
    ),
    (
        {"k_cache": CACHE.k.astype(NARROW.numpy)},
        "or for both of the cache float8_e4m3; got q bfloat16, k_cache float8_e4m3, v_cache bf",
    ),
    (OF_8_BITS | {"bn": 32}, "a warpgroup widens 64 at once, so it is a multiple of 64"),
    ({"q_descale": 1.0}, "q is bfloat16 or float16, also where the cache is float8_e4m3"),
    ({"causual": True}, "Did you mean causal=?"),
    ({"causal": 2}, "attention_decode: causal"),
    ({"bn": 20}, "bn must be a multiple of 16 up to 160"),
]


@pytest.mark.parametrize(("change", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_arguments_that_do_not_fit(change: dict[str, Any], words: str) -> None:
    good = {"q": Q, "k_cache": CACHE.k, "v_cache": CACHE.v, "cache_seqlens": LENGTHS}
    with pytest.raises(tp.BindError) as caught:
        attention_decode(**(good | change))
    assert words in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("number", [-1, 4, 999])
def test_pages_that_are_not_in_the_cache(number: int) -> None:
    """Entries that a sequence needs are asked, others may be anything."""
    rng = np.random.default_rng(0)
    k, v = (rng.standard_normal((4, 16, 1, 64)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((2, 1, 1, 64)).astype(np.float16)
    table, lengths = np.array([[0, 1], [2, number]], np.int32), np.array([17, 16], np.int32)
    assert np.isfinite(attention_decode(q, k, v, cache_seqlens=lengths, block_table=table)).all()
    lengths[1] += 1
    words = re.escape(f"block_table[1, 1] is {number}, and the cache has the pages 0 to 3; of seq")
    for given in (lengths, None):
        with pytest.raises(tp.BindError, match=words):
            attention_decode(q, k, v, cache_seqlens=given, block_table=table)


def test_keys_in_a_cache_of_no_pages() -> None:
    q, cache = np.zeros((1, 1, 2, 64), np.float16), np.zeros((0, 8, 2, 64), np.float16)
    table, lengths = np.zeros((1, 2), np.int32), np.array([9], np.int32)
    with pytest.raises(tp.BindError, match=r"block_table\[0, 0\] is 0, and the cache has no pages"):
        tp.ops.attention_decode(q, cache, cache, cache_seqlens=lengths, block_table=table)
    lengths[0] = 0
    out = tp.ops.attention_decode(q, cache, cache, cache_seqlens=lengths, block_table=table)
    assert not out.any()


def test_queries_that_cannot_be_columns() -> None:
    """Asked for by name; of a tile for which the kernel takes rows by itself, without a word."""
    q, cache = operands(0, 1, tp.float16)
    ops = {"q": q, "k_cache": cache.k, "v_cache": cache.v}
    with pytest.raises(tp.BindError) as caught:
        tp.ops.attention_decode(**ops, bn=32, queries="columns")
    assert "a multiple of 64; with bn=32 queries are rows: give bn=64, if it fits" in str(
        caught.value
    )
    rows = tp.ops.attention_decode(**ops, bn=32, queries="rows")
    np.testing.assert_array_equal(tp.ops.attention_decode(**ops, bn=32), rows)
