"""What `tilepipe bench attention_backward` measures, and how results are judged; the launches need
a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.registry.attention_backward import ATTENTION_BACKWARD, extents

bench = pytest.importorskip("tilepipe.bench.attention_backward", exc_type=ImportError)
torch = pytest.importorskip("torch", exc_type=ImportError)


def test_contests() -> None:
    found = bench.contests({}, [], tp.H200, 0)
    assert len(found) == 12
    assert [x.problem for x in found[:2]] == ["D=128 full S=4096", "D=128 full S=8192"]
    assert found[0].flop == 2.5 * 4 * 4096**2 * 128 * 16 * 4
    (one,) = bench.contests(
        {"s_q": 300, "s_kv": 300, "causal": True, "deterministic": True, "heads": 1}, [], tp.H200, 0
    )
    assert one.problem.endswith("in turns")
    assert one.flop == 2.5 * 4 * 128 * 300 * 301 / 2
    with refused(tp.BindError, "--shapes of attention_backward takes standard or quick"):
        bench.contests({}, ["8x300"], tp.H200, 0)
    with refused(tp.BindError, "no peer with align"):
        bench.contests({"align": "first"}, [], tp.H200, 0)


@pytest.mark.parametrize("causal", [False, True])
def test_pytorchs_gradients_are_right_and_others_are_not(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "DEVICE", "cpu")
    monkeypatch.setattr(bench, "ROWS", 64)
    given = {"batch": 2, "s_q": 150, "s_kv": 150, "heads": 4, "kv_heads": 2, "d": 64}
    settings, _ = ATTENTION_BACKWARD.configure({**given, "causal": causal}, None)
    operands = bench.Operands(extents(settings), causal, 0, sets=2)

    def gradients(i: int) -> Any:
        leaves = [x[i].float().requires_grad_() for x in (operands.q, operands.k, operands.v)]
        turned = (x.transpose(1, 2) for x in leaves)
        out = torch.nn.functional.scaled_dot_product_attention(
            *turned, is_causal=causal, enable_gqa=True
        )
        dout = operands.dout[i].float().transpose(1, 2)
        return tuple(x.to(torch.bfloat16) for x in torch.autograd.grad(out, leaves, dout))

    operands.results["PyTorch"] = [gradients(0), gradients(1)]
    assert operands.check("PyTorch", 0).right
    assert operands.check("PyTorch", 1).right
    for changed in range(3):
        operands.results["PyTorch"] = [gradients(0)]
        operands.results["PyTorch"][0][changed].mul_(1.01)
        assert not operands.check("PyTorch", 0).right
    operands.wipe()
    assert not operands.check("PyTorch", 0).right
