"""Bulk reductions of elements in memory (PTX ISA, "cp.reduce.async.bulk",
"cp.reduce.async.bulk.tensor").
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tilepipe.machine.memory.byte_access import Combine
from tilepipe.machine.memory.byte_sets import Bytes
from tilepipe.ptx.isa.combining import combined


@lru_cache(maxsize=64)
def reduction(operation: str, element: str) -> Combine:
    """(contents of memory, operand) -> the new contents, all as bytes. Sums in float32 flush
    subnormal numbers, as those of atomics on global memory do.
    """
    plain = element.removesuffix(".ftz")
    combine = combined(operation, plain, flushes=plain == "f32")

    def reduce(there: Bytes, given: Bytes) -> Bytes:
        flat = np.ascontiguousarray(there).reshape(-1)
        return combine(flat, np.ascontiguousarray(given).reshape(-1)).reshape(there.shape)

    return reduce
