"""The arguments of one call of `ops.attention`, for both kinds of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tilepipe.ops.types import ArrayT, Settings


@dataclass
class AttentionCall(Generic[ArrayT]):
    """softmax(scale · q · kᵀ) · v; `ops.attention` says what each may be."""

    q: ArrayT
    k: ArrayT
    v: ArrayT
    out: ArrayT | None
    causal: bool
    scale: float | None
    return_lse: bool
    layout: str
    settings: Settings
