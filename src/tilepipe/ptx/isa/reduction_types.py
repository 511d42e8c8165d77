"""The types that atomic operations and reductions take, by instruction: operation -> types."""

from __future__ import annotations

from collections.abc import Mapping

Types = Mapping[str, tuple[str, ...]]

HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_INTEGERS = ("u32", "s32", "u64", "s64")
_BITS = ("b32", "b64")
_COUNTERS = {"inc": ("u32",), "dec": ("u32",)}


def _bitwise(*types: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(("and", "or", "xor"), types)


# PTX ISA, atom; red takes the same, but for cas and exch
ATOMIC: Types = {
    **_bitwise(*_BITS), **_COUNTERS,
    "cas": ("b16", "b32", "b64", "b128"), "exch": ("b32", "b64", "b128"),
    "min": (*_INTEGERS, *HALVES), "max": (*_INTEGERS, *HALVES),
    "add": ("u32", "s32", "u64", "f32", "f64", *HALVES),
}  # fmt: skip
# PTX ISA, red.async
ASYNC: Types = {
    **_bitwise(*_BITS), **_COUNTERS, "min": _INTEGERS, "max": _INTEGERS, "add": _INTEGERS,
}  # fmt: skip
# PTX ISA, cp.reduce.async.bulk, in global memory
BULK: Types = {
    **_bitwise(*_BITS), **_COUNTERS,
    "min": (*_INTEGERS, "f16", "bf16"), "max": (*_INTEGERS, "f16", "bf16"),
    "add": ("u32", "s32", "u64", "f32", "f64", "f16", "bf16"),
}  # fmt: skip
# PTX ISA, cp.reduce.async.bulk, in shared memory
BULK_IN_SHARED: Types = {
    **_bitwise("b32"), **_COUNTERS,
    "min": ("u32", "s32"), "max": ("u32", "s32"), "add": ("u32", "s32", "u64"),
}  # fmt: skip
# PTX ISA, cp.reduce.async.bulk.tensor, by the element type of the tensor map. On an H100, s64 has
# minimum and maximum alone.
TENSOR: Types = {
    **BULK, **_bitwise("u32", "s32", "u64"), "add": (*BULK["add"], "f32.ftz"),
}  # fmt: skip
