"""CPU tensors in the place of a GPU's."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

import tilepipe as tp
from tilepipe.ops.torch import device
from tilepipe.program import kernel_function

STREAM = 7


def take_cpu_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the operations take CPU tensors for those of a Hopper GPU, and launch on stream 7."""
    monkeypatch.setattr(device, "simulates", lambda x: False)
    # of what is bound, whose memory is no GPU's
    monkeypatch.setattr(kernel_function, "chip_of", lambda named: tp.H200)
    monkeypatch.setattr(device, "hopper", lambda ordinal, operation: tp.H200)
    monkeypatch.setattr(device, "context", nullcontext)
    monkeypatch.setattr(device, "raw_stream", lambda ordinal: STREAM)
    monkeypatch.setattr(device, "current_device", lambda: -1)
    monkeypatch.setattr(device, "capturing", lambda: False)
    monkeypatch.setattr(device, "of_ordinal", lambda ordinal: torch.device("cpu"))
    monkeypatch.setattr(
        device,
        "lasting_zeros",
        lambda ordinal, stream, count: torch.zeros(count, dtype=torch.int32),
    )
