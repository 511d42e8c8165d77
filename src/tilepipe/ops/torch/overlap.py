"""Whether a result shares memory with an operand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tilepipe.errors import BindError

# Work of np.shares_memory: a millisecond at most. NumPy's annotation knows its constants alone.
MAX_WORK: Any = 100_000


def refuse_overlap(
    operation: str, out: torch.Tensor, span: int, operands: Iterable[tuple[str, torch.Tensor, int]]
) -> None:
    """Raises BindError where `out` has elements in common with an operand.

    Args:
        span: bytes from the first to the last element of `out`. operands: name, tensor and span of
            each.
    """
    first = out.data_ptr()
    last = first + span
    for name, x, size in operands:
        start = x.data_ptr()
        if start < last and first < start + size and _same_elements(x, out):
            raise BindError(
                f"{operation}: out shares memory with {name}, which is still read while out is"
                " written; give it memory of its own"
            )


def _same_elements(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether tensors whose ranges overlap have elements in common; those side by side in the
    same rows have none.
    """
    try:
        return bool(np.shares_memory(_described(x), _described(y), max_work=MAX_WORK))
    except np.exceptions.TooHardError:  # strides that make it a puzzle: taken for shared
        return True


def _described(x: torch.Tensor) -> npt.NDArray[np.void]:
    """An array of the same addresses, which may be a GPU's: nothing is read there."""
    size = x.element_size()
    strides = tuple(stride * size for stride in x.stride())
    described = {
        "shape": tuple(x.shape),
        "strides": strides,
        "typestr": f"|V{size}",
        "data": (x.data_ptr(), True),
        "version": 3,
    }
    return np.asarray(_Interface(described))


class _Interface:
    """An object that NumPy takes for an array."""

    def __init__(self, described: dict[str, object]) -> None:
        self.__array_interface__ = described
