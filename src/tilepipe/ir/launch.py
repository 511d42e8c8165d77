"""A kernel with its arguments: what a reader needs to run it once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tilepipe.ir.chip import H200, Chip
from tilepipe.ir.program import Kernel


@dataclass(frozen=True, eq=False, slots=True)
class TensorArg:
    """A tensor argument. `array` is a NumPy array for the simulator, any device array for a launch;
    `shape` is in elements.
    """

    array: Any
    shape: tuple[int, ...]


Arg = TensorArg | int | float


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """`kernel` over `grid` CTAs (a multiple of the cluster size; CTAs of a cluster are consecutive)
    with `args` by parameter name.
    """

    kernel: Kernel
    grid: int
    args: dict[str, Arg]
    chip: Chip = H200


class HoldsLaunch(Protocol):
    """A program, of which a reader takes the launch."""

    @property
    def launch_args(self) -> Launch: ...
