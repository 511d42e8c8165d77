"""The workspace of a GEMM whose parts of K meet in global memory, on a device.

The sums are memory that each launch takes from PyTorch, and gives back: in the order of the stream.
The tickets are 0 between launches: they stay, for each stream (`counters`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.k_parts import workspace_shapes
from tilepipe.ops.calls import Shape
from tilepipe.ops.torch import counters
from tilepipe.ops.torch.tensors import TensorView

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

NAMES = "parts", "tickets"  # of the kernel's arguments
Tensors = tuple[torch.Tensor, torch.Tensor]


def to_bind(
    shape: Shape, cfg: GemmConfig, device: torch.device
) -> tuple[TensorView, TensorView] | None:
    """What `gemm.bind` takes as workspace= for a C of that shape; None: nothing. Its memory is
    given back at once: what is bound is where it lies.
    """
    if cfg.k_parts == 1:
        return None
    parts, tickets = map(TensorView, _made(workspace_shapes(shape, cfg), device))
    return parts, tickets


def of_launcher(launcher: Launcher, device: torch.device, sets: int) -> dict[str, list[Any]]:
    """A workspace for launches of a kernel that follow each other, by the names of its arguments:
    the same for each of `sets`. Nothing where the kernel takes none.
    """
    if NAMES[0] not in launcher.tensors:
        return {}
    made = _made([launcher.shapes[name] for name in NAMES], device)
    return {name: [x] * sets for name, x in zip(NAMES, made, strict=True)}


def _made(shapes: Sequence[Shape], device: torch.device) -> Tensors:
    parts, tickets = shapes
    return (
        torch.empty(parts, dtype=torch.float32, device=device),
        torch.zeros(tickets, dtype=torch.int32, device=device),
    )


class Workspace(NamedTuple):
    """How large the workspace of a launch is: float32 sums, and int32 tickets."""

    sums: int
    tickets: int

    @classmethod
    def of(cls, launcher: Launcher) -> Workspace | None:
        """That of a kernel; None where it takes none."""
        if NAMES[0] not in launcher.tensors:
            return None
        return cls(*(prod(launcher.shapes[name]) for name in NAMES))

    def take(self, device: torch.device, ordinal: int, stream: int) -> Tensors:
        """The workspace of one launch on a stream."""
        sums = torch.empty(self.sums, dtype=torch.float32, device=device)
        return sums, counters.zeros(ordinal, stream, self.tickets)
