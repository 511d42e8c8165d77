"""Problems for the kernels in CuTe DSL (`tools/foreign/cute_*kernels.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ptx.foreign.launching import Make, Problem
from tests.ptx.foreign.problems_triton import type_of

Record = dict[str, Any]


def scaled_copy(record: Record) -> Problem:
    x = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    return Problem((), {"x": x, "y": np.zeros_like(x)}, {"y": 2 * x})


def product(record: Record) -> Problem:
    """D = A @ B.T of 2 x 2 tiles and 4 steps; small integers, so exactly."""
    tile = record["constants"]
    m, n, k = 2 * tile["M"], 2 * tile["N"], 4 * tile["K"]
    random = np.random.default_rng(2)
    a = random.integers(-3, 4, (m, k)).astype(type_of(record, "a"))
    b = random.integers(-3, 4, (n, k)).astype(type_of(record, "b"))
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(type_of(record, "d"))
    values = {
        "a": a if tile["A_MAJOR"] == "K" else a.T.copy(),
        "b": b if tile["B_MAJOR"] == "K" else b.T.copy(),
        "d": np.zeros_like(expected),
    }
    return Problem((), values, {"d": expected})


BY_FUNCTION: dict[str, Make] = {
    "ScaledCopy": scaled_copy,
    "Product": product,
    "HopperProduct": product,
}
