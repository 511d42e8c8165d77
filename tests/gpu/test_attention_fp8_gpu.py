"""Attention on operands of float8_e4m3 on the GPU: values beside float64, of `ops.attention` and of
the kernel under random delays.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.reference import compare_attention
from tilepipe.kernels.attention.sm90_bind import bind
from tilepipe.kernels.attention.values import bind_turn, turned, turned_shape
from tilepipe.ops import attention

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]
FP8 = ml_dtypes.float8_e4m3fn


def operands(s_q: int, s_kv: int, heads: int, kv_heads: int, d: int, batch: int = 2) -> list[Any]:
    rng = np.random.default_rng(s_q + s_kv + d)
    shapes = (batch, s_q, heads, d), (batch, s_kv, kv_heads, d), (batch, s_kv, kv_heads, d)
    return [rng.standard_normal(shape).astype(FP8) for shape in shapes]


def tensors(*arrays: Any) -> list[Any]:
    return [torch.from_numpy(x.view(np.uint8)).cuda().view(torch.float8_e4m3fn) for x in arrays]


def right(out: Any, lse: Any, *arrays: Any, **options: Any) -> None:
    """Compares with float64: every element within its bound, and all together as near as rounded
    weights allow.
    """
    got = out.float().cpu().numpy().astype(ml_dtypes.bfloat16)
    found = compare_attention(got, *arrays, lse=lse.cpu().numpy(), **options)
    assert found.ok, found
    assert found.rel_error < 0.04, found


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize("accumulate", ["promote", "fast"])
@pytest.mark.parametrize(("s_q", "s_kv"), [(128, 128), (1, 777), (777, 1), (300, 1000), (513, 511)])
def test_values(s_q: int, s_kv: int, d: int, causal: bool, accumulate: str) -> None:
    arrays = operands(s_q, s_kv, 4, 2, d)
    given = tensors(*arrays)
    options: Any = {"causal": causal, "accumulate": accumulate}
    out, lse = attention(*given, return_lse=True, **options)
    right(out, lse, *arrays, causal=causal)
    assert torch.equal(attention(*given, **options), out)


def test_descales_and_layouts() -> None:
    q, k, v = operands(200, 300, 4, 2, 128)
    scales = [np.random.default_rng(i).uniform(0.5, 2, (2, 2)).astype(np.float32) for i in range(3)]
    names = "q_descale", "k_descale", "v_descale"
    given = dict(zip(names, (torch.from_numpy(x).cuda() for x in scales), strict=True))
    options: Any = dict(zip(("q_scales", "k_scales", "v_scales"), scales, strict=True))
    out, lse = attention(*tensors(q, k, v), return_lse=True, causal=True, **given)
    right(out, lse, q, k, v, causal=True, **options)
    turned_round = [x.transpose(1, 2).contiguous() for x in tensors(q, k, v)]
    other = attention(*turned_round, causal=True, layout="bhsd", **given)
    assert torch.equal(other.transpose(1, 2), out)
    twice = attention(*tensors(q, k, v), causal=True, **given | {"v_descale": 2.0})
    alone = attention(*tensors(q, k, v), causal=True, **given | {"v_descale": None})
    assert torch.equal(twice, 2 * alone)
    halves = attention(*tensors(q, k, v), causal=True, out_dtype=torch.float16, **given)
    assert halves.dtype == torch.float16


def test_a_head_of_zeros_and_a_number_that_changes() -> None:
    """A descale of 0 makes the scores of its head equal, and no NaN; numbers make no new plan."""
    q, k, v = operands(130, 200, 4, 2, 64)
    zero = np.ones((2, 2), np.float32)
    zero[1, 0] = 0
    out, lse = attention(
        *tensors(q, k, v), q_descale=torch.from_numpy(zero).cuda(), return_lse=True
    )
    right(out, lse, q, k, v, q_scales=zero)
    for factor in (0.5, 2.0, torch.tensor(3.0).cuda(), torch.ones(1).cuda()):
        whole = np.full((2, 2), float(factor), np.float32)
        out, lse = attention(*tensors(q, k, v), k_descale=factor, return_lse=True)
        right(out, lse, q, k, v, k_scales=whole)


def test_sums_over_many_keys_keep_what_single_keys_add() -> None:
    """Values of one sign: sums that the tensor cores alone add up lose a part of them."""
    q, k, v = operands(64, 16384, 1, 1, 64, batch=1)
    v = (np.abs(v.astype(np.float32)) + 0.5).astype(FP8)
    out, lse = attention(*tensors(q, k, v), return_lse=True)
    right(out, lse, q, k, v)
    mean = v.astype(np.float64).mean()
    assert float(out.double().mean()) == pytest.approx(mean, rel=0.01)
    fast = attention(*tensors(q, k, v), accumulate="fast")
    assert float(fast.double().mean()) < 0.9 * mean


def test_in_a_graph_and_under_the_compiler() -> None:
    q, k, v = tensors(*operands(256, 256, 2, 2, 128))
    want = attention(q, k, v, causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = attention(q, k, v, causal=True)
    graph.replay()
    assert torch.equal(got, want)
    compiled = torch.compile(lambda *x: attention(*x, causal=True), fullgraph=True)
    assert torch.equal(compiled(q, k, v), want)


CONFIGS = {
    "promoted": AttentionConfig(bn=128, accumulate="promote", order="free", schedule="dynamic"),
    "fast": AttentionConfig(bn=192, q_stages=2, schedule="dynamic", store="tile"),
}


@pytest.mark.parametrize("cfg", CONFIGS.values(), ids=CONFIGS)
def test_no_bit_changes_under_random_delays(cfg: AttentionConfig) -> None:
    q, k, v = operands(300, 500, 3, 3, 128)
    out = np.zeros(q.shape, ml_dtypes.bfloat16)
    program = bind(q, k, turned(v), out, None, cfg, causal=True)
    program.launch()
    want = out.copy()
    assert compare_attention(want, q, k, v, causal=True).ok
    for seed in range(1, 6):
        out[...] = 0
        program.launch(perturb=seed)
        assert np.array_equal(out.view(np.uint16), want.view(np.uint16)), seed


@pytest.mark.parametrize(("s_kv", "d"), [(40, 64), (1030, 128), (256, 256), (128, 32)])
def test_values_are_turned(s_kv: int, d: int) -> None:
    _, _, v = operands(1, s_kv, 2, 2, d)
    out = np.ones(turned_shape(*v.shape), np.uint8)
    bind_turn(v.view(np.uint8), out.view(np.uint32)).launch()
    assert np.array_equal(out, turned(v).view(np.uint8))
