"""Operands of grouped products as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

ENDS = [5, 5, 40, 90]


def operands(
    m: int = 100, k: int = 40, n: int = 24, ends: list[int] | None = None, seed: int = 0
) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    offsets = np.array(ENDS if ends is None else ends, np.int32)
    return (
        rng.standard_normal((m, k)).astype(np.float16),
        rng.standard_normal((len(offsets), k, n)).astype(np.float16),
        offsets,
    )
