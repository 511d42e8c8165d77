"""ops.quantised_matmul of tensors: what is bound, copied and remembered, with launches emulated on
the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.ops.quantised.test_simulated import operands
from tests.support.ops.device import take_cpu_for_gpu
from tests.support.ops.emulated_matmul import torch
from tests.support.ops.memory import at, tma_takes
from tilepipe.kernels.gemm_quantised import reference, sm90
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.validation import check_arguments, maps
from tilepipe.ops.quantised import gpu as torch_quantised


class Emulator:
    """What was bound, and launches, which multiply the memory at the addresses they are given."""

    tensors = ("a", "words", "scales", "c")

    def __init__(self) -> None:
        self.bound: list[dict[str, Any]] = []
        self.launches = 0

    def bind(self, a: Any, words: Any, scales: Any, c: Any, cfg: Any, *, group: int) -> Emulator:
        check_arguments(a, words, scales, c, group)
        maps(a, words, scales, c, cfg, group)
        for x in (a, words, scales, c):
            tma_takes(x, "row")
        views = {"a": a, "words": words, "scales": scales, "c": c}
        self.bound.append(views | {"cfg": cfg, "group": group})
        return self

    def launcher(self) -> Any:
        bound = self.bound[-1]

        def launch(addresses: tuple[int, ...], stream: int) -> None:
            self.launches += 1
            a, words, scales, c = (
                at(place, bound[name]) for name, place in zip(self.tensors, addresses, strict=True)
            )
            w = reference.dequantised(words, scales, a.shape[1], bound["group"])
            c[...] = (a.astype(np.float64) @ w.T).astype(c.dtype)

        launch.tensors = self.tensors  # type: ignore[attr-defined]
        return launch


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    monkeypatch.setattr(sm90, "bind", emulator.bind)
    take_cpu_for_gpu(monkeypatch)
    torch_quantised.plans.forget()
    return emulator


def tensors(**extents: int) -> list[Any]:
    return [torch.from_numpy(x) for x in operands(**extents)]


@pytest.mark.parametrize("k", [200, 131])
def test_tensors_of_any_layout(gpu: Emulator, k: int) -> None:
    a, words, scales = tensors(k=k, n=21)
    for left in (a, a.t().contiguous().t()):
        out = torch.full((20, 21), 7.0)
        assert tp.ops.quantised_matmul(left, words, scales, group=64, out=out) is out
        found = reference.compare(out.numpy(), a.numpy(), words.numpy(), scales.numpy(), 64)
        assert found.ok, found


def test_plans_are_remembered_and_settings_bound(gpu: Emulator) -> None:
    a, words, scales = tensors()
    for _ in range(3):
        tp.ops.quantised_matmul(a, words, scales, group=64)
    assert (len(gpu.bound), gpu.launches) == (1, 3)
    tp.ops.quantised_matmul(a, words, scales, group=64, bm=64, consumers=1, activation="relu")
    assert gpu.bound[1]["cfg"] == QuantisedGemmConfig(bm=64, consumers=1, activation="relu")


def test_nothing_to_multiply(gpu: Emulator) -> None:
    out = torch.full((20, 24), 7.0)
    assert not tp.ops.quantised_matmul(*tensors(k=0), group=64, out=out).any()
    assert tp.ops.quantised_matmul(*tensors(m=0), group=64).shape == (0, 24)
    assert gpu.launches == 0
