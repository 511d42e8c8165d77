"""ops.attention of CUDA tensors under block masks: values beside float64, graphs, torch.compile;
beside FlexAttention.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.gpu.test_attention_gpu import operands, right

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]
attention: Any = tp.ops.attention


def random_mask(*shape: int, density: float = 0.5, seed: int = 0) -> Any:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density).cuda()


def compare(
    out: Any, given: list[Any], mask: Any, lse: Any, size: tuple[int, int], **options: Any
) -> None:
    q, k, v = given
    right(out, q, k, v, lse, block_mask=mask.cpu().numpy(), block_size=size, **options)


@pytest.mark.parametrize("size", [(128, 128), (64, 64), (192, 48), (256, 512)], ids=str)
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window": (150, 40)}, {"window": (150, 0), "align": "first"}],
    ids=str,
)
def test_values(options: dict[str, Any], d: int, size: tuple[int, int]) -> None:
    given = operands(500, 1300, d=d)
    counts = -(-500 // size[0]), -(-1300 // size[1])
    for shape in ((2, 4, *counts), (1, 4, *counts), (2, 1, *counts), (1, 1, *counts)):
        mask = random_mask(*shape)
        blocks = {"block_mask": mask, "block_size": size}
        out, lse = attention(*given, return_lse=True, **blocks, **options)
        compare(out, given, mask, lse, size, **options)


@pytest.mark.parametrize("density", [0.0, 0.05, 1.0])
def test_densities(density: float) -> None:
    """Without blocks rows are 0; with all of them the result is that without a mask."""
    given = operands(2000, 3000, d=128)
    mask = random_mask(2, 4, 16, 24, density=density)
    out, lse = attention(*given, block_mask=mask, return_lse=True)
    compare(out, given, mask, lse, (128, 128))
    if density == 0:
        assert not bool(out.any())


def test_blocks_that_are_false_are_not_loaded() -> None:
    q, k, v = operands(300, 1024, d=128)
    mask = torch.ones((1, 1, 3, 8), dtype=torch.bool, device="cuda")
    mask[..., 3] = False
    k[:, 384:512] = v[:, 384:512] = torch.nan
    out, lse = attention(q, k, v, block_mask=mask, return_lse=True)
    k[:, 384:512] = v[:, 384:512] = 0
    compare(out, [q, k, v], mask, lse, (128, 128))


def test_masks_change_between_replays_of_a_graph() -> None:
    given, mask = operands(700, 900, d=64), random_mask(1, 4, 6, 8)
    out = torch.empty_like(given[0])
    attention(*given, block_mask=mask, out=out, causal=True, return_lse=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _, lse = attention(*given, block_mask=mask, out=out, causal=True, return_lse=True)
    for seed in range(1, 4):
        mask.copy_(random_mask(1, 4, 6, 8, seed=seed))
        graph.replay()
        torch.cuda.synchronize()
        compare(out, given, mask, lse, (128, 128), causal=True)


def test_under_the_compiler() -> None:
    (q, k, v), mask = operands(300, 400, d=64), random_mask(1, 1, 3, 4)

    def f(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return attention(q, k, v, block_mask=mask, causal=True)

    torch._dynamo.reset()
    assert torch.equal(torch.compile(f, fullgraph=True)(q, k, v, mask), f(q, k, v, mask))


def test_repeated_launches_agree_in_every_bit() -> None:
    given, mask = operands(4096, 4096, 8, 2, 128), random_mask(2, 8, 32, 32)
    first, lse = attention(*given, block_mask=mask, causal=True, return_lse=True)
    for _ in range(20):
        again, other = attention(*given, block_mask=mask, causal=True, return_lse=True)
        assert torch.equal(again, first)
        assert torch.equal(other, lse)
    compare(first[:1, :, :2], [x[:1, :, :y] for x, y in zip(given, (2, 1, 1), strict=True)],
            mask[:1, :2], lse[:1, :2], (128, 128), causal=True)  # fmt: skip


def test_a_block_mask_of_flex_attention() -> None:
    """What `BlockMask.to_dense` gives, with the mask within blocks said again."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    given = operands(1024, 1024, 4, 4, 64, batch=1)

    def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= j) & (i - j <= 300)

    blocks = create_block_mask(seen, None, None, 1024, 1024, device="cuda")
    turned = [x.transpose(1, 2) for x in given]
    want = torch.compile(flex_attention)(*turned, block_mask=blocks).transpose(1, 2)
    mask = blocks.to_dense().bool()
    assert not bool(mask.all())
    out = attention(*given, block_mask=mask, window=(300, 0))
    assert float((out.float() - want.float()).norm() / want.float().norm()) < 6e-3
