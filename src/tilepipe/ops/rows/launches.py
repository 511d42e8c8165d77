"""The programs of the operations on rows, on PyTorch tensors."""

from __future__ import annotations

import torch

from tilepipe.ops.calls import Settings
from tilepipe.ops.rows.programs import Binder, config
from tilepipe.ops.torch import launches


def run(
    operation: str,
    key: object,
    bind: Binder,
    settings: Settings,
    **given: torch.Tensor | None,
) -> None:
    """`ops.torch.launches.run` of a program with these settings.

    Raises:
        BindError, UnavailableError: as the operation.
    """
    launches.run(
        operation,
        (key, settings),
        lambda named, _: bind(named, config(operation, settings)),
        **given,
    )


def processors(x: torch.Tensor) -> int:
    """The SMs of the GPU that a tensor is on, or of the simulated one."""
    if x.is_cuda:
        return int(torch.cuda.get_device_properties(x.device).multi_processor_count)
    return 132
