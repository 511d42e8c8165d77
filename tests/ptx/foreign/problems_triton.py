"""Problems for the kernels in Triton (`tools/foreign/triton_kernels.py`)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tests.ptx.foreign.launching import Array, Make, Problem

Record = dict[str, Any]
_RANDOM = np.random.default_rng
_TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "fp16": np.float16, "fp32": np.float32, "i32": np.int32,
    "fp8e4nv": ml_dtypes.float8_e4m3fn, "fp8e5": ml_dtypes.float8_e5m2, "u8": np.uint8,
    "tf32": np.float32, "i64": np.int64,
}  # fmt: skip


def type_of(record: Record, name: str) -> Any:
    """The type of a tensor's elements."""
    if name in record.get("types", ()):
        return _TYPES[record["types"][name]]
    return next(_TYPES[p["type"]] for p in record["parameters"] if p["name"] == name)


def vector_add(record: Record) -> Problem:
    x, y = _RANDOM(1).standard_normal((2, 2500)).astype(np.float32)
    values = {"x": x, "y": y, "out": np.zeros_like(x), "n": len(x)}
    return Problem((3,), values, {"out": x + y})


def softmax(record: Record) -> Problem:
    x = _RANDOM(2).standard_normal((3, 720)).astype(np.float32)
    values = {"x": x, "out": np.zeros_like(x), "columns": 700, "stride": 720}
    expected = np.zeros_like(x)
    x[:, 700:] = 99
    powers = np.exp(x[:, :700].astype(np.float64) - x[:, :700].max(1, keepdims=True))
    expected[:, :700] = powers / powers.sum(1, keepdims=True)
    return Problem((3,), values, {"out": expected}, 1e-6)


def histogram(record: Record) -> Problem:
    x = _RANDOM(3).integers(0, 16, 1200).astype(np.int32)
    values = {"x": x, "out": np.zeros(16, np.int32), "n": len(x)}
    return Problem((3,), values, {"out": np.bincount(x, minlength=16).astype(np.int32)})


def transpose(record: Record) -> Problem:
    x = _RANDOM(4).standard_normal((128, 64)).astype(np.float16)
    values = {"x": x, "out": np.zeros((64, 128), np.float16), "rows": 128, "columns": 64}
    return Problem((2, 1), values, {"out": x.T.copy()})


def cumulative_sum(record: Record) -> Problem:
    x = _RANDOM(5).integers(-99, 99, (2, 500)).astype(np.int32)
    values = {"x": x, "out": np.zeros_like(x), "columns": 500}
    return Problem((2,), values, {"out": x.cumsum(1, dtype=np.int32)})


def sort_rows(record: Record) -> Problem:
    x = _RANDOM(6).integers(-999, 999, (2, 256)).astype(np.int32)
    return Problem((2,), {"x": x, "out": np.zeros_like(x)}, {"out": np.sort(x, 1)})


def convert(record: Record) -> Problem:
    x = (_RANDOM(7).standard_normal(1024) * 9).astype(np.float32)
    expected = {
        "half": x.astype(np.float16), "bfloat": x.astype(ml_dtypes.bfloat16),
        "back": x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32),
    }  # fmt: skip
    values = {name: np.zeros_like(array) for name, array in expected.items()}
    return Problem((2,), {"x": x, "n": len(x), **values}, expected)


def product(record: Record) -> Problem:
    """C = A @ B, for all kernels that compute no more than that; small integers, so exactly."""
    tile = record["constants"]
    named = {p["name"] for p in record["parameters"]}
    persistent = "m" in named and any(p["kind"] == "map" for p in record["parameters"])
    m, n, k = 2 * tile["BM"] if persistent else tile["BM"], 2 * tile["BN"], 3 * tile["BK"]
    transposed = tile.get("TRANSPOSED", "m" in named)
    random = _RANDOM(8)
    a = random.integers(-2, 3, (m, k)).astype(type_of(record, "a"))
    b = random.integers(-2, 3, (k, n)).astype(type_of(record, "b"))
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(type_of(record, "c"))
    values: dict[str, Any] = {
        "a": a, "b": b.T.copy() if transposed else b, "c": np.zeros_like(expected),
        "m": m, "n": n, "k": k, "a_stride": k, "b_stride": n, "c_stride": n,
    }  # fmt: skip
    return Problem((3,) if persistent else (m // tile["BM"], 2), values, {"c": expected})


def _unpacked(packed: Array) -> Array:
    """The values of packed 4-bit floats, two to a byte, the lower half first."""
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
    found: Array = np.where(codes & 8, -table[codes & 7], table[codes & 7])
    return found


def _blocked(scales: Array) -> Array:
    """Scale factors of rows and groups in the order of the tensor core: blocks of 128 rows and 4
    groups; in a block, the row modulo 32 counts most, then the row divided by 32, then the group.
    """
    rows, groups = scales.shape
    blocks = scales.reshape(rows // 128, 4, 32, groups // 4, 4)
    return np.ascontiguousarray(blocks.transpose(0, 3, 2, 1, 4)).reshape(-1)


def scaled_product(record: Record) -> Problem:
    tile = record["constants"]
    m, n, k, group = tile["BM"], tile["BN"], 2 * tile["BK"], tile["GROUP"]
    random = _RANDOM(9)
    values: dict[str, Any] = {"k": k}
    factors = []
    for name, rows, kind in (("a", m, tile["A_TYPE"]), ("b", n, tile["B_TYPE"])):
        if kind == "e2m1":
            packed = random.integers(0, 256, (rows, k // 2)).astype(np.uint8)
            plain, values[name] = _unpacked(packed), packed
        else:
            held = random.integers(-3, 4, (rows, k)).astype(type_of(record, name))
            plain, values[name] = held.astype(np.float32), held
        if group == 16:
            scale = 2.0 ** random.integers(-1, 3, (rows, k // group))
            stored = scale.astype(ml_dtypes.float8_e4m3fn)
        else:
            exponents = random.integers(-1, 3, (rows, k // group))
            scale, stored = 2.0**exponents, (exponents + 127).astype(np.uint8)
        values[f"{name}_scale"] = _blocked(stored)
        if record["source"].endswith("_tma"):
            values[f"{name}_scale"] = _blocked(stored).reshape(1, rows // 128, -1, 2, 256)
        if name == "b" and tile.get("CROSSED"):  # the last scale of each step comes first
            steps = scale.reshape(rows, -1, tile["BK"] // group)
            scale = steps[:, :, ::-1].reshape(scale.shape)
        factors.append(plain * np.repeat(scale, group, 1))
    expected = (factors[0] @ factors[1].T).astype(np.float32)
    values["c"] = np.zeros_like(expected)
    return Problem((1, 1), values, {"c": expected})


def attention(record: Record) -> Problem:
    tile = record["constants"]
    rows, length, depth = tile["BM"], 3 * tile["BN"], tile["D"]
    random = _RANDOM(10)
    q, k, v = (
        random.standard_normal((n, depth)).astype(ml_dtypes.bfloat16)
        for n in (rows, length, length)
    )
    scale = float(1 / (np.log(2) * np.sqrt(depth)))
    scores = q.astype(np.float64) @ k.astype(np.float64).T * scale
    powers = np.exp2(scores - scores.max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True) @ v.astype(np.float64)
    values = {
        "q": q, "k": k, "v": v, "out": np.zeros_like(q), "length": length, "scale": scale,
    }  # fmt: skip
    return Problem((1,), values, {"out": expected}, 0.01)


BY_FUNCTION: dict[str, Make] = {
    "vector_add": vector_add, "softmax": softmax, "histogram": histogram, "transpose": transpose,
    "cumulative_sum": cumulative_sum, "sort_rows": sort_rows, "convert": convert,
    "gemm": product, "gemm_tma": product, "gemm_device_maps": product, "gemm_persistent": product,
    "gemm_scaled": scaled_product, "gemm_scaled_tma": scaled_product, "attention": attention,
}  # fmt: skip
