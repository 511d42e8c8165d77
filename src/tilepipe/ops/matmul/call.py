"""The arguments of one call of `ops.matmul`, for both kinds of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tilepipe.ops.types import ArrayT, Settings

NAME = "matmul"


@dataclass
class MatmulCall(Generic[ArrayT]):
    """activation(alpha · (a @ b) + beta · source + bias); `ops.matmul` says what each may be."""

    a: ArrayT
    b: ArrayT
    out: ArrayT | None
    bias: ArrayT | None
    activation: str | None
    source: ArrayT | None
    alpha: float
    beta: float | None
    out_dtype: object
    precision: str | None
    settings: Settings

    @property
    def source_scale(self) -> float:
        """What the source is multiplied by; 0: it is not read."""
        if self.source is None:
            return 0.0
        return 1.0 if self.beta is None else float(self.beta)
