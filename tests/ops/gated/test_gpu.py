"""ops.gated_matmul of tensors: what is bound, copied, written and remembered, with launches
emulated on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ops.emulated_gated import Emulator, gpu
from tests.support.ops.emulated_matmul import torch
from tilepipe.kernels.gemm_gated import reference
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig

__all__ = ["gpu"]
gated_matmul = tp.ops.gated_matmul


def tensors(m: int = 70, k: int = 40, n: int = 24) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = (m, k), (k, n), (k, n)
    return [torch.from_numpy(rng.standard_normal(s).astype(np.float16)) for s in shapes]


def right(c: Any, a: Any, gate: Any, up: Any, activation: str = "silu") -> bool:
    got, x, g, u = (np.ascontiguousarray(y.numpy()) for y in (c, a, gate.t(), up.t()))
    return reference.compare(got, x, g, u, activation).ok


@pytest.mark.slow
@pytest.mark.parametrize("k", [40, 37])
def test_tensors_of_any_layout(gpu: Emulator, k: int) -> None:
    a, gate, up = tensors(k=k)
    for left in (a, a.t().contiguous().t()):
        for x in (up, up.t().contiguous().t()):
            out = torch.full((70, 24), 7.0)
            assert gated_matmul(left, gate, x, activation="gelu", out=out) is out
            assert right(out, a, gate, up, "gelu")
    assert {bound["cfg"].activation for bound in gpu.bound} == {"gelu"}
    assert all(bound["cfg"] != GatedGemmConfig(activation="gelu") for bound in gpu.bound)


def test_plans_are_remembered_and_settings_bound(gpu: Emulator) -> None:
    a, gate, up = tensors()
    for _ in range(3):
        assert right(gated_matmul(a, gate, up), a, gate, up)
    assert (len(gpu.bound), gpu.launches) == (1, 3)
    gated_matmul(a, gate, up, bm=64, consumers=1, activation="relu")
    assert gpu.bound[1]["cfg"] == GatedGemmConfig(bm=64, consumers=1, activation="relu")


def test_nothing_to_multiply(gpu: Emulator) -> None:
    out = torch.full((70, 24), 7.0)
    assert not gated_matmul(*tensors(k=0), out=out).any()
    assert gated_matmul(*tensors(m=0)).shape == (0, 24)
    assert gpu.launches == 0
