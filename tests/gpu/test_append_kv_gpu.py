"""ops.append_kv of CUDA tensors on the GPU: what is written and what is not, between replays of a
graph, under torch.compile, and in a loop of decoding over pages of 8 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.gpu.test_attention_decode_gpu import on_gpu, on_host
from tests.kernels.append_kv.test_sm90 import FAMILIES, ROOM, problem
from tilepipe.kernels.append_kv.reference import appended
from tilepipe.kernels.attention_decode.reference import CacheArrays, compare_decode

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]


def bytes_of(x: Any) -> Any:
    return x.view(torch.uint8).cpu().numpy()


def given_of(cache: CacheArrays, k: Any, v: Any, lengths: Any) -> dict[str, Any]:
    given = {"k_cache": cache.k, "v_cache": cache.v, "k": k, "v": v, "cache_seqlens": lengths}
    given |= {"block_table": cache.table, "k_descale": cache.k_scales, "v_descale": cache.v_scales}
    return {name: None if x is None else on_gpu(x) for name, x in given.items()}


def right(given: dict[str, Any], want: CacheArrays) -> None:
    for name, x in (("k_cache", want.k), ("v_cache", want.v)):
        assert np.array_equal(bytes_of(given[name]), x.view(np.uint8))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family: str) -> None:
    cache, k, v, lengths = problem(**FAMILIES[family])
    given = given_of(cache, k, v, lengths)
    tp.ops.append_kv(**given)
    right(given, appended(cache, k, v, lengths, ROOM))


@pytest.mark.parametrize("family", ["default", "of 8 bits, pages"])
def test_a_graph_is_replayed_with_other_lengths(family: str) -> None:
    cache, k, v, lengths = problem(**FAMILIES[family])
    given = given_of(cache, k, v, lengths)
    tp.ops.append_kv(**given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tp.ops.append_kv(**given)
    want = appended(cache, k, v, lengths, ROOM)
    for add in (3, 10):
        given["cache_seqlens"].add_(add)
        lengths = lengths + np.int32(add)
        graph.replay()
        want = appended(want, k, v, lengths, ROOM)
        right(given, want)


@pytest.mark.parametrize("family", ["pages", "of 8 bits"])
def test_compile(family: str) -> None:
    """What is written is seen by what comes after it in the compiled function."""
    cache, k, v, lengths = problem(**FAMILIES[family])
    given = given_of(cache, k, v, lengths)

    def f(**x: Any) -> Any:
        tp.ops.append_kv(**x)
        return x["k_cache"].view(torch.uint8) + 0

    after = torch.compile(f, fullgraph=True)(**given)
    want = appended(cache, k, v, lengths, ROOM)
    right(given, want)
    assert np.array_equal(after.cpu().numpy(), want.k.view(np.uint8))


def test_a_loop_of_decoding_over_pages_of_8_bits() -> None:
    """One graph writes a token and attends to all; at the end the cache and the last result are
    those of all tokens.
    """
    steps, batch, heads, kv_heads, d, page = 40, 3, 8, 2, 128, 16
    rng = np.random.default_rng(0)
    table = rng.permutation(batch * 4).astype(np.int32).reshape(batch, 4)
    scales = [rng.uniform(0.005, 0.02, (batch, kv_heads)).astype(np.float32) for _ in range(2)]
    empty = np.zeros((batch * 4, page, kv_heads, d), tp.float8_e4m3.numpy)
    cache = CacheArrays(empty, empty.copy(), table, *scales)
    drawn = [
        rng.standard_normal((steps, batch, 1, n, d)).astype(tp.bfloat16.numpy)
        for n in (heads, kv_heads, kv_heads)
    ]
    lengths = np.array([0, 5, 20], np.int32)
    given = given_of(cache, drawn[1][0], drawn[2][0], lengths)
    q = on_gpu(drawn[0][0])
    all_new = [on_gpu(x) for x in drawn]

    def step() -> Any:
        given["cache_seqlens"].add_(1)
        tp.ops.append_kv(**given)
        names = "k_cache", "v_cache", "cache_seqlens", "block_table", "k_descale", "v_descale"
        return tp.ops.attention_decode(q, **{name: given[name] for name in names})

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for name in ("k_cache", "v_cache"):
        given[name].view(torch.uint8).zero_()
    given["cache_seqlens"].copy_(torch.from_numpy(lengths))
    for i in range(steps):
        for target, new in zip((q, given["k"], given["v"]), all_new, strict=True):
            target.copy_(new[i])
        graph.replay()
    want = cache
    for i in range(steps):
        lengths = lengths + np.int32(1)
        want = appended(want, drawn[1][i], drawn[2][i], lengths, 4 * page)
    right(given, want)
    found = compare_decode(on_host(out), drawn[0][-1], want, lengths)
    assert found.ok, found
