"""Values of the 32 lanes of a warp, as NumPy arrays, and sets of lanes, as masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Lanes = npt.NDArray[np.bool_]

WARP = 32
LANES = np.arange(WARP, dtype=np.uint32)
FULL = 0xFFFFFFFF
_ALL = np.ones(WARP, np.bool_)
_ALL.flags.writeable = False


def merged(lanes: Lanes, new: Array, old: Array | None) -> Array:
    """A register of which some lanes have been written."""
    return new if old is None else np.where(lanes, new, old)


def spread(value: Any, dtype: np.dtype[Any]) -> Array:
    """One value in all lanes; an integer for a type that NumPy lacks (of 128 bits, bf16) is its
    bits.
    """
    if dtype.kind == "V" and isinstance(value, int):
        return np.frombuffer(int(value).to_bytes(dtype.itemsize, "little") * WARP, dtype)
    return np.full(WARP, value, dtype)


def lane_mask(lanes: Lanes) -> int:
    """A bit for each lane."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")


def lanes_from_mask(mask: int) -> Lanes:
    """The lanes of a mask."""
    if mask == FULL:
        return _ALL
    raw = np.frombuffer(mask.to_bytes(4, "little"), np.uint8)
    return np.unpackbits(raw, bitorder="little").view(np.bool_)
