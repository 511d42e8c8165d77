"""Typed tiles as bytes: where the elements of a rectangle lie, and the two conversions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tilepipe.ir.dtypes import DType
from tilepipe.ir.layout import TileLayout, byte_offsets
from tilepipe.machine.happens_before.accesses import Rect
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet, LaneBytes, gather
from tilepipe.machine.memory.storage import Array, storage


class TileArray(TileLayout, Protocol):
    """A buffer of `count` tiles in shared memory: `offset`, the address of the first, and `step`,
    the bytes from one to the next.
    """

    @property
    def name(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def step(self) -> int: ...
    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OneTile:
    """Memory that is one tile of its own."""

    name: str
    dtype: DType
    rows: int
    cols: int
    count: int = 1
    order: str = "row"
    swizzle: int = 0
    offset: int = 0
    step: int = 0


@lru_cache(maxsize=256)
def _offsets(buffer: TileArray) -> npt.NDArray[np.int64]:
    """The offset in the tile of each byte of each element: (rows, cols, bytes of an element)."""
    first = byte_offsets(buffer, np.arange(buffer.rows)[:, None], np.arange(buffer.cols)[None, :])
    return first[..., None] + np.arange(max(buffer.dtype.bits // 8, 1))


@lru_cache(maxsize=4096)
def _rect_bytes(buffer: TileArray, rect: Rect) -> ByteSet:
    """The bytes of a rectangle, from the start of its tile."""
    r0, r1, c0, c1 = rect
    if (r1 - r0, c1 - c0) == (buffer.rows, buffer.cols):
        return ByteSet.span(0, buffer.dtype.bytes_of(buffer.rows * buffer.cols))
    return ByteSet.of(_offsets(buffer)[r0:r1, c0:c1])


def bytes_of(buffer: TileArray, base: int, rect: Rect, points: Mapping[int, int] | None) -> ByteSet:
    """The bytes of a rectangle of the tile at address `base`, or of single elements of it
    (`points`: row << 32 | column -> the lanes that touch it).
    """
    if points is None:
        return _rect_bytes(buffer, rect).moved(base)
    offsets = _offsets(buffer)
    nbytes = offsets.shape[-1]
    return LaneBytes(
        (1 << lane, base + int(offsets[point >> 32, point & 0xFFFFFFFF, 0]), nbytes)
        for point, lanes in points.items()
        for lane in range(lanes.bit_length())
        if lanes >> lane & 1
    )


def addresses(buffer: TileArray, base: int, rect: Rect) -> npt.NDArray[np.int64]:
    """The address of each byte of each element of a rectangle of the tile at address `base`: (rows,
    columns, bytes of an element).
    """
    r0, r1, c0, c1 = rect
    return base + _offsets(buffer)[r0:r1, c0:c1]


def decoded(buffer: TileArray, base: int, memory: Bytes) -> Array:
    """The elements of the tile at address `base`, in storage form."""
    dtype = buffer.dtype
    where = base + _offsets(buffer)
    if dtype.per_byte == 1:
        return gather(memory, where, dtype.numpy).astype(storage(dtype))
    codes = memory[where[..., 0]] >> 4 * _high_half(buffer) & 15
    return codes.astype(np.uint8).view(dtype.numpy).astype(storage(dtype))


def encode(buffer: TileArray, base: int, rect: Rect, values: Array, memory: Bytes) -> None:
    """Writes the elements of a rectangle of the tile at address `base`; `values`: of the whole
    tile, in storage form.
    """
    r0, r1, c0, c1 = rect
    dtype = buffer.dtype
    where = addresses(buffer, base, rect)
    exact = np.ascontiguousarray(values[r0:r1, c0:c1].astype(dtype.numpy))
    if dtype.per_byte == 1:
        memory[where] = exact.view(np.uint8).reshape(where.shape)
        return
    codes, high = exact.view(np.uint8), _high_half(buffer)[r0:r1, c0:c1]
    for half in (0, 1):  # one after the other: two elements of a rectangle share a byte
        at = where[..., 0][high == half]
        memory[at] = memory[at] & (0xF0 >> 4 * half) | codes[high == half] << 4 * half


def _high_half(buffer: TileArray) -> npt.NDArray[np.int64]:
    """1 for each 4-bit element in the high half of its byte, else 0."""
    inner = (
        np.arange(buffer.cols)[None, :]
        if buffer.order == "row"
        else np.arange(buffer.rows)[:, None]
    )
    return np.broadcast_to(inner % 2, (buffer.rows, buffer.cols))
