"""The arguments of one call of `ops.scaled_matmul`, for both kinds of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tilepipe.ops.types import ArrayT, Settings

NAME = "scaled_matmul"


@dataclass
class ScaledCall(Generic[ArrayT]):
    """(scale_a · a) @ (scale_b · b) + bias; `ops.scaled_matmul` says what each may be.

    Attributes:
        scale_a, scale_b: of parts of the operand, or the pair of these and of the whole operand.
    """

    a: ArrayT
    b: ArrayT
    scale_a: ArrayT | tuple[ArrayT, object]
    scale_b: ArrayT | tuple[ArrayT, object]
    out: ArrayT | None
    bias: ArrayT | None
    out_dtype: object
    settings: Settings
