"""What a bulk reduction does to elements in memory (PTX ISA, "cp.reduce.async.bulk",
"cp.reduce.async.bulk.tensor").
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tilepipe.machine.memory.byte_access import Combine
from tilepipe.machine.memory.byte_sets import Bytes
from tilepipe.ptx.isa.combining import combined

KINDS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_HALVES = ("f16", "bf16")
_EXTREMA = ("u32", "s32", "u64", "s64", *_HALVES)
# On an H100 the 64-bit signed type of a tensor map has minimum and maximum alone.
_BITS = ("u32", "s32", "u64", "b32", "b64")
_TYPES = {
    "add": ("u32", "s32", "u64", "f32", "f32.ftz", "f64", *_HALVES),
    "min": _EXTREMA, "max": _EXTREMA, "inc": ("u32",), "dec": ("u32",),
    "and": _BITS, "or": _BITS, "xor": _BITS,
}  # fmt: skip


@lru_cache(maxsize=64)
def reduction(kind: str, element: str) -> Combine | None:
    """What is in memory, and the operand, as bytes -> what is there then; None: there is no such
    reduction. Sums in float32 flush subnormal numbers, as those of atomics on global memory do.
    """
    if element not in _TYPES[kind]:
        return None
    plain = element.removesuffix(".ftz")
    combine = combined(kind, plain, flushes=plain == "f32")

    def reduce(there: Bytes, given: Bytes) -> Bytes:
        flat = np.ascontiguousarray(there).reshape(-1)
        return combine(flat, np.ascontiguousarray(given).reshape(-1)).reshape(there.shape)

    return reduce
