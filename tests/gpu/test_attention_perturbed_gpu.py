"""A thousand launches of attention whose warps are delayed at random: each gives the bits of an
undelayed one.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.test_attention_packed_gpu import packed
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.sm90_bind import bind

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
]
LAUNCHES = 144  # of each form: a thousand of all
LENGTHS = [(100, 130), (0, 50), (37, 0), (1, 1), (300, 200), (64, 257), (700, 700)]
CONFIGS = {
    "persistent": AttentionConfig(consumers=3),
    "single": AttentionConfig(schedule="single", qk_stages=2),
    "dynamic": AttentionConfig(bn=160, schedule="dynamic", store="tile"),
    "packed": AttentionConfig(schedule="dynamic", store="tile"),
    "free": AttentionConfig(order="free", bn=96),
    "queries ahead": AttentionConfig(schedule="dynamic", store="tile", q_stages=2),
    "queries ahead, three warpgroups": AttentionConfig(
        consumers=3, schedule="dynamic", store="tile", q_stages=2
    ),
}


def operands(form: str) -> tuple[list[Any], dict[str, Any]]:
    """q, k, v and what else `bind` takes."""
    d = 64 if CONFIGS[form].consumers == 3 else 128
    if form == "packed":
        q, k, v, q_bounds, k_bounds = packed(LENGTHS, d)
        return [q, k, v], {"cu_seqlens_q": q_bounds, "cu_seqlens_k": k_bounds}
    generator = torch.Generator().manual_seed(1)
    shapes = (2, 900, 8, d), (2, 1100, 4, d), (2, 1100, 4, d)
    return [torch.randn(x, generator=generator).bfloat16().cuda() for x in shapes], {}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("form", CONFIGS)
def test_delays_change_no_bit(form: str, causal: bool) -> None:
    (q, k, v), options = operands(form)
    cfg, out = CONFIGS[form], torch.empty_like(q)
    if cfg.schedule == "dynamic":
        options["counter"] = torch.zeros(1, dtype=torch.int32, device="cuda")
    program = bind(q, k, v, out, None, cfg, causal=causal, **options)
    program.launch()
    right = out.clone()
    assert right.isfinite().all()
    for seed in range(LAUNCHES // 2):
        out.fill_(torch.nan)
        program.launch(perturb=seed)
        assert torch.equal(out, right), f"seed {seed}"
