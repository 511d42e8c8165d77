"""How weights of 4 and 8 bits lie in memory: in the order in which the threads of a warpgroup need
them, so that nothing moves between threads on the way to the tensor cores.

The weights (n, k) are divided into blocks of 128 along K. A row of a block is 4 · bits words of 32
bits, which have 32 / bits codes each; the words (k blocks, n, 4 · bits) are contiguous, so that the
tile of a stage is one piece of memory. A code is the weight plus 8, or plus 128: never negative.

Of each eight words of a row, the thread t of a quad of a warp reads words 2 t and 2 t + 1 (as of an
accumulator). The codes whose bits p · bits to p · bits + bits - 1 and the same 16 bits higher are
in one word become two neighbouring elements of a 16-bit fragment (`Fragment.bitcast`). So code s of
part p of word 8 j + 2 t + i is column p · 2 · words + 16 j + 8 i + 2 t + s of the block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.host_arguments import plain_int, shown

BLOCK = 128  # elements of K in a block
BITS = (4, 8)


def words_of(bits: int) -> int:
    """Words of 32 bits that a row of a block has."""
    return BLOCK * bits // 32


def bits_of(words: int) -> int | None:
    """The bits of a weight, of `words` words a row of a block; None: there is no such layout."""
    return next((bits for bits in BITS if words_of(bits) == words), None)


def pack(
    weights: np.ndarray[Any, Any], bits: int = 4, *, who: str = "pack"
) -> np.ndarray[Any, Any]:
    """Weights (n, k), integers of -8 to 7 (bits 4) or -128 to 127 (bits 8), as int32 words
    (⌈k / 128⌉, n, 4 · bits). K is filled up to a multiple of 128 with weights of 0.

    Args:
        who: the function that was called, for messages.

    Raises:
        BindError: no matrix, no integers, or a weight that does not fit into so many bits.
    """
    if (number := plain_int(bits)) not in BITS:
        raise tp.BindError(f"{who}: weights have 4 or 8 bits, got bits={shown(bits)}")
    bits = number
    if not isinstance(weights, np.ndarray):
        raise tp.BindError(f"{who}: weights must be a NumPy array, got {weights!r:.40}")
    if weights.ndim != 2 or weights.dtype.kind not in "iu":
        raise tp.BindError(
            f"{who}: weights must be a matrix (n, k) of integers; they are {weights.dtype} of shape"
            f" {weights.shape}"
        )
    offset = 1 << (bits - 1)
    low, high = (int(f()) if weights.size else 0 for f in (weights.min, weights.max))
    if low < -offset or high >= offset:
        raise tp.BindError(
            f"{who}: weights of {bits} bits are {-offset} to {offset - 1}; there are {low} to"
            f" {high}"
        )
    n, k = weights.shape
    blocks, words, parts = -(-k // BLOCK), words_of(bits), 16 // bits
    codes = np.full((n, blocks * BLOCK), offset, np.uint32)
    codes[:, :k] = weights.astype(np.int64) + offset
    # row, block, p, j, i, t, s
    shaped = codes.reshape(n, blocks, parts, words // 8, 2, 4, 2)
    shifts = bits * np.arange(parts)[:, None, None, None, None] + 16 * np.arange(2)
    found = (shaped << shifts.astype(np.uint32)).sum(axis=(2, 6), dtype=np.uint32)
    # row, block, j, i, t -> block, row, j, t, i
    ordered = found.transpose(1, 0, 2, 4, 3).reshape(blocks, n, words)
    return np.ascontiguousarray(ordered).view(np.int32)


def unpack(words: np.ndarray[Any, Any], k: int) -> np.ndarray[Any, Any]:
    """The weights (n, k) of `pack`, int8."""
    blocks, n, width = words.shape
    bits = bits_of(width)
    assert bits is not None
    parts = 16 // bits
    found = words.view(np.uint32).reshape(blocks, n, width // 8, 4, 2).transpose(1, 0, 2, 4, 3)
    shifts = bits * np.arange(parts)[:, None, None, None, None] + 16 * np.arange(2)
    codes = found[:, :, None, ..., None] >> shifts.astype(np.uint32) & ((1 << bits) - 1)
    weights = codes.reshape(n, blocks * BLOCK).astype(np.int16) - (1 << (bits - 1))
    return weights[:, :k].astype(np.int8)
