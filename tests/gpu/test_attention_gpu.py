"""ops.attention of CUDA tensors on the GPU: values beside float64, layouts, streams, graphs,
threads, torch.compile.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.ops.attention_layouts import EMPTY, REFUSED, TAKEN
from tests.gpu.tensors import child
from tilepipe.kernels.attention.reference import compare_attention

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]
BF16, FP16 = torch.bfloat16, torch.float16
attention = tp.ops.attention


def tensor(*shape: int, dtype: Any = BF16, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).cuda()


def operands(
    s_q: int,
    s_kv: int,
    heads: int = 4,
    kv_heads: int = 2,
    d: int = 64,
    dtype: Any = BF16,
    batch: int = 2,
    seed: int = 0,
) -> list[Any]:
    shapes = (s_q, heads), (s_kv, kv_heads), (s_kv, kv_heads)
    return [
        tensor(batch, *shape, d, dtype=dtype, seed=3 * seed + i) for i, shape in enumerate(shapes)
    ]


def right(out: Any, q: Any, k: Any, v: Any, lse: Any = None, **options: Any) -> None:
    """Compares with float64: every element within its bound."""
    arrays = (x.contiguous().cpu() for x in (out, q, k, v))
    got, *given = (
        x.view(torch.uint16).numpy().view(tp.bfloat16.numpy) if x.dtype == BF16 else x.numpy()
        for x in arrays
    )
    found = compare_attention(
        got, *given, lse=None if lse is None else lse.cpu().numpy(), **options
    )
    assert found.ok, found


LENGTHS = [
    (128, 128),
    (200, 200),
    (1, 1),
    (1, 777),
    (777, 1),
    (300, 1000),
    (1000, 300),
    (64, 4096),
    (513, 511),
]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", [BF16, FP16], ids=str)
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize(("s_q", "s_kv"), LENGTHS)
def test_lengths(s_q: int, s_kv: int, d: int, dtype: Any, causal: bool) -> None:
    q, k, v = operands(s_q, s_kv, d=d, dtype=dtype)
    out, lse = attention(q, k, v, causal=causal, return_lse=True)
    right(out, q, k, v, lse, causal=causal)
    assert torch.equal(attention(q, k, v, causal=causal), out)  # without lse, and a second time


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (8, 8), (8, 1), (12, 4), (3, 3)])
@pytest.mark.parametrize("d", [64, 128])
def test_heads_that_share_keys_and_values(heads: int, kv_heads: int, d: int) -> None:
    q, k, v = operands(260, 390, heads, kv_heads, d, batch=3)
    out, lse = attention(q, k, v, causal=True, return_lse=True)
    right(out, q, k, v, lse, causal=True)


@pytest.mark.parametrize("d", [64, 128])
def test_queries_without_keys(d: int) -> None:
    q, k, v = operands(700, 100, d=d)
    out, lse = attention(q, k, v, causal=True, return_lse=True)
    assert bool((out[:, :600] == 0).all())
    assert bool((lse[:, :, :600] == -torch.inf).all())
    right(out, q, k, v, lse, causal=True)


OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"window": (70, 3)},
    "causal window": {"window": (40, None), "causal": True},
    "softcap": {"softcap": 5.0},
    "slopes": {"slopes": [0.5, 0.25, 0.125, 0.0625], "causal": True},
    "sinks": {"sinks": [1.0, -2.0, 0.0, 3.0], "causal": True},
    "all": {"window": (90, 9), "softcap": 8.0, "slopes": [0.1] * 4, "sinks": [0.5] * 4},
}


@pytest.mark.parametrize(("d", "d_v"), [(64, 64), (96, 72), (128, 128), (192, 128), (256, 256)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_windows_and_changed_scores(d: int, d_v: int, options: dict[str, Any]) -> None:
    q, k, _ = operands(300, 400, d=d)
    v = tensor(2, 400, 2, d_v, seed=9)
    of_heads = {n: x for n, x in options.items() if n in ("slopes", "sinks")}
    given = options | {n: torch.tensor(x).cuda() for n, x in of_heads.items()}
    arrays = options | {n: np.array(x, np.float32) for n, x in of_heads.items()}
    out, lse = attention(q, k, v, return_lse=True, **given)
    assert tuple(out.shape) == (2, 300, 4, d_v)
    right(out, q, k, v, lse, **arrays)


def only_even(
    ctx: tp.Context,
    x: tp.FragmentValue,
    query: tp.FragmentValue,
    key: tp.FragmentValue,
    head: tp.Value,
) -> tp.FragmentValue:
    return ctx.select((query + key) % 2 == 0, x, -np.inf)


def test_a_score_function() -> None:
    q, k, v = operands(300, 400, d=128)
    out = attention(q, k, v, score=only_even)
    right(out, q, k, v, score=lambda x, i, j, h: np.where((i + j) % 2 == 0, x, -np.inf))


def test_options_under_the_compiler() -> None:
    q, k, v = operands(100, 200, d=64)
    sinks = torch.ones(4, device="cuda")

    def f(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, window=(30, None), causal=True, softcap=9.0, sinks=sinks)

    assert torch.equal(torch.compile(f, fullgraph=True)(q, k, v), f(q, k, v))


@pytest.mark.parametrize("exponent", [10, 15, 20, 30])
@pytest.mark.parametrize("d", [64, 128])
def test_large_scores(d: int, exponent: int) -> None:
    """Two keys, the first and the last of many tiles, have the largest score: the result is the
    mean of their values, whatever the size of the scores.
    """
    keys, side = 8192, (2.0**exponent / 1.5 * d**0.5 * 0.6931) ** 0.5
    q, k, v = (torch.zeros(1, n, 2, d) for n in (256, keys, keys))
    q[..., 0] = side * (1 + torch.arange(256)[None, :, None] / 256)
    k[..., 0] = -side
    k[:, [0, -1], :, 0] = side
    v[:, 0], v[:, -1] = 1, 3
    out = attention(*(x.to(BF16).cuda() for x in (q, k, v)))
    assert float((out.float() - 2).abs().max()) <= 2**-6


@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("d", [64, 128])
def test_flat_and_peaked_probabilities(d: int, spread: float) -> None:
    q, k, v = operands(300, 500, d=d)
    q = (q.float() * spread).to(BF16)
    out, lse = attention(q, k, v, return_lse=True)
    right(out, q, k, v, lse)
    right(attention(q, k, v, scale=0.05), q, k, v, scale=0.05)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_long(d: int, causal: bool) -> None:
    q, k, v = operands(4096, 4096, 2, 1, d, batch=1)
    out, lse = attention(q, k, v, causal=causal, return_lse=True)
    right(out, q, k, v, lse, causal=causal)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_many_tiles_beside_pytorch(d: int, causal: bool) -> None:
    """Several times more tiles than SMs: the persistent loop and its rings, compared with PyTorch
    in float32.
    """
    q, k, v = operands(2048, 2048, 16, 4, d, batch=4)
    out = attention(q, k, v, causal=causal)
    wide = [
        x.transpose(1, 2).float() for x in (q, k.repeat_interleave(4, 2), v.repeat_interleave(4, 2))
    ]
    want = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=causal).transpose(1, 2)
    assert float((out.float() - want).norm() / want.norm()) < 4e-3
    assert float((out.float() - want).abs().max()) < 0.05


@pytest.mark.parametrize("layout", TAKEN)
@pytest.mark.parametrize("d", [64, 128])
def test_layouts(layout: str, d: int) -> None:
    q, k, v = operands(200, 200, d=d)
    given = TAKEN[layout](q, k, v)
    right(attention(*given, causal=True), q, k, v, causal=True)
    out = TAKEN[layout](torch.zeros_like(q), k, v)[0]
    assert attention(*given, causal=True, out=out) is out
    right(out, q, k, v, causal=True)
    turned = [x.transpose(1, 2) for x in given]
    made = attention(*turned, causal=True, layout="bhsd")
    assert torch.equal(made.transpose(1, 2), out)


@pytest.mark.parametrize("layout", REFUSED)
def test_layouts_that_tma_does_not_take(layout: str) -> None:
    q, k, v = operands(64, 64)
    change, words = REFUSED[layout]
    with pytest.raises(tp.BindError, match=f"attention: k: .*{words}"):
        attention(q, change(k), v)


@pytest.mark.parametrize(("batch", "s_q", "s_kv", "heads"), EMPTY)
def test_nothing_to_attend_to(batch: int, s_q: int, s_kv: int, heads: int) -> None:
    q, k, v = (
        tensor(batch, s_q, heads, 64),
        tensor(batch, s_kv, heads, 64),
        tensor(batch, s_kv, heads, 64),
    )
    out, lse = attention(q, k, v, return_lse=True)
    assert (tuple(out.shape), tuple(lse.shape)) == ((batch, s_q, heads, 64), (batch, heads, s_q))
    assert bool((out == 0).all())
    assert bool((lse == -torch.inf).all())


@pytest.mark.parametrize(
    "settings",
    [
        {"consumers": 1},
        {"consumers": 2, "bn": 64, "stages": 3},
        {"order": "free"},
        {"schedule": "single"},
        {"schedule": "persistent"},
        {"schedule": "dynamic", "group": 2},
        {"qk_stages": 1, "bn": 64, "store": "tile"},
    ],
    ids=str,
)
@pytest.mark.parametrize("d", [64, 128])
def test_settings(settings: dict[str, Any], d: int) -> None:
    q, k, v = operands(500, 700, d=d)
    settings = {"consumers": 2, "bn": 64} | settings  # what fits the registers with both depths
    for causal in (False, True):
        out, lse = attention(q, k, v, causal=causal, return_lse=True, **settings)
        right(out, q, k, v, lse, causal=causal)


@pytest.mark.parametrize("d", [64, 128])
def test_repeated_launches_agree_in_every_bit(d: int) -> None:
    q, k, v = operands(1500, 1500, 8, 2, d)
    for causal in (False, True):
        first, lse = attention(q, k, v, causal=causal, return_lse=True)
        for _ in range(20):
            again, other = attention(q, k, v, causal=causal, return_lse=True)
            assert torch.equal(again, first)
            assert torch.equal(other, lse)


def test_the_current_stream_is_used() -> None:
    q, k, v = operands(256, 256)
    late, zeros = q.clone(), torch.zeros_like(v)
    attention(q, k, zeros)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # cycles; other processes share the GPU, so a launch may take a while
        torch.cuda._sleep(500_000_000)
        zeros.copy_(v)
        made = attention(late, k, zeros)
    elsewhere = attention(q, k, zeros)  # on the default stream, which does not wait
    torch.cuda.synchronize()
    right(made, q, k, v)
    assert bool((elsewhere == 0).all())


def test_graph_capture() -> None:
    q, k, v = operands(300, 500)
    out = torch.empty_like(q)
    attention(q, k, v, causal=True, out=out, return_lse=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _, lse = attention(q, k, v, causal=True, out=out, return_lse=True)
        squared = attention(out, k, v)
    for seed in range(1, 4):
        for x, y in zip((q, k, v), operands(300, 500, seed=seed), strict=True):
            x.copy_(y)
        graph.replay()
        torch.cuda.synchronize()
        right(out, q, k, v, lse, causal=True)
        right(squared, out, k, v)


def test_threads_on_streams_of_their_own() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                q, k, v = operands(128 + 40 * (number % 3), 256, seed=number)
                results = [attention(q, k, v) for _ in range(30)]
                torch.cuda.current_stream().synchronize()
                right(results[0], q, k, v)
                assert all(torch.equal(results[0], x) for x in results)
        except BaseException as error:  # reported by the test's thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_opcheck() -> None:
    from tilepipe.ops.attention import gpu as torch_attention

    q, k, v = operands(64, 96)
    for options in ({}, {"causal": True, "return_lse": True}):
        torch.library.opcheck(
            torch_attention.operator,
            (q, k, v),
            options,
            test_utils=("test_schema", "test_faketensor"),
        )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(mode: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q, k, v: attention(q, k, v, causal=True) * 2,
        fullgraph=True,
        mode=mode,
        dynamic=dynamic,
    )
    for s in (64, 72):
        q, k, v = operands(s, 160)
        for _ in range(3):
            right(compiled(q, k, v) / 2, q, k, v, causal=True)


def test_the_first_call_of_a_process_may_be_compiled() -> None:
    """torch.compile follows the import of the operators, and its graphs the counter's memory."""
    code = """
import torch
from tilepipe.ops import attention
q = torch.randn(1, 300, 2, 64, dtype=torch.bfloat16, device="cuda")
compiled = torch.compile(
    lambda q: attention(q, q, q, causal=True) * 2, fullgraph=True, mode="reduce-overhead"
)
found = [compiled(q).clone() for _ in range(4)]
right = torch.nn.functional.scaled_dot_product_attention(
    *[q.transpose(1, 2)] * 3, is_causal=True
).transpose(1, 2)
for x in found:
    torch.testing.assert_close(x / 2, right, rtol=0.02, atol=0.02)
print("right")
"""
    assert child(code).strip().endswith("right")


def test_out_on_an_operand_and_operands_apart_are_refused() -> None:
    q, k, v = operands(64, 64)
    with pytest.raises(tp.BindError, match="out shares memory with q"):
        attention(q, k, v, out=q)
    with pytest.raises(tp.BindError, match="q is on cuda:0 and k on cpu; move one with"):
        attention(q, k.cpu(), v)
