"""Shapes and layouts that are tried with emulated launches and on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SHAPES = [
    ((70, 40), (40, 33)),
    ((128, 64), (64, 128)),
    ((1, 300), (300, 8)),
    ((7,), (7,)),
    ((40,), (40, 16)),
    ((16, 40), (40,)),
    ((2, 3, 8), (8, 16)),
    ((2, 3, 8), (2, 8, 16)),
    ((2, 1, 3, 8), (5, 8, 16)),
    ((3, 8), (5, 8, 16)),
    ((2, 3, 4, 8), (1, 1, 8, 16)),
    ((8,), (5, 8, 16)),
    ((5, 3, 8), (8,)),
    ((1, 3, 8), (4, 8, 16)),
    ((1, 1, 1), (1, 1)),
]
ZERO = [
    ((0, 4), (4, 4)),
    ((4, 0), (0, 4)),
    ((4, 4), (4, 0)),
    ((0,), (0,)),
    ((0,), (0, 3)),
    ((2, 0, 8), (8, 4)),
    ((0, 3, 8), (8, 4)),
    ((2, 3, 0), (0, 4)),
    ((0, 1, 3, 8), (5, 8, 4)),
]

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x,
    "transposed view": lambda x: x.mT.contiguous().mT,
    "part of wider rows": lambda x: _wider(x)[..., : x.shape[-1]],
    "every second": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "off by one element": lambda x: _shifted(x),
    "one row for all": lambda x: x[..., :1, :].expand(x.shape),
    "batch innermost": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
}
AS_IT_LIES = {"row", "transposed view", "part of wider rows"}
"""Layouts of a matrix whose extents are multiples of 8 that are read without a copy."""


def _wider(x: Any) -> Any:
    y = x.new_zeros((*x.shape[:-1], x.shape[-1] + 16))
    y[..., : x.shape[-1]] = x
    return y


def _shifted(x: Any) -> Any:
    y = x.new_zeros(x.numel() + 1)
    y[1:] = x.reshape(-1)
    return y[1:].view(x.shape)
