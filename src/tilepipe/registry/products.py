"""What the commands know of every product: its extents and random matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.registry.settings import Setting

EXTENTS: dict[str, Setting] = {"m": 1024, "n": 1024, "k": 1024}
MNK = frozenset(EXTENTS)
MAX_ELEMENTS = 2**31  # of one operand: what a run and its reference can still hold in memory
# What is added to a product: one value a "column", or a "row", of it; half of a matrix like it.
ADDENDS: dict[str, Setting] = {"bias": "none", "source": False}
BIASES = ("none", "column", "row")
BETA = 0.5
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


@dataclass(frozen=True, eq=False)
class Addends:
    """What is added to the sums of a product (m, n); None for what is not.

    Attributes:
        bias: (n,), or (m, 1). source: (m, n), added times BETA.
    """

    bias: npt.NDArray[Any] | None
    source: npt.NDArray[Any] | None

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        settings: Mapping[str, Any],
        shape: tuple[int, int],
        dtype: tp.DType,
    ) -> Addends:
        """Random normal ones, those that the settings `bias` and `source` ask for.

        Raises:
            BindError: no such bias.
        """
        (m, n), kind = shape, settings["bias"]
        if kind not in BIASES:
            raise BindError(f"setting bias must be one of {', '.join(BIASES)}, got {kind!r}")
        wanted = {
            "bias": {"none": None, "column": (n,), "row": (m, 1)}[kind],
            "source": shape if settings["source"] else None,
        }
        return cls(
            **{
                name: None
                if size is None
                else rng.standard_normal(size, dtype=np.float32).astype(dtype.numpy)
                for name, size in wanted.items()
            }
        )

    def operands(self) -> dict[str, Any]:
        """The arguments of a GEMM's `bind`."""
        return {
            "bias": self.bias,
            "source": self.source,
            "beta": 0.0 if self.source is None else BETA,
        }

    def added(self, sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sums with what is added to them, in float64."""
        if self.bias is not None:
            sums = sums + self.bias.astype(np.float64)
        if self.source is not None:
            sums = sums + BETA * self.source.astype(np.float64)
        return sums


def tiles_of(m: int, n: int, bm: int, bn: int) -> int:
    """Output tiles of a matrix."""
    return -(-m // bm) * -(-n // bn)
