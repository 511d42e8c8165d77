"""What the commands know of every product: its extents and random matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.registry.settings import Setting

EXTENTS: dict[str, Setting] = {"m": 1024, "n": 1024, "k": 1024}
MNK = frozenset(EXTENTS)
MAX_ELEMENTS = 2**31  # of one operand: what a run and its reference can still hold in memory
BY_DEFAULT = "the defaults; --device cuda chooses them for the shape"


def check_extents(settings: Mapping[str, Any]) -> None:
    """Raises BindError for extents that no matrix has, or that a run cannot hold."""
    m, n, k = (settings[name] for name in "mnk")
    check_sizes(settings, "mnk", m * k, n * k, m * n)


def check_sizes(settings: Mapping[str, Any], names: Iterable[str], *elements: int) -> None:
    """Raises BindError where an extent or a number is below 1, or a run cannot hold an operand.

    Args:
        names: of the settings. elements: of each operand.
    """
    for name in names:
        if settings[name] < 1:
            raise BindError(f"setting {name} must be at least 1, got {settings[name]}")
    if max(elements) > MAX_ELEMENTS:
        raise BindError(
            f"an operand of {max(elements):,} elements is more than a run takes ({MAX_ELEMENTS:,})"
        )


def random_matrix(
    rng: np.random.Generator, shape: tuple[int, int], dtype: tp.DType, order: str
) -> npt.NDArray[Any]:
    """Random normal numbers that tensor cores multiply exactly."""
    values = rng.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)
    if dtype is tp.float32:  # what tf32 holds exactly: 10 bits of mantissa
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.asfortranarray(values) if order == "col" else values


def tiles_of(m: int, n: int, bm: int, bn: int) -> int:
    """Output tiles of a matrix."""
    return -(-m // bm) * -(-n // bn)
