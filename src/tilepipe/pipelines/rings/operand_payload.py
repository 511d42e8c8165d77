"""A payload of any number of operands, each stated by dtype and shape."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tilepipe.errors import TraceError
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import (
    MatrixOrder,
    Name,
    Swizzle,
)
from tilepipe.lang.context.context import Context
from tilepipe.pipelines.rings.payloads import PayloadOfArrays
from tilepipe.pipelines.rings.tile_arrays import SMemTileArray2D


@dataclass(frozen=True)
class TileOperand:
    """One operand of a stage: the tile of it that each K tile has.

    Attributes:
        dtype: of its elements.
        shape: (rows, columns) of a tile; of an operand of an MMA (rows, BK).
        order: "row": columns contiguous in memory; "col": rows contiguous.
        swizzle: bytes; the widest that fits the tile unless given, 0 for none, as ordinary loads
            of single elements have it.
    """

    dtype: DType | str
    shape: tuple[int, int]
    order: MatrixOrder = "row"
    swizzle: Swizzle | None = None


class OperandTilePayload(PayloadOfArrays):
    """Tiles of the operands that are named: `OperandTilePayload(a=TileOperand(...), gate=...,
    up=...)`. `get_tile` gives one tile of each, in the order in which they are named; all of them
    share the barriers of the stage, and `tile_bytes` counts all of them.

    Attributes:
        operands: by name. tiles: the arrays in shared memory by name, once allocated.
    """

    def __init__(self, **operands: TileOperand) -> None:
        """One operand at least.

        Raises:
            TraceError: no operand, or what is no TileOperand.
        """
        for name, operand in operands.items():
            if not isinstance(operand, TileOperand):
                raise TraceError(
                    f"OperandTilePayload: {name} is a tp.TileOperand(dtype, (rows, columns)), got"
                    f" {operand!r:.80}",
                    caller(),
                )
        if not operands:
            raise TraceError(
                "OperandTilePayload takes the operands of a stage by name, one at least:"
                " tp.OperandTilePayload(a=tp.TileOperand(dtype, (rows, columns)), ...)",
                caller(),
            )
        self.operands = operands
        self.tiles: dict[str, SMemTileArray2D] = {}

    def allocate(self, ctx: Context, num_pipeline_stages: int, name: Name) -> Self:
        made = copy.copy(self)
        made.tiles = {
            operand: SMemTileArray2D(
                ctx,
                tile.dtype,
                *tile.shape,
                num_pipeline_stages,
                order=tile.order,
                swizzle=tile.swizzle,
                name=f"{name}_{operand}",
            )
            for operand, tile in self.operands.items()
        }
        return made

    def _arrays(self) -> Sequence[SMemTileArray2D]:
        return tuple(self.tiles.values())
