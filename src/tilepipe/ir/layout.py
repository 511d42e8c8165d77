"""The layout of a shared-memory tile, panels and swizzles: one definition for all readers."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from tilepipe.ir.dtypes import DType

SWIZZLES = (0, 32, 64, 128)  # bytes; the CU_TENSOR_MAP_SWIZZLE_* modes


class TileLayout(Protocol):
    """The properties of a buffer that determine the layout of a tile (`ir.memory.SmemBuffer`)."""

    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def order(self) -> str: ...
    @property
    def swizzle(self) -> int: ...


def panel_elements(buffer: TileLayout) -> int:
    """Elements of the contiguous dimension in one panel."""
    contiguous = buffer.cols if buffer.order == "row" else buffer.rows
    return (
        contiguous
        if buffer.swizzle == 0
        else min(contiguous, buffer.swizzle * 8 // buffer.dtype.bits)
    )


def swizzle_offset(offset: npt.NDArray[np.int64], swizzle: int) -> npt.NDArray[np.int64]:
    """Applies a swizzle to byte offsets from a base aligned to 8 lines of `swizzle` bytes.

    128B: bits 4-6 ^= bits 7-9; 64B: bits 4-5 ^= bits 7-8; 32B: bit 4 ^= bit 7 (PTX ISA, tensor
    swizzling modes).
    """
    if swizzle == 0:
        return offset
    mask = {32: 0x80, 64: 0x180, 128: 0x380}[swizzle]
    return offset ^ ((offset & mask) >> 3)


def byte_offsets(
    buffer: TileLayout, rows: npt.NDArray[np.int64], cols: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Offset, within one tile of the buffer, of the byte that holds each element (rows, cols); the
    arguments broadcast.
    """
    inner, outer = (cols, rows) if buffer.order == "row" else (rows, cols)
    lines = buffer.rows if buffer.order == "row" else buffer.cols
    width = panel_elements(buffer)
    panel, within = np.divmod(inner, width)
    linear = ((panel * lines + outer) * width + within) * buffer.dtype.bits // 8
    return swizzle_offset(linear, buffer.swizzle)
