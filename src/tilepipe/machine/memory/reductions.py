"""The results of a reduction of the elements of a tensor and of those given (PTX ISA, red,
cp.reduce.async.bulk.tensor).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, product

import numpy as np

from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.storage import Array, Combine
from tilepipe.machine.sites import Site

_BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_LEAST_NORMAL = np.finfo(np.float32).tiny


@lru_cache(maxsize=64)
def combined(operation: str, dtype: DType) -> Combine:
    """(elements that are there, as many given) -> what is there then. Sums of integers wrap; sums
    in float32 flush subnormal numbers to zero; a minimum or maximum of a NaN and a number is the
    number.
    """

    def combine(there: Array, given: Array) -> Array:
        match operation:
            case "add" if dtype is dtypes.float32:
                return _flushed(_flushed(there) + _flushed(given))
            case "add":
                return there + given
            case "min" | "max":
                found: Array = (np.fmin if operation == "min" else np.fmax)(there, given)
                return found
        bits: Array = _BITWISE[operation](there, given)
        return bits

    return combine


def _flushed(x: Array) -> Array:
    """Zeros of the same sign in the place of subnormal numbers."""
    return np.where(np.abs(x) < _LEAST_NORMAL, np.copysign(np.float32(0), x), x)


def reduced(m: Machine, site: Site, mask: int, box: Sequence[tuple[int, int]]) -> None:
    """Reports a reduction of a box of elements, (first, end) in each dimension: each element where
    strong accesses look at them, otherwise the box, of sums that depend on their order.
    """
    if m.journal is None or any(first >= end for first, end in box):
        return
    if m.world.looks_at(site):
        for where in product(*(range(first, end) for first, end in box)):
            m.in_turn((site.tensor, *where), mask, True)
    elif site.adds == "floats":
        m.in_turn((site.tensor, *chain.from_iterable(box)), mask, True)
