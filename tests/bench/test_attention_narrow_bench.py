"""`tilepipe bench attention -s dtype=float8_e4m3`: what is measured, and that a wrong result is
found.
"""

from __future__ import annotations

import pytest

import tilepipe as tp
from tilepipe.errors import BindError

torch = pytest.importorskip("torch")

from tilepipe.bench import attention, attention_narrow  # noqa: E402
from tilepipe.kernels.attention.reference import attention as computed  # noqa: E402
from tilepipe.registry.attention import ATTENTION, extents  # noqa: E402


def test_the_standard_problems_in_8_bits() -> None:
    found = attention.contests({"dtype": "float8_e4m3", "d": 128}, [], tp.H200, 0)
    assert [x.problem for x in found][:2] == [
        "D=128 full S=4096 float8_e4m3",
        "D=128 full S=8192 float8_e4m3",
    ]
    assert {x.settings["accumulate"] for x in found} == {"promote"}
    with pytest.raises(BindError, match="bench attention has no peer with scales"):
        attention.contests({"dtype": "float8_e4m3", "scales": True}, [], tp.H200, 0)


@pytest.mark.parametrize("causal", [False, True])
def test_a_sample_of_rows_beside_float64(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    monkeypatch.setattr(attention, "DEVICE", "cpu")
    given = {"batch": 2, "s_q": 200, "s_kv": 150, "d": 64, "dtype": "float8_e4m3"}
    found = extents(ATTENTION.settings | given)
    operands = attention_narrow.NarrowOperands(found, causal, seed=1, sets=2)
    assert operands.q[0].dtype == torch.float8_e4m3fn
    q, k, v = (x[1].double().numpy() for x in (operands.q, operands.k, operands.v))
    right = torch.from_numpy(computed(q, k, v, causal=causal)[0]).bfloat16()
    operands.results["a"] = [right * torch.nan, right]
    assert operands.check("a", 1).right
    assert not operands.check("a", 0).right
    operands.results["a"][1] = right * 1.3
    assert not operands.check("a", 1).right
