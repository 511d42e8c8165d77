"""Scale factors of blocks along K as the tensor cores of Blackwell take them: the kinds there are,
and their layout in memory.

The scale of row r and block k is in a piece of 128 rows × 4 blocks, of 512 bytes, at byte (r % 32)
· 16 + (r % 128) // 32 · 4 + k % 4; the pieces of the same rows lie one after the other along K.
That is what tcgen05.cp spreads over the lanes of tensor memory (PTX ISA, tcgen05 scale factor
layouts), what cuBLAS asks for, and PyTorch's `SwizzleType.SWIZZLE_32_4_4`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp

Array = npt.NDArray[Any]
# of A or B, and blocks of K
PIECE_ROWS, PIECE_SCALES = tp.ScaleFactorLayout.piece_rows, tp.ScaleFactorLayout.piece_blocks
LINE = 16  # bytes that lie together of a piece in memory: every 32nd row
LINES = tp.ScaleFactorLayout.piece_bytes // LINE


@dataclass(frozen=True)
class Kind:
    """A number format with a scale for each row and `block` elements of K.

    Attributes:
        elements: dtypes that A and B may have, by name. scale: that of the scales. block: elements
            that share one.
    """

    name: str
    elements: tuple[str, ...]
    scale: str
    block: int

    def scales_of(self, k: int) -> int:
        """Scales of a row of `k` elements."""
        return -(-k // self.block)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("mxfp8", ("float8_e4m3", "float8_e5m2"), "float8_e8m0", 32),
        Kind("mxfp4", ("float4_e2m1",), "float8_e8m0", 32),
        Kind("nvfp4", ("float4_e2m1",), "float8_e4m3", 16),
    )
}


def blocked_shape(rows: int, scales: int) -> tuple[int, int, int, int]:
    """Shape of the scales of `rows` rows, `scales` a row, in memory: (pieces along the rows, pieces
    along K, 32, 16).
    """
    return -(-rows // PIECE_ROWS), -(-scales // PIECE_SCALES), LINES, LINE


def to_blocked(scales: Array) -> Array:
    """Scales (rows, blocks of K), of one byte each, as the kernel reads them: an array of
    `blocked_shape`. Padding is zero bytes, which both dtypes of scales read as a number (no NaN),
    so that products with rows and blocks outside the matrix add nothing.

    Raises:
        BindError: not a matrix of bytes.
    """
    if scales.ndim != 2 or scales.dtype.itemsize != 1:
        raise tp.BindError(
            "to_blocked takes a matrix of scales of one byte, (rows, blocks of K); got"
            f" {scales.shape} {scales.dtype}"
        )
    rows, cols = scales.shape
    over, along, *_ = blocked_shape(rows, cols)
    padded = np.zeros((over * PIECE_ROWS, along * PIECE_SCALES), np.uint8)
    padded[:rows, :cols] = np.ascontiguousarray(scales).view(np.uint8)
    pieces = padded.reshape(over, PIECE_ROWS // LINES, LINES, along, PIECE_SCALES).transpose(
        0, 3, 2, 1, 4
    )
    return np.ascontiguousarray(pieces).reshape(over, along, LINES, LINE).view(scales.dtype)


def from_blocked(blocked: Array, rows: int, scales: int) -> Array:
    """The reverse of `to_blocked`: (rows, scales) of an array of `blocked_shape(rows, scales)`, in
    any shape of as many elements.

    Raises:
        BindError: another number of elements.
    """
    shape = blocked_shape(rows, scales)
    if blocked.size != np.prod(shape):
        raise tp.BindError(
            f"blocked scales of {rows} rows and {scales} blocks of K have shape {shape}; got"
            f" {blocked.shape}"
        )
    pieces = blocked.reshape(
        shape[0], shape[1], LINES, PIECE_ROWS // LINES, PIECE_SCALES
    ).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(pieces).reshape(shape[0] * PIECE_ROWS, shape[1] * PIECE_SCALES)[
        :rows, :scales
    ]
