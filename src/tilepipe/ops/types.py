"""Types of what the operations are given and return."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.generic]
ArrayT = TypeVar("ArrayT", npt.NDArray[np.generic], "torch.Tensor")
Shape = tuple[int, ...]
Setting = int | str  # of a kernel's configuration; truth values are integers
Settings = tuple[tuple[str, Setting], ...]  # by name: a part of the key of a prepared launch
Progress = Callable[[int, int], None]
