"""Problems for the kernels in Gluon (`tools/foreign/gluon_kernels.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ptx.foreign.launching import Array, Make, Problem
from tests.ptx.foreign.problems_triton import scaled_product, type_of

Record = dict[str, Any]


def round_trip(record: Record) -> Problem:
    shape = record["constants"]["M"], record["constants"]["N"]
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    return Problem((1,), {"x": x, "out": np.zeros_like(x)}, {"out": x})


def far_apart(record: Record) -> Problem:
    """Two tiles that differ."""
    shape = 2, record["constants"]["M"], record["constants"]["N"]
    x = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
    return Problem((1,), {"x": x, "out": np.zeros_like(x)}, {"out": x})


def two_products(record: Record) -> Problem:
    """One B, and two A, of small integers."""
    m, n, k = (record["constants"][extent] for extent in "MNK")
    random = np.random.default_rng(7)
    a = random.integers(-3, 4, (2, m, k)).astype(type_of(record, "a"))
    b = random.integers(-3, 4, (k, n)).astype(type_of(record, "b"))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    return Problem((1,), {"a": a, "b": b, "out": np.zeros_like(expected)}, {"out": expected})


def _beyond_tf32(values: Array, random: np.random.Generator) -> Array:
    """The numbers with other bits in the lower 13 of float32, which are not part of tf32: the
    tensor core ignores them.
    """
    more = random.integers(1, 1 << 13, values.shape, np.uint32)
    found: Array = (values.view(np.uint32) | more).view(np.float32)
    return found


def product(record: Record) -> Problem:
    """Small integers, so that the product is exact in every type."""
    constants = record["constants"]
    depth = constants["K"] if "K" in constants else 3 * constants["BK"]
    transposed = constants.get("TRANSPOSED", False)
    random = np.random.default_rng(2)
    a = random.integers(-3, 4, (constants["M"], depth)).astype(type_of(record, "a"))
    b = random.integers(-3, 4, (depth, constants["N"])).astype(type_of(record, "b"))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    if a.dtype == np.float32:
        a, b = _beyond_tf32(a, random), _beyond_tf32(b, random)
    values = {
        "a": a, "b": b.T.copy() if transposed else b, "out": np.zeros_like(expected), "k": depth,
    }  # fmt: skip
    return Problem((1,), values, {"out": expected})


def scaled(record: Record) -> Problem:
    """The problem of the kernels in Triton, whose scales lie in the same way."""
    tile = record["constants"]
    like_triton = record | {"constants": tile | {"BM": tile["M"], "BN": tile["N"]}}
    found = scaled_product(like_triton)
    values, expected = dict(found.values), found.expected["c"]
    for name, rows in (("a_scale", tile["M"]), ("b_scale", tile["N"])):
        values[name] = values[name].reshape(1, rows // 128, -1, 2, 256)
    return Problem((1,), values | {"out": np.zeros_like(expected)}, {"out": expected})


def added(record: Record) -> Problem:
    """Three boxes, each added twice to what is there, and copied behind."""
    dtype = type_of(record, "x")
    random = np.random.default_rng(3)
    x = random.integers(-8, 9, (3, 16, 32)).astype(dtype)
    out = random.integers(-8, 9, (6, 16, 32)).astype(dtype)
    expected = np.concatenate([out[:3] + x + x, x])
    return Problem((3,), {"x": x, "out": out}, {"out": expected})


def passed_through(record: Record) -> Problem:
    """A tensor of twice the box: the other half stays as it is."""
    (box,) = [p["box"] for p in record["parameters"] if p["kind"] == "map" and p["name"] == "x"]
    shape = 2 * box[0], *box[1:]
    x = np.random.default_rng(4).integers(0, 100, shape).astype(type_of(record, "x"))
    expected = np.zeros_like(x)
    expected[: box[0]] = x[: box[0]] + np.array(7, x.dtype)
    values = {"x": x, "out": np.zeros_like(x), "value": 7}
    return Problem((1,), values, {"out": expected})


def sent_to_all(record: Record) -> Problem:
    x = np.random.default_rng(5).integers(-9, 9, (64, 64)).astype(type_of(record, "x"))
    return Problem((1,), {"x": x, "out": np.zeros_like(x)}, {"out": x})


BY_FUNCTION: dict[str, Make] = {
    "tensor_memory_round_trip": round_trip, "tensor_memory_far_apart": far_apart,
    "two_products": two_products, "product": product, "pair_product": product,
    "scaled_product": scaled, "added_by_tma": added,
    "passed_through": passed_through, "sent_to_all": sent_to_all,
}  # fmt: skip
