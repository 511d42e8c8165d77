"""Arrays of tiles in shared memory, by the names of the API pages, and the layout of the scale
factors of block-scaled MMAs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilepipe.errors import TraceError
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware.tensor_memory import PIECE_BYTES, PIECE_ROWS, SCALES_A_COLUMN
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import (
    MatrixOrder,
    Name,
    Swizzle,
)
from tilepipe.lang.context.context import Context
from tilepipe.lang.memory.shared_tiles import SmemTileArray


class SMemTileArray2D(SmemTileArray):
    """`num_tiles` contiguous tiles of (d0, d1) elements; tile i is at `i * d0 * d1`."""

    def __init__(
        self,
        ctx: Context,
        dtype: DType | str,
        d0: int,
        d1: int,
        num_tiles: int,
        *,
        order: MatrixOrder = "row",
        swizzle: Swizzle | None = None,
        name: Name = "tiles",
    ) -> None:
        made = ctx.smem((d0, d1), dtype, count=num_tiles, order=order, swizzle=swizzle, name=name)
        super().__init__(ctx.tracer, made.buffer)


class SMemTileArray2DRowMajor(SMemTileArray2D):
    """A `SMemTileArray2D` with contiguous rows and no swizzle."""

    def __init__(
        self,
        ctx: Context,
        dtype: DType | str,
        d0: int,
        d1: int,
        num_tiles: int,
        *,
        name: Name = "tiles",
    ) -> None:
        super().__init__(ctx, dtype, d0, d1, num_tiles, swizzle=0, name=name)


LINE_BYTES = 256  # of a tile: the longest that a TMA box of bytes may have
LINES = PIECE_BYTES // LINE_BYTES  # of a piece


@dataclass(frozen=True)
class ScaleFactorLayout:
    """Where the scale factors (rows, blocks of K) of a tile are: in pieces of 128 rows × 4 blocks,
    those of the same rows one after the other along K; of a piece, that of row r and block j at
    byte 16 (r % 32) + 4 (r // 32) + j. In global memory it is the same.

    Attributes:
        rows, blocks: of the scale factors; the last piece of either may be filled in part.
        piece_rows, piece_blocks, piece_bytes: of a piece.
    """

    piece_rows: ClassVar[int] = PIECE_ROWS
    piece_blocks: ClassVar[int] = SCALES_A_COLUMN
    piece_bytes: ClassVar[int] = PIECE_BYTES
    rows: int
    blocks: int

    def __post_init__(self) -> None:
        if any(type(x) is not int or x < 1 for x in (self.rows, self.blocks)):
            raise TraceError(
                f"scale factors are of at least 1 row and 1 block of K, got {self.rows!r} and"
                f" {self.blocks!r}",
                caller(),
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(lines, bytes of a line) of the tile in shared memory."""
        return self.row_pieces * self.k_pieces * LINES, LINE_BYTES

    @property
    def box(self) -> tuple[int, int, int]:
        """The box of one TMA copy: the pieces of 128 rows. The tensor is (pieces along the rows,
        2 · pieces along K, 256).
        """
        return 1, self.k_pieces * LINES, LINE_BYTES

    @property
    def row_pieces(self) -> int:
        """Pieces along the rows."""
        return -(-self.rows // PIECE_ROWS)

    @property
    def k_pieces(self) -> int:
        """Pieces along K."""
        return -(-self.blocks // SCALES_A_COLUMN)


def scale_factor_k_major(rows: int, blocks: int) -> ScaleFactorLayout:
    """The layout of the scale factors of a tile of `rows` rows and `blocks` blocks of K.

    Raises:
        TraceError: not two integers of at least 1.
    """
    return ScaleFactorLayout(rows, blocks)


class SMemTileArrayWithLayout(SMemTileArray2DRowMajor):
    """`num_tiles` tiles of scale factors; tile i is of shape `layout.shape`, bytes, unswizzled."""

    def __init__(
        self,
        ctx: Context,
        dtype: DType | str,
        layout: ScaleFactorLayout,
        num_tiles: int,
        *,
        name: Name = "scales",
    ) -> None:
        super().__init__(ctx, dtype, *layout.shape, num_tiles, name=name)
        self.layout = layout
