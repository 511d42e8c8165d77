"""ops.attention_decode of CUDA tensors on the GPU: values beside float64, lengths that change
between replays of a graph, streams, torch.compile, and a decode loop beside PyTorch's attention.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.attention_decode.large_scores import TILE, shared_item
from tilepipe.kernels.attention_decode.reference import CacheArrays, compare_decode, random_cache

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]
DECODE = tp.ops.attention_decode
LENGTHS: dict[str, list[int]] = {
    "one long": [20_000],
    "of all kinds": [1, 0, 64, 65, 4096, 1000, 3],
    "many": [(37 * i) % 1100 for i in range(300)],
    "whole tiles": [512] * 32,
}


NARROW = tp.float8_e4m3


def on_gpu(x: np.ndarray[Any, Any]) -> Any:
    if x.dtype == NARROW.numpy:
        return torch.from_numpy(x.view(np.uint8)).view(torch.float8_e4m3fn).cuda()
    if x.dtype == tp.bfloat16.numpy:
        return torch.from_numpy(x.view(np.uint16)).view(torch.bfloat16).cuda()
    return torch.from_numpy(x).cuda()


def on_host(x: Any) -> Any:
    x = x.cpu()
    if x.dtype == torch.bfloat16:
        return x.view(torch.uint16).numpy().view(tp.bfloat16.numpy)
    return x.numpy()


def operands(
    lengths: list[int],
    *,
    tokens: int = 1,
    heads: int = 8,
    kv_heads: int = 2,
    d: int = 128,
    page: int = 0,
    dtype: tp.DType = tp.bfloat16,
    cache_dtype: tp.DType | None = None,
) -> tuple[dict[str, Any], Any, CacheArrays]:
    """The arguments of a call, and q and the cache on the host."""
    rng = np.random.default_rng(0)
    seen = np.array(lengths, np.int32)
    q = rng.standard_normal((len(lengths), tokens, heads, d), np.float32).astype(dtype.numpy)
    cache = random_cache(rng, seen, max(lengths) + 5, kv_heads, d, cache_dtype or dtype, page)
    given = {"q": q, "k_cache": cache.k, "v_cache": cache.v, "cache_seqlens": seen}
    given |= {} if cache.table is None else {"block_table": cache.table}
    descales = {"k_descale": cache.k_scales, "v_descale": cache.v_scales}
    given |= {name: x for name, x in descales.items() if x is not None}
    return {name: on_gpu(x) for name, x in given.items()}, q, cache


def right(found: Any, given: dict[str, Any], q: Any, cache: CacheArrays, **options: Any) -> None:
    out, lse = found
    lengths = on_host(given["cache_seqlens"])
    compared = compare_decode(on_host(out), q, cache, lengths, lse=on_host(lse), **options)
    assert compared.ok, compared


FAMILIES: dict[str, dict[str, Any]] = {
    "one token": {},
    "four tokens": {"tokens": 4},
    "64 rows": {"tokens": 2, "heads": 32, "kv_heads": 1},
    "d 64": {"d": 64, "tokens": 3},
    "d 80, float16": {"d": 80, "dtype": tp.float16},
    "pages of 16": {"page": 16, "tokens": 2},
    "pages of 64": {"page": 64},
    "pages of 256": {"page": 256, "d": 64},
    "d 192": {"d": 192},
    "d 256": {"d": 256, "tokens": 2, "page": 16},
    "of 8 bits": {"cache_dtype": NARROW},
    "of 8 bits, float16": {"cache_dtype": NARROW, "dtype": tp.float16, "tokens": 3, "d": 64},
    "of 8 bits, pages of 16": {"cache_dtype": NARROW, "page": 16, "heads": 32, "d": 80},
    "of 8 bits, d 192": {"cache_dtype": NARROW, "d": 192},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_values(lengths: list[int], family: str) -> None:
    given, q, cache = operands(lengths, **FAMILIES[family])
    for causal in (True, False):
        found = DECODE(**given, causal=causal, return_lse=True)
        right(found, given, q, cache, causal=causal)


@pytest.mark.parametrize("left", [0, 100, 5000])
@pytest.mark.parametrize("family", ["four tokens", "pages of 16", "of 8 bits", "d 64"])
def test_windows(family: str, left: int) -> None:
    for lengths in (LENGTHS["of all kinds"], LENGTHS["one long"]):
        given, q, cache = operands(lengths, **FAMILIES[family])
        for causal in (True, False):
            seen: dict[str, Any] = {"causal": causal, "window": (left, -1)}
            right(DECODE(**given, **seen, return_lse=True), given, q, cache, **seen)


@pytest.mark.parametrize("left", [0, 100, 5000])
@pytest.mark.parametrize("family", ["four tokens", "pages of 16", "d 80, float16", "d 192"])
def test_windows_of_queries_as_columns(family: str, left: int) -> None:
    """Of 16 bits, which are rows unless asked for otherwise."""
    for lengths in (LENGTHS["of all kinds"], LENGTHS["one long"], LENGTHS["many"]):
        given, q, cache = operands(lengths, **FAMILIES[family])
        seen: dict[str, Any] = {"causal": True, "window": (left, -1)}
        found = DECODE(**given, **seen, return_lse=True, queries="columns")
        right(found, given, q, cache, **seen)


def test_descales_that_are_numbers() -> None:
    given, q, cache = operands(LENGTHS["of all kinds"], cache_dtype=NARROW)
    scales = [np.full_like(cache.k_scales, x) for x in (0.02, 0.5)]
    numbers = CacheArrays(cache.k, cache.v, None, *scales)
    found = DECODE(**given | {"k_descale": 0.02, "v_descale": 0.5}, return_lse=True)
    right(found, given, q, numbers)


@pytest.mark.parametrize(
    "settings",
    [
        {"ctas": 1, "stages": 4},
        {"ctas": 2, "stages": 3, "queries": "rows"},
        {"bn": 32},
        {"bn": 48, "stages": 1},
    ],
)
def test_settings(settings: dict[str, Any]) -> None:
    given, q, cache = operands(LENGTHS["of all kinds"])
    right(DECODE(**given, return_lse=True, **settings), given, q, cache)


@pytest.mark.parametrize("cache", [tp.bfloat16, NARROW], ids=str)
@pytest.mark.parametrize("queries", ["columns", "rows"])
@pytest.mark.parametrize("exponent", [10, 20, 27])
def test_parts_of_large_scores(exponent: int, queries: str, cache: tp.DType) -> None:
    """That several CTAs share: by the logarithms alone they would be combined wrong."""
    for counts in (40, 13), (40, 13, 0, 1):
        given, exact, logarithm = shared_item(2.0**exponent, counts, 8, cache)
        arrays = {name: on_gpu(x) for name, x in given.items()}
        out, lse = DECODE(**arrays, bn=TILE, queries=queries, return_lse=True)
        np.testing.assert_allclose(on_host(out).astype(np.float64), exact, rtol=2**-8)
        np.testing.assert_allclose(on_host(lse), logarithm, rtol=2**-22)


def test_every_launch_gives_the_same_bits() -> None:
    given, _, _ = operands(LENGTHS["many"])
    first = DECODE(**given)
    for _ in range(50):
        assert torch.equal(DECODE(**given), first)


@pytest.mark.parametrize("page", [0, 16])
def test_a_graph_is_replayed_with_other_lengths(page: int) -> None:
    given, q, cache = operands([4000, 700, 3000], page=page, tokens=2)
    DECODE(**given, return_lse=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = DECODE(**given, return_lse=True)
    for lengths in ([4000, 700, 3000], [1, 0, 2999], [3000, 512, 64]):
        given["cache_seqlens"].copy_(torch.tensor(lengths, dtype=torch.int32))
        graph.replay()
        torch.cuda.synchronize()
        right(found, given, q, cache)


def test_streams_do_not_share_tickets() -> None:
    """Two streams, and a graph on a third, at the same time."""
    given, q, cache = operands([9000, 20, 5000])
    DECODE(**given)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(3)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=streams[2]):
        captured = DECODE(**given, return_lse=True)
    results = []
    for _ in range(20):
        for stream in streams[:2]:
            with torch.cuda.stream(stream):
                results.append(DECODE(**given, return_lse=True))
        with torch.cuda.stream(streams[2]):
            graph.replay()
    torch.cuda.synchronize()
    right(captured, given, q, cache)
    for found in results:
        assert torch.equal(found[0], captured[0])
        assert torch.equal(found[1], captured[1])


def test_compile() -> None:
    given, q, cache = operands(LENGTHS["of all kinds"], page=16)
    compiled = torch.compile(lambda x: DECODE(**x, return_lse=True), fullgraph=True)
    right(compiled(given), given, q, cache)


class Model:
    """One layer with a cache: the next token of each sequence from its last one. `attend` is given
    q (batch, 1, heads, d), the cache, new keys and values, and the lengths with them.
    """

    BATCH, HEADS, KV_HEADS, D, ROOM, VOCABULARY = 4, 8, 2, 128, 300, 64

    def __init__(self) -> None:
        generator = torch.Generator("cuda").manual_seed(0)
        hidden = self.HEADS * self.D

        def drawn(*shape: int) -> Any:
            made = torch.randn(shape, generator=generator, device="cuda")
            return (made / hidden**0.5).to(torch.bfloat16)

        self.embedding = drawn(self.VOCABULARY, hidden) * 32
        self.of_q, self.of_out = drawn(hidden, hidden), drawn(hidden, self.VOCABULARY)
        self.of_k, self.of_v = (drawn(hidden, self.KV_HEADS * self.D) for _ in range(2))
        self.row = torch.arange(self.BATCH, device="cuda")
        self.prompts = drawn(2, self.BATCH, self.ROOM, self.KV_HEADS, self.D) * 32
        self.k, self.v = self.prompts.clone()
        self.lengths = torch.empty(self.BATCH, dtype=torch.int32, device="cuda")
        self.tokens = torch.empty_like(self.row)
        self.start()

    def start(self) -> None:
        """Prompts of different lengths, in the memory that a graph has captured."""
        self.k.copy_(self.prompts[0])
        self.v.copy_(self.prompts[1])
        self.lengths.copy_(torch.tensor([1, 130, 64, 7], dtype=torch.int32))
        self.tokens.copy_(self.row)

    def step(self, attend: Any) -> Any:
        """Takes the last tokens into the cache, and replaces them; gives the logits."""
        x = self.embedding[self.tokens]
        self.lengths.add_(1)
        q = (x @ self.of_q).view(self.BATCH, 1, self.HEADS, self.D)
        k, v = ((x @ y).view(self.BATCH, 1, self.KV_HEADS, self.D) for y in (self.of_k, self.of_v))
        out = attend(q, self.k, self.v, k, v, self.lengths)
        logits = out.reshape(self.BATCH, -1).float() @ self.of_out.float()
        self.tokens.copy_(logits.argmax(-1))
        return logits


def ours(q: Any, k: Any, v: Any, new_k: Any, new_v: Any, lengths: Any) -> Any:
    tp.ops.append_kv(k, v, new_k, new_v, lengths)
    return DECODE(q, k, v, cache_seqlens=lengths)


def pytorch(q: Any, k: Any, v: Any, new_k: Any, new_v: Any, lengths: Any) -> Any:
    place = torch.arange(len(k), device="cuda"), lengths.long() - 1
    k.index_put_(place, new_k[:, 0])
    v.index_put_(place, new_v[:, 0])
    seen = torch.arange(k.shape[1], device="cuda") < lengths[:, None]
    given = [x.transpose(1, 2) for x in (q, k, v)]
    made = torch.nn.functional.scaled_dot_product_attention(
        *given, attn_mask=seen[:, None, None], enable_gqa=True
    )
    return made.transpose(1, 2)


def test_a_decode_loop_in_a_graph_gives_the_tokens_of_pytorch() -> None:
    """Lengths grow on the device, between replays of one graph. At each step PyTorch is given the
    tokens before, so that where two are nearly as likely the other choice does not change the rest.
    """
    steps, model = 100, Model()
    model.step(ours)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model.step(ours)
    model.start()
    tokens = [model.tokens.clone()]
    for _ in range(steps):
        graph.replay()
        tokens.append(model.tokens.clone())
    model.start()
    clear = 0
    for last, chosen in itertools.pairwise(tokens):
        model.tokens.copy_(last)
        best = model.step(pytorch).topk(2)
        near = best.values[:, 0] - best.values[:, 1] < 0.01 * best.values.abs().max()
        assert ((best.indices[:, 0] == chosen) | near).all()
        clear += int((~near).sum())
    assert clear > 0.7 * steps * model.BATCH
    assert len({int(x) for x in torch.stack(tokens).flatten()}) > 10
