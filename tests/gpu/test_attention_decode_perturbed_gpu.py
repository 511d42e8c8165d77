"""Launches of attention over a cache whose warps are delayed at random: each gives the bits of an
undelayed one, and leaves the tickets at 0.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.gpu.test_attention_decode_gpu import operands, right
from tilepipe.cuda.runtime import driver
from tilepipe.kernels.attention_decode.config import DecodeConfig
from tilepipe.kernels.attention_decode.sm90 import bind, workspace_shapes
from tilepipe.kernels.attention_decode.validation import check_decode

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
]
LAUNCHES = 125  # of each form
FORMS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "pages": {"page": 16},
    "of 8 bits": {"cache_dtype": tp.float8_e4m3},
}
LENGTHS = [9000, 700, 5000]  # which many CTAs share


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize(
    "cfg", [DecodeConfig(ctas=1, stages=3), DecodeConfig(ctas=2)], ids=["one CTA", "two CTAs"]
)
def test_delays_change_no_bit(cfg: DecodeConfig, tokens: int, form: str) -> None:
    given, q, cache = operands(LENGTHS, tokens=tokens, **FORMS[form])
    names = "cache_seqlens", "block_table", "k_descale", "v_descale"
    options: dict[str, Any] = {name: given[name] for name in names if name in given}
    out = torch.empty_like(given["q"])
    lse = torch.empty((3, 8, tokens), device="cuda")
    arrays = given["q"], given["k_cache"], given["v_cache"], out, lse
    found = check_decode(*arrays, **options)
    parts, stats, tickets = workspace_shapes(found, cfg, driver.chip())
    workspace = (
        torch.empty(parts, device="cuda"),
        torch.empty(stats, device="cuda"),
        torch.zeros(tickets, dtype=torch.int32, device="cuda"),
    )
    program = bind(*arrays, cfg, workspace=workspace, **options)
    program.launch()
    right((out, lse), given, q, cache)
    first = out.clone(), lse.clone()
    for seed in range(LAUNCHES):
        out.fill_(torch.nan)
        lse.fill_(torch.nan)
        workspace[0].fill_(torch.nan)
        workspace[1].fill_(torch.nan)
        program.launch(perturb=seed)
        assert torch.equal(out, first[0]), f"seed {seed}"
        assert torch.equal(lse, first[1]), f"seed {seed}"
        assert not workspace[2].any(), f"seed {seed}"
