"""Arrays of tiles in shared memory, by the names of the seed pages."""

from __future__ import annotations

from tilepipe.ir.dtypes import DType
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
