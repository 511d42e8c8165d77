"""Problems for the kernels in Gluon (`tools/foreign/gluon_kernels.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ptx.foreign.launching import Make, Problem
from tests.ptx.foreign.problems_triton import type_of

Record = dict[str, Any]


def round_trip(record: Record) -> Problem:
    shape = record["constants"]["M"], record["constants"]["N"]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    return Problem((1,), {"x": x, "out": np.zeros_like(x)}, {"out": x})


def product(record: Record) -> Problem:
    """Small integers, so that the product is exact in every type."""
    constants = record["constants"]
    depth = constants["K"] if "K" in constants else 3 * constants["BK"]
    transposed = constants.get("TRANSPOSED", False)
    random = np.random.default_rng(2)
    a = random.integers(-3, 4, (constants["M"], depth)).astype(type_of(record, "a"))
    b = random.integers(-3, 4, (depth, constants["N"])).astype(type_of(record, "b"))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    values = {
        "a": a, "b": b.T.copy() if transposed else b, "out": np.zeros_like(expected), "k": depth,
    }  # fmt: skip
    return Problem((1,), values, {"out": expected})


BY_FUNCTION: dict[str, Make] = {
    "tensor_memory_round_trip": round_trip, "product": product, "pair_product": product,
}  # fmt: skip
