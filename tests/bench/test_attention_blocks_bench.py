"""`tilepipe bench attention -s block_mask=...`: what is measured, how much work it is, and that a
wrong result is noticed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp

torch = pytest.importorskip("torch")

from tilepipe.bench import attention, attention_blocks as blocks  # noqa: E402
from tilepipe.kernels.attention.reference import attention as computed  # noqa: E402
from tilepipe.registry.attention import ATTENTION, extents  # noqa: E402
from tilepipe.registry.block_masks import RandomBlocks  # noqa: E402

HALF = RandomBlocks((64, 32), 50)


def settings(**given: Any) -> dict[str, Any]:
    return dict(ATTENTION.settings) | {"block_mask": "64x32:50"} | given


@pytest.mark.slow
def test_the_standard_problems_have_the_work_of_their_blocks() -> None:
    found = attention.contests({"block_mask": "128x128:50"}, [], tp.H200, 0)
    whole = attention.contests({}, [], tp.H200, 0)
    assert [x.problem for x in found] == [f"{x.problem} block_mask=128x128:50" for x in whole]
    for part, all_of_it in zip(found, whole, strict=True):
        assert abs(part.flop / all_of_it.flop - 0.5) < 0.03
        assert part.settings["schedule"] == "dynamic"


@pytest.mark.parametrize("causal", [False, True])
def test_pairs_are_those_of_a_dense_mask(causal: bool) -> None:
    found = extents(settings(s_q=150, s_kv=100))
    dense = np.ones((150, 100), np.bool_)
    if causal:
        dense = np.arange(100)[None] <= np.arange(150)[:, None] - 50
    for i, row in enumerate(blocks.pairs(found, causal, (64, 32))):
        for j, count in enumerate(row):
            assert count == dense[64 * i : 64 * i + 64, 32 * j : 32 * j + 32].sum()


def test_flex_attention_is_told_which_blocks_are_whole() -> None:
    found = extents(settings(s_q=128, s_kv=128))
    mask = np.ones((1, 1, 2, 4), np.bool_)
    mask[0, 0, 1, 0] = False
    whole, partial = blocks._split(mask, found, True, (64, 32))
    assert whole[0, 0].astype(int).tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]
    assert partial[0, 0].astype(int).tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    counts, order = blocks._listed(torch.from_numpy(partial))
    assert counts[0, 0].tolist() == [2, 2]
    assert order[0, 0, 1, :2].tolist() == [2, 3]
    assert not blocks._split(mask, found, False, (64, 32))[1].any()


@pytest.mark.parametrize("causal", [False, True])
def test_a_sample_of_rows_beside_float64(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    monkeypatch.setattr(attention, "DEVICE", "cpu")
    found = extents(settings(batch=2, s_q=200, s_kv=150, d=64))
    operands = blocks.BlockOperands(found, causal, HALF, seed=1, sets=2)
    q, k, v = (x[1].double().numpy() for x in (operands.q, operands.k, operands.v))
    mask: dict[str, Any] = {"block_mask": operands.host_mask, "block_size": HALF.block}
    right, unmasked = (
        torch.from_numpy(computed(q, k, v, causal=causal, **given)[0]).bfloat16()
        for given in (mask, {})
    )
    operands.results["a"] = [right * torch.nan, right]
    assert operands.check("a", 1).right
    operands.results["a"][1] = unmasked
    assert not operands.check("a", 1).right
