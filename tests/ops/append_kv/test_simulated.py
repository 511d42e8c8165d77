"""ops.append_kv of NumPy arrays and of CPU tensors, which run on the simulated GPU."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.append_kv.reference import appended
from tilepipe.kernels.attention_decode.reference import CacheArrays, compare_decode

append_kv = tp.ops.append_kv
B, E4M3 = tp.bfloat16.numpy, tp.float8_e4m3.numpy
LENGTHS = np.array([5, 0, 16, 9], np.int32)


def operands(dtype: Any = B, page: int = 0, tokens: int = 1) -> dict[str, Any]:
    """The arguments of a call."""
    rng = np.random.default_rng(0)
    n, heads, d = len(LENGTHS), 2, 64
    shape = (n * 16 // page, page, heads, d) if page else (n, 16, heads, d)
    given: dict[str, Any] = {name: np.zeros(shape, dtype) for name in ("k_cache", "v_cache")}
    given |= {name: rng.standard_normal((n, tokens, heads, d)).astype(B) for name in "kv"}
    given["cache_seqlens"] = LENGTHS.copy()
    if page:
        table = rng.permutation(shape[0]).astype(np.int32)
        given["block_table"] = table.reshape(n, -1)
    return given


def wanted(given: dict[str, Any]) -> CacheArrays:
    old = CacheArrays(given["k_cache"], given["v_cache"], given.get("block_table"))
    return appended(old, given["k"], given["v"], given["cache_seqlens"], 16)


@pytest.mark.parametrize("page", [0, 8])
@pytest.mark.parametrize("dtype", [B, E4M3])
def test_arrays_are_written_in_place(dtype: Any, page: int) -> None:
    given = operands(dtype, page, tokens=2)
    want = wanted(given)
    append_kv(**given, seed=2)
    assert np.array_equal(given["k_cache"].view(np.uint8), want.k.view(np.uint8))
    assert np.array_equal(given["v_cache"].view(np.uint8), want.v.view(np.uint8))
    assert want.k.astype(np.float32).any()


@pytest.mark.slow
def test_descales_are_those_of_attention_decode() -> None:
    """What has been appended is what the next call attends to."""
    given = operands(E4M3, 8)
    given["cache_seqlens"] = np.ones(4, np.int32)
    scales = [np.full((4, 2), x, np.float32) for x in (0.01, 0.02)]
    descales: dict[str, Any] = {"k_descale": scales[0], "v_descale": 0.02}
    append_kv(**given, **descales)
    cache = CacheArrays(given["k_cache"], given["v_cache"], given["block_table"], *scales)
    q = np.random.default_rng(1).standard_normal((4, 1, 4, 64)).astype(B)
    lengths = given["cache_seqlens"]
    out = tp.ops.attention_decode(
        q, cache.k, cache.v, cache_seqlens=lengths, block_table=cache.table, **descales
    )
    assert compare_decode(out, q, cache, lengths).ok
    new = given["v"][:, :, [0, 0, 1, 1]].astype(np.float32)
    assert np.allclose(out.astype(np.float32), new, rtol=0.07, atol=1e-3)


def test_keys_and_values_of_one_array() -> None:
    """The two caches may lie beside each other, and so may the new keys and values."""
    given = operands()
    want = wanted(given)
    both = np.zeros((4, 16, 2, 2, 64), B)
    new = np.stack([given["k"], given["v"]], 2)
    append_kv(both[:, :, 0], both[:, :, 1], new[:, :, 0], new[:, :, 1], given["cache_seqlens"])
    assert np.array_equal(both[:, :, 0].view(np.uint16), want.k.view(np.uint16))
    assert np.array_equal(both[:, :, 1].view(np.uint16), want.v.view(np.uint16))


@pytest.mark.parametrize("name", ["k", "k_cache"])
def test_nothing_to_write_is_no_run(name: str) -> None:
    given = operands()
    names = ("k", "v") if name == "k" else ("k_cache", "v_cache")
    given |= {x: given[x][:, :0] for x in names}
    append_kv(**given)
    assert not given["k_cache"].astype(np.float32).any()


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"k": np.zeros((4, 1, 3, 64), B), "v": np.zeros((4, 1, 3, 64), B)},
        "they have 3 of 64 and 2 of 64",
    ),
    (
        {"k": np.zeros((4, 2, 64), B)},
        "k has 4 dimensions (batch, tokens, kv_heads, d), it has shape (4, 2, 64)",
    ),
    (
        {"v": np.zeros((4, 2, 2, 64), B)},
        "k and v have one shape; they have (4, 1, 2, 64) and (4, 2, 2, 64)",
    ),
    (
        {"k": np.zeros((4, 1, 2, 64), np.int32)},
        "k and v are both bfloat16, float16 or float32; got k int32, v bfloat16",
    ),
    (
        {"k_cache": np.zeros((4, 16, 2, 64), np.float32)},
        "k_cache and v_cache are both bfloat16, float16 or float8_e4m3; got k_cache",
    ),
    ({"cache_seqlens": None}, "cache_seqlens says where the new keys go: int32 (4,)"),
    (
        {"cache_seqlens": np.zeros(4, np.int64)},
        "cache_seqlens is int32 of shape (4,), the keys of each sequence; it is int64",
    ),
    ({"cache_seqlens": 7}, "torch.full((4,), 7, dtype=torch.int32"),
    ({"k_descale": 0.5}, "k_descale is of a cache of float8_e4m3"),
    ({"block_table": np.zeros((3, 1), np.int32)}, "block_table is int32 of shape (4, 1)"),
    (
        {"block_table": np.full((4, 1), 4, np.int32)},
        "block_table[0, 0] is 4, and the cache has the pages 0 to 3",
    ),
    (
        {
            "block_table": np.zeros((4, 1), np.int32),
            "k_cache": np.zeros((0, 16, 2, 64), B),
            "v_cache": np.zeros((0, 16, 2, 64), B),
        },
        "block_table[0, 0] is 0, and the cache has no pages; key 4 of sequence 0 is to be written",
    ),
    (
        {
            "block_table": np.array([[0], [1], [2], [0]], np.int32),
            "cache_seqlens": np.array([5, 0, 16, 5], np.int32),
        },
        "block_table: sequences 0 and 3 both write key 4 of page 0, which is block_table[0, 0] and"
        " block_table[3, 0]",
    ),
    (
        {"k_cache": np.zeros((3, 16, 2, 64), B), "v_cache": np.zeros((3, 16, 2, 64), B)},
        "k has 4 sequences and the cache 3; pass block_table=",
    ),
]


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=[words[:20] for _, words in WRONG])
def test_what_does_not_fit(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match="append_kv: .*" + re.escape(words)):
        append_kv(**operands() | changes)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("page_table", "append_kv has no argument page_table: write block_table="),
        ("slot_mapping", "has no argument slot_mapping: write block_table= and cache_seqlens="),
        ("kv_layout", "of one with the heads outside, pass cache.swapaxes(1, 2)"),
        ("out", "has no argument out: k_cache and v_cache are written in place"),
        ("k_scale", "has no argument k_scale: write k_descale="),
        ("kscale", "append_kv has no argument kscale. Did you mean k_descale=? It takes k_cache,"),
        ("block_tabel", "Did you mean block_table=?"),
    ],
)
def test_arguments_that_there_are_not(name: str, words: str) -> None:
    append: Any = append_kv
    decode: Any = tp.ops.attention_decode
    given = operands()
    with pytest.raises(tp.BindError, match=re.escape(words)):
        append(**given, **{name: None})
    del given["cache_seqlens"]
    if name not in ("out", "kscale"):
        with pytest.raises(
            tp.BindError, match=re.escape(words.replace("append_kv", "attention_decode"))
        ):
            decode(given["k"], given["k_cache"], given["v_cache"], **{name: None})


def test_what_is_written_has_memory_of_its_own() -> None:
    given = operands()
    both = "k_cache shares memory with v_cache, which is written, too"
    with pytest.raises(tp.BindError, match=both):
        append_kv(**given | {"v_cache": given["k_cache"]})
    with pytest.raises(tp.BindError, match="v_cache shares memory with k, which is still read"):
        append_kv(**given | {"k": given["v_cache"][:, :1]})
    inside = given["k_cache"].reshape(-1).view(np.int32)[: len(LENGTHS)]
    with pytest.raises(tp.BindError, match="k_cache shares memory with cache_seqlens, which is st"):
        append_kv(**given | {"cache_seqlens": inside})
    given["k_cache"].flags.writeable = False
    with pytest.raises(tp.BindError, match="k_cache is written, and it is read-only"):
        append_kv(**given)


@pytest.mark.parametrize(
    ("stride", "words"),
    [
        (0, "dimension 0 has a stride of 0, as that of an expanded or broadcast view"),
        (1024, "dimension 0 has a stride of 1024 bytes, and what it steps over takes 2048"),
    ],
)
def test_pages_on_top_of_each_other(stride: int, words: str) -> None:
    """They can be written, unlike what np.broadcast_to makes, so the flag does not tell."""
    given = operands(page=8)
    cache = given["v_cache"]
    given["v_cache"] = np.lib.stride_tricks.as_strided(cache, strides=(stride, *cache.strides[1:]))
    with pytest.raises(tp.BindError, match=re.escape(words)) as caught:
        append_kv(**given)
    assert str(caught.value).startswith("append_kv: v_cache is written, and its elements share")


def test_tensors_on_the_cpu() -> None:
    torch = pytest.importorskip("torch")
    given = operands()
    want = wanted(given)
    tensors = {
        n: torch.from_numpy(x.astype(np.float32) if x.dtype == B else x) for n, x in given.items()
    }
    tensors |= {n: x.to(torch.bfloat16) for n, x in tensors.items() if x.dtype == torch.float32}
    before = tensors["k_cache"]._version
    append_kv(**tensors)
    assert np.array_equal(tensors["k_cache"].view(torch.uint16).numpy(), want.k.view(np.uint16))
    assert tensors["k_cache"]._version > before


@pytest.mark.parametrize("name", ["k_cache", "v_cache", "k", "v"])
def test_d_is_contiguous(name: str) -> None:
    """The simulator has the array's strides; a GPU would take the elements side by side."""
    given = operands()
    given[name] = np.repeat(given[name], 2, axis=-1)[..., ::2]
    words = f"append_kv: {name}: an array of shape .* dimension 3 must be contiguous, and its elem"
    with pytest.raises(tp.BindError, match=words):
        append_kv(**given)


def test_an_expanded_tensor_on_the_cpu() -> None:
    torch = pytest.importorskip("torch")
    made = {n: torch.zeros(1, 8, 2, 64, dtype=torch.bfloat16) for n in ("k_cache", "v_cache")}
    given = made | {n: torch.ones(4, 1, 2, 64, dtype=torch.bfloat16) for n in "kv"}
    given["cache_seqlens"] = torch.ones(4, dtype=torch.int32)
    given["k_cache"] = made["k_cache"].expand(4, -1, -1, -1)
    given["v_cache"] = made["v_cache"].repeat(4, 1, 1, 1)
    with pytest.raises(tp.BindError, match="k_cache is written, and its elements share memory"):
        append_kv(**given)


def test_a_token_beyond_the_room_needs_no_page() -> None:
    """Nor does one before the first key; both are left out."""
    given = operands(page=8)
    given["cache_seqlens"] = np.array([3, 17, 0, -4], np.int32)
    given["block_table"][1] = given["block_table"][2:] = -1
    want = wanted(given)
    append_kv(**given)
    assert np.array_equal(given["k_cache"].view(np.uint16), want.k.view(np.uint16))
    given["cache_seqlens"][1] = 16
    with pytest.raises(tp.BindError, match=r"\[1, 1\] is -1, .* key 15 of sequence 1 is"):
        append_kv(**given)


def test_a_page_twice_in_a_sequence() -> None:
    given = operands(page=8, tokens=9)
    given["block_table"][2, 1] = given["block_table"][2, 0]
    with pytest.raises(tp.BindError, match="two tokens of sequence 2 both write key 7 of page"):
        append_kv(**given)
