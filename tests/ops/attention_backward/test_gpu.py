"""`ops.attention_backward` of PyTorch tensors on a GPU, which those on the CPU are taken for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tilepipe as tp
from tilepipe import ops
from tilepipe.kernels.attention_backward import sm90_bind as kernel

torch = pytest.importorskip("torch")

from tests.support.ops.device import STREAM, take_cpu_for_gpu  # noqa: E402
from tilepipe.ops.torch import device, launches  # noqa: E402


class Bound:
    """A program that takes no arrays and does nothing."""

    tensors: tuple[str, ...] = ()

    def launcher(self) -> Bound:
        return self

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        assert (addresses, stream) == ((), STREAM)


def test_the_chip_of_the_tensors_reaches_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heuristic counts its SMs."""
    half, asked = replace(tp.H200, name="half an H200", sms=66), {}

    def noted(name: str) -> Any:
        def bind(*given: Any, chip: tp.Chip | None = None, **options: Any) -> Bound:
            asked[name] = chip
            return Bound()

        return bind

    take_cpu_for_gpu(monkeypatch)
    monkeypatch.setattr(device, "hopper", lambda ordinal, operation: half)
    monkeypatch.setattr(launches, "_launchers", {})
    names = "bind_prepare", "bind", "bind_finish"
    for name in names:
        monkeypatch.setattr(kernel, name, noted(name))
    q, lse = torch.zeros(1, 40, 2, 64, dtype=torch.float16), torch.zeros(1, 2, 40)
    ops.attention_backward(q, q, q, q, q, lse, deterministic=True)
    assert asked == dict.fromkeys(names, half)
