"""The programs of the operations on rows, on PyTorch tensors."""

from __future__ import annotations

import torch

import tilepipe as tp
from tilepipe.ops.calls import Settings
from tilepipe.ops.rows.programs import Binder, config, remembered
from tilepipe.ops.torch import device, launches


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

    def bound(named: launches.Named, chip: tp.Chip | None) -> tp.Program:
        cfg = config(operation, settings)
        if cfg is None and chip is not None:
            cfg = remembered(operation, named, chip)
        return bind(named, cfg)

    launches.run(operation, (key, settings), bound, **given)


def chip_of(x: torch.Tensor, operation: str) -> tp.Chip | None:
    """The GPU that a tensor is on; None where it is simulated."""
    return None if device.simulates(x) else device.hopper(x.get_device(), operation)
