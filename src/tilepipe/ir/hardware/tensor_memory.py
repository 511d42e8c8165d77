"""Tensor memory: its extent, the matrices and scale factors in it, and which of them go together.

Nothing here depends on a program: the machine and the rules of `mma` and `block_scales` share it.
Tensor memory has 128 lanes × 512 columns of 32 bits (PTX ISA, "Tensor Memory Addressing").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType

LANES = 128
COLUMNS = 512
MIN_COLUMNS = 32  # of an allocation
# scale factors in one 32-bit column of tensor memory: rows, and blocks of K
SCALE_LANES, SCALES_A_COLUMN = 32, 4
# A piece of scale factors, which one tcgen05.cp copies: of 128 rows of A or B × 4 blocks of K, in
# 32 rows of 16 bytes
PIECE_ROWS = 4 * SCALE_LANES
PIECE_BYTES = PIECE_ROWS * SCALES_A_COLUMN
PIECE_COLUMNS = PIECE_ROWS // SCALE_LANES
_FP8 = (dtypes.float8_e4m3, dtypes.float8_e5m2)


class Matrix(Protocol):
    """A matrix of (rows, cols) elements of a dtype, which takes `columns` columns of 32 bits."""

    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def columns(self) -> int: ...


@runtime_checkable
class Scales(Protocol):
    """Scale factors: (rows, blocks of K), of one byte each.

    `stride`: columns from 4 blocks of K to the next 4, of each of which `used` are read. `columns`:
    from the first to the last that is read.
    """

    @property
    def rows(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def stride(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def columns(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Scaling:
    """One kind of block-scaled MMA.

    Attributes:
        kind: of the instruction. block: elements of K that share a scale factor. k: elements of K
            of one instruction.
    """

    kind: str
    block: int
    k: int

    @property
    def vector(self) -> int:
        """Scale factors of a row that one instruction takes: the 2 of `.scale_vec::2X`, which is
        `.block32` of kind mxf4.
        """
        return self.k // self.block


MXF8F6F4, MXF4, MXF4NVF4 = (
    Scaling("mxf8f6f4", 32, 32),
    Scaling("mxf4", 32, 64),
    Scaling("mxf4nvf4", 16, 64),
)


def scaling_of(a: DType, b: DType, scale: DType) -> Scaling | None:
    """How A and B of these types are multiplied with scale factors of that one; None: they are
    not.
    """
    if a in _FP8 and b in _FP8 and scale is dtypes.float8_e8m0:
        return MXF8F6F4
    if a is b is dtypes.float4_e2m1:
        return {dtypes.float8_e8m0: MXF4, dtypes.float8_e4m3: MXF4NVF4}.get(scale)
    return None


def pieces(dst: Scales) -> list[tuple[int, int]]:
    """(column from `address`, 512 bytes from the start of the tile) of each piece of a copy to a
    whole matrix. A tile has the pieces of the same rows in sequence along K, as global memory does.
    """
    over, along = -(-dst.rows // PIECE_ROWS), -(-dst.blocks // SCALES_A_COLUMN)
    return [
        (k * dst.stride + i * PIECE_COLUMNS, i * along + k)
        for i in range(over)
        for k in range(along)
    ]


def broken_columns_rule(columns: object) -> str | None:
    """Why so many columns of tensor memory cannot be allocated; None if they can."""
    if (
        isinstance(columns, int)
        and not isinstance(columns, bool)
        and MIN_COLUMNS <= columns <= COLUMNS
        and columns & (columns - 1) == 0
    ):
        return None
    return (
        f"tensor memory is allocated in columns of 32 bits, a power of two from {MIN_COLUMNS} to"
        f" {COLUMNS}; got {columns!r}"
    )


def half_rule(a_lane: int, acc_lane: int) -> str:
    """The rule that A and an accumulator of 64 rows break, which begin at these lanes of tensor
    memory.
    """
    return (
        f"A of 64 rows begins at lane {a_lane} of tensor memory, the accumulator at lane"
        f" {acc_lane}; with m = 64 the tensor core uses one half of each 32 lanes, 0..15 or 16..31,"
        " for both (PTX ISA, data path layout F of tcgen05.mma). Put A into the half of the"
        f" accumulator: {'add 16 << 16 to' if acc_lane else 'take 16 << 16 off'} its address"
        " (`col=` of `tmem.tensor`)"
    )
