"""Problems for the kernels in CuTe DSL (`tools/foreign/cute_*kernels.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.ptx.foreign import problems_triton
from tests.ptx.foreign.launching import Array, Make, Problem
from tests.ptx.foreign.problems_triton import scaled_product, type_of

Record = dict[str, Any]


def scaled_copy(record: Record) -> Problem:
    x = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    return Problem((), {"x": x, "y": np.zeros_like(x)}, {"y": 2 * x})


def product(record: Record) -> Problem:
    """D = A @ B.T of 2 x 2 tiles and 4 steps; small integers, so exactly."""
    tile = record["constants"]
    m, n, k = tile.get("SHAPE") or (2 * tile["M"], 2 * tile["N"], 4 * tile["K"])
    random = np.random.default_rng(2)
    a = random.integers(-3, 4, (m, k)).astype(type_of(record, "a"))
    b = random.integers(-3, 4, (n, k)).astype(type_of(record, "b"))
    # which operands each MMA of 32 bytes along K negates
    negated = tile.get("NEGATED") or [""]
    signs = [-1 if which in ("A", "B") else 1 for which in negated]
    along = np.resize(np.repeat(signs, 32 // a.itemsize), k)
    expected = (a.astype(np.float32) * along @ b.astype(np.float32).T).astype(type_of(record, "d"))
    values = {
        "a": a if tile.get("A_MAJOR", "K") == "K" else a.T.copy(),
        "b": b if tile.get("B_MAJOR", "K") == "K" else b.T.copy(),
        "d": np.zeros_like(expected),
    }
    return Problem((), values, {"d": expected})


def persistent(record: Record) -> Problem:
    """In an order in which a cluster gets the tiles of another that has not begun."""
    given = product(record)
    if not record["constants"]["BY_COLUMNS"]:
        return replace(given, seed=2)
    expected = given.expected["d"].T.copy()
    values = {**given.values, "d": np.zeros_like(expected)}
    return replace(given, values=values, expected={"d": expected}, seed=2)


def scaled(record: Record) -> Problem:
    """The problem of the kernels in Triton, whose scales lie in the same way."""
    found = scaled_product(record)
    values, expected = dict(found.values), found.expected["c"]
    return Problem((), values | {"d": np.zeros_like(expected)}, {"d": expected})


def _counted(record: Record, shape: list[int]) -> Array:
    found: Array = np.arange(np.prod(shape)).astype(type_of(record, "x")).reshape(shape)
    return found


def boxes_copied(record: Record) -> Problem:
    """A box for each CTA of a cluster, or one for both."""
    constants = record["constants"]
    x, box = _counted(record, constants["SHAPE"]), constants["BOX"]
    inside = tuple(slice(n) for n in box[1:])
    starts = (0, 0) if constants["SHARED"] else (0, box[0])
    expected = np.stack([x[at : at + box[0]][:, *inside].reshape(-1) for at in starts])
    return Problem((), {"x": x, "out": np.zeros_like(expected)}, {"out": expected})


def boxes_passed(record: Record) -> Problem:
    x = _counted(record, record["constants"]["SHAPE"])
    return Problem((), {"x": x, "out": np.zeros_like(x)}, {"out": x + np.ones((), x.dtype)})


def copied_to_columns(record: Record) -> Problem:
    x = _counted(record, [128, 4])
    return Problem((), {"x": x, "out": np.zeros_like(x)}, {"out": x})


def handed_over(record: Record) -> Problem:
    x = _counted(record, [64])
    return Problem((), {"x": x, "out": np.zeros_like(x)}, {"out": x})


def attention(record: Record) -> Problem:
    """The problem of the kernel in Triton."""
    return replace(problems_triton.attention(record), grid=())


BY_FUNCTION: dict[str, Make] = {
    "ScaledCopy": scaled_copy,
    "Product": product,
    "HopperProduct": product,
    "PersistentProduct": persistent,
    "ScaledProduct": scaled,
    "Attention": attention,
    "HopperAttention": attention,
    "BoxesCopied": boxes_copied,
    "BoxesPassed": boxes_passed,
    "CopiedToColumns": copied_to_columns,
    "HandedOver": handed_over,
}
