"""The functions of two values that atomic operations and reductions compute."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tilepipe.machine.memory.byte_access import Combine
from tilepipe.ptx.lanes import Array
from tilepipe.ptx.numerics.modifiers import CANONICAL, flush
from tilepipe.ptx.numerics.types import TYPES

_DTYPES = {"f16x2": np.dtype(np.float16), "bf16x2": np.dtype(ml_dtypes.bfloat16)}
VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def combined(name: str, kind: str, *, flushes: bool = False) -> Combine:
    """(what is there, the operand) -> what is then, all as bytes."""
    dtype = _DTYPES.get(kind, TYPES[kind].dtype)
    one = dtype.type(1) if dtype.kind in "iu" else None
    canonical = CANONICAL.get(kind.removesuffix("x2"), [])

    def chosen(there: Array, given: Array) -> Array:
        match name:
            case "add":
                total = flush(flush(there) + flush(given)) if flushes else there + given
                for step in canonical:
                    total = step(total)
                return total
            case "and":
                return there & given
            case "or":
                return there | given
            case "xor":
                return there ^ given
            case "min":
                return np.fmin(there, given)
            case "max":
                return np.fmax(there, given)
            case "inc":
                return np.where(there >= given, there ^ there, there + one)
            case "dec":
                return np.where((there == 0) | (there > given), given, there - one)
        return given

    def combine(there: Array, given: Array) -> Array:
        if name == "cas":
            expected, new = np.split(given, 2)
            return new if bool((there == expected).all()) else there
        found: Array = chosen(there.view(dtype), given.view(dtype)).astype(dtype)
        return found.view(np.uint8)

    return combine
