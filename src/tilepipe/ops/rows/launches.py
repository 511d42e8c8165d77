"""The programs of the operations on rows, on PyTorch tensors."""

from __future__ import annotations

import functools

import torch

import tilepipe as tp
from tilepipe.kernels.rows.choice import RowProblem
from tilepipe.ops.calls import Settings
from tilepipe.ops.rows import programs
from tilepipe.ops.torch import device, launches
from tilepipe.ops.torch.plan_cache import LIMIT


def run(
    operation: str,
    key: object,
    bind: programs.Binder,
    settings: Settings,
    **given: torch.Tensor | None,
) -> None:
    """`ops.torch.launches.run` of a program with these settings.

    Raises:
        BindError, UnavailableError: as the operation.
    """

    def bound(named: launches.Named, chip: tp.Chip | None) -> tp.Program:
        cfg = programs.config(operation, settings)
        if cfg is None and chip is not None:
            cfg = programs.remembered(operation, named, chip)
        return bind(named, cfg)

    launches.run(operation, (key, settings), bound, **given)


@functools.lru_cache(maxsize=LIMIT)
def partial_sums(name: str, problem: RowProblem, ordinal: int | None) -> tuple[int, Settings]:
    """`programs.partial_sums` on the GPU of a number (None: simulated), looked up once for each
    problem as launches are: a launch that is kept goes on with the rows that it was bound to.

    Raises:
        UnavailableError: the GPU is no Hopper GPU.
    """
    chip = None if ordinal is None else device.hopper(ordinal, name)
    return programs.partial_sums(name, problem, chip)
