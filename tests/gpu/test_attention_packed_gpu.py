"""ops.attention of packed CUDA tensors on the GPU: values beside float64 of each sequence alone,
what others hold, graphs, torch.compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.attention.packed_reference import bounds_of, compare_packed

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]
Lengths = list[tuple[int, int]]
LENGTHS: dict[str, Lengths] = {
    "all kinds": [(100, 130), (0, 50), (37, 0), (1, 1), (128, 128), (0, 0), (300, 200), (64, 257)],
    "long": [(1000, 2000), (3000, 3000), (17, 4001)],
    "many": [(i % 130, 1 + i % 77) for i in range(1000)],
    "single queries": [(1, 1 + 37 * i) for i in range(70)],
}


def packed(lengths: Lengths, d: int = 128, heads: int = 4, kv_heads: int = 2) -> list[Any]:
    """q, k, v, cu_seqlens_q, cu_seqlens_k on the GPU."""
    bounds = [bounds_of(list(x)) for x in zip(*lengths, strict=True)]
    generator = torch.Generator().manual_seed(0)
    shapes = (
        (int(bounds[0][-1]), heads, d),
        (int(bounds[1][-1]), kv_heads, d),
        (int(bounds[1][-1]), kv_heads, d),
    )
    drawn = [torch.randn(shape, generator=generator).bfloat16().cuda() for shape in shapes]
    return [*drawn, *(torch.from_numpy(x).cuda() for x in bounds)]


def call(q: Any, k: Any, v: Any, q_bounds: Any, k_bounds: Any, **options: Any) -> Any:
    return tp.ops.attention(
        q, k, v, cu_seqlens_q=q_bounds, cu_seqlens_k=k_bounds, return_lse=True, **options
    )


def right(found: Any, given: list[Any], **options: Any) -> None:
    out, *floats = (
        x.cpu().view(torch.uint16).numpy().view(tp.bfloat16.numpy) for x in (found[0], *given[:3])
    )
    bounds = [x.cpu().numpy() for x in given[3:]]
    compared = compare_packed(out, *floats, *bounds, lse=found[1].cpu().numpy(), **options)
    assert compared.ok, compared


OPTIONS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (100, 3)},
    "aligned to the first": {"causal": True, "align": "first"},
    "soft cap": {"softcap": 5.0, "causal": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_values(lengths: Lengths, d: int, options: dict[str, Any]) -> None:
    given = packed(lengths, d)
    right(call(*given, **options), given, **options)


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "persistent"},
        {"schedule": "persistent", "store": "registers", "consumers": 1, "bn": 64, "group": 3},
        {"store": "tile", "consumers": 3, "bn": 64, "order": "free", "group": 2},
    ],
)
def test_settings(settings: dict[str, Any]) -> None:
    given = packed(LENGTHS["all kinds"], 64)
    right(call(*given, causal=True, **settings), given, causal=True)


@pytest.mark.parametrize("causal", [False, True])
def test_what_other_sequences_hold_does_not_matter(causal: bool) -> None:
    given = packed([(100, 70), (50, 60), (90, 130), (40, 50), (70, 33)])
    good = call(*given, causal=causal)
    for x, bounds in zip(given[:3], (given[3], given[4], given[4]), strict=True):
        for i in (1, 3):
            x[bounds[i] : bounds[i + 1]] = float("nan")
    found = call(*given, causal=causal)
    for i in (0, 2, 4):
        rows = slice(int(given[3][i]), int(given[3][i + 1]))
        assert torch.equal(found[0][rows], good[0][rows])
        assert torch.equal(found[1][:, rows], good[1][:, rows])


def test_a_graph_is_replayed_with_other_lengths() -> None:
    given = packed([(200, 300), (56, 20), (100, 180)])
    call(*given, causal=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call(*given, causal=True)
    for queries, keys in (([56, 300, 0], [20, 0, 480]), ([100, 100, 156], [180, 300, 20])):
        given[3].copy_(torch.from_numpy(bounds_of(queries)))
        given[4].copy_(torch.from_numpy(bounds_of(keys)))
        graph.replay()
        torch.cuda.synchronize()
        right(found, given, causal=True)


@pytest.mark.parametrize(
    "numbers", [[0, 300, 100, 210], [0, 50, 100, 99_999], [-70, 50, 2**31 - 1, -(2**31)]]
)
def test_wrong_bounds_write_nothing_outside(numbers: list[int]) -> None:
    q, k, v, q_bounds, k_bounds = packed([(50, 50), (100, 100), (60, 60)])
    room = torch.full((len(q) + 512, *q.shape[1:]), 7.0, dtype=q.dtype, device="cuda")
    wrong = torch.tensor(np.array(numbers, np.int32), device="cuda")
    for bounds in ((wrong, k_bounds), (q_bounds, wrong), (wrong, wrong)):
        call(q, k, v, *bounds, out=room[256:-256])
        torch.cuda.synchronize()
        assert (room[:256] == 7).all()
        assert (room[-256:] == 7).all()


def test_compile() -> None:
    given = packed(LENGTHS["all kinds"])
    compiled = torch.compile(lambda *x: call(*x, causal=True), fullgraph=True)
    right(compiled(*given), given, causal=True)
