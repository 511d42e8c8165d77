"""Tile payloads: what a stage of an input pipeline holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from tilepipe.errors import TraceError
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import (
    MatrixOrder,
    Name,
    NonNegativeInt,
    PositiveInt,
    Swizzle,
)
from tilepipe.lang.context.context import Context
from tilepipe.lang.handles.linear import Handle
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.values.scalars import Value
from tilepipe.pipelines.rings.tile_arrays import (
    SMemTileArray2D,
    SMemTileArray2DRowMajor,
    SMemTileArrayWithLayout,
    scale_factor_k_major,
)


class TilePayload(ABC):
    """The tile arrays of an input pipeline. Tile k of stage s is number `s * k_group_size + k` of
    each array.
    """

    @abstractmethod
    def allocate(self, ctx: Context, num_pipeline_stages: int, name: Name) -> Self:
        """The payload with `num_pipeline_stages` tiles of each operand in shared memory."""

    @abstractmethod
    def get_tile(
        self,
        stage: Value | int,
        k_idx: NonNegativeInt = 0,
        *,
        k_group_size: PositiveInt,
        owner: Handle | None = None,
    ) -> tuple[SmemTile, ...]:
        """One tile of each operand."""

    @property
    @abstractmethod
    def tile_bytes(self) -> int:
        """Bytes of one tile of every operand."""


class PayloadOfArrays(TilePayload):
    """A payload of one array for each operand."""

    def get_tile(
        self,
        stage: Value | int,
        k_idx: NonNegativeInt = 0,
        *,
        k_group_size: PositiveInt,
        owner: Handle | None = None,
    ) -> tuple[SmemTile, ...]:
        """One tile of each operand."""
        # one expression for all, so that the product is computed once
        index = stage * k_group_size + k_idx
        return tuple(tiles.tile(index, owner) for tiles in self._tiles())

    @property
    def tile_bytes(self) -> int:
        """Bytes of one tile of every operand."""
        return sum(tiles.tile_bytes for tiles in self._tiles())

    def _tiles(self) -> tuple[SMemTileArray2D, ...]:
        """The arrays in shared memory, in the order of `get_tile`.

        Raises:
            TraceError: the payload has none yet.
        """
        arrays = [x for x in self._arrays() if x is not None]
        if not arrays:
            raise TraceError(
                "this payload has no shared memory yet: `payload.allocate(ctx, slots, name)`, or"
                " InputTilePipeline.allocate",
                caller(),
            )
        return tuple(arrays)

    @abstractmethod
    def _arrays(self) -> Sequence[SMemTileArray2D | None]:
        """The array of each operand; None, or none at all, before `allocate`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StandardTilePayload(PayloadOfArrays):
    """A and B tiles. `get_tile` gives (A, B).

    Attributes:
        a_shape, b_shape: (BM, BK) and (BN, BK), elements.
        a_order, b_order: "row": K contiguous in memory; "col": M, N contiguous.
        swizzle: bytes; the widest that fits each tile unless given.
        a_tiles, b_tiles: the arrays in shared memory, once allocated.
    """

    a_type: DType | str
    b_type: DType | str
    a_shape: tuple[int, int]
    b_shape: tuple[int, int]
    a_order: MatrixOrder = "row"
    b_order: MatrixOrder = "row"
    swizzle: Swizzle | None = None
    a_tiles: SMemTileArray2D | None = None
    b_tiles: SMemTileArray2D | None = None

    def allocate(self, ctx: Context, num_pipeline_stages: int, name: Name) -> Self:
        a = SMemTileArray2D(
            ctx,
            self.a_type,
            *self.a_shape,
            num_pipeline_stages,
            order=self.a_order,
            swizzle=self.swizzle,
            name=f"{name}_a",
        )
        b = SMemTileArray2D(
            ctx,
            self.b_type,
            *self.b_shape,
            num_pipeline_stages,
            order=self.b_order,
            swizzle=self.swizzle,
            name=f"{name}_b",
        )
        return replace(self, a_tiles=a, b_tiles=b)

    def get_a_tile(
        self,
        stage: Value | int,
        k_idx: NonNegativeInt = 0,
        *,
        k_group_size: PositiveInt,
        owner: Handle | None = None,
    ) -> SmemTile:
        """The A tile of `get_tile`."""
        return self._tiles()[0].tile(stage * k_group_size + k_idx, owner)

    def get_b_tile(
        self,
        stage: Value | int,
        k_idx: NonNegativeInt = 0,
        *,
        k_group_size: PositiveInt,
        owner: Handle | None = None,
    ) -> SmemTile:
        """The B tile of `get_tile`."""
        return self._tiles()[1].tile(stage * k_group_size + k_idx, owner)

    def _arrays(self) -> tuple[SMemTileArray2D | None, ...]:
        return self.a_tiles, self.b_tiles


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockwiseFP8TilePayload(StandardTilePayload):
    """A and B tiles, and the scales of A: one for each row of the tile, of one block of K.
    `get_tile` gives (A, B, A scales).

    B has a scale for many rows and columns; a kernel reads it from global memory.

    Attributes:
        a_scales_type: float32, as a rule.
        a_scales_shape: (1, BM), M contiguous; BM a multiple of 32: several tiles of float32 are
            multiples of 128 bytes.
        a_scales_tiles: the array in shared memory, unswizzled, once allocated.
    """

    a_scales_type: DType | str
    a_scales_shape: tuple[int, int]
    a_scales_tiles: SMemTileArray2DRowMajor | None = None

    def allocate(self, ctx: Context, num_pipeline_stages: int, name: Name) -> Self:
        scales = SMemTileArray2DRowMajor(
            ctx,
            self.a_scales_type,
            *self.a_scales_shape,
            num_pipeline_stages,
            name=f"{name}_a_scales",
        )
        return replace(super().allocate(ctx, num_pipeline_stages, name), a_scales_tiles=scales)

    def get_a_scales_tile(
        self,
        stage: Value | int,
        k_idx: NonNegativeInt = 0,
        *,
        k_group_size: PositiveInt,
        owner: Handle | None = None,
    ) -> SmemTile:
        """The tile of A's scales of `get_tile`."""
        return self._tiles()[2].tile(stage * k_group_size + k_idx, owner)

    def _arrays(self) -> tuple[SMemTileArray2D | None, ...]:
        return *super()._arrays(), self.a_scales_tiles


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockScaledTilePayload(StandardTilePayload):
    """A and B tiles, and the scale factors of their rows and blocks of K. `get_tile` gives (A, B,
    SFA, SFB).

    Attributes:
        sfa_type, sfb_type: float8_e8m0, or float8_e4m3 of NVFP4.
        sfa_shape, sfb_shape: (rows, blocks of K). In a pair of CTAs SFB has the rows of both halves
            of B.
        sfa_tiles, sfb_tiles: the arrays in shared memory, once allocated; their layout is
            `scale_factor_k_major`.
    """

    sfa_type: DType | str
    sfb_type: DType | str
    sfa_shape: tuple[int, int]
    sfb_shape: tuple[int, int]
    sfa_tiles: SMemTileArrayWithLayout | None = None
    sfb_tiles: SMemTileArrayWithLayout | None = None

    def allocate(self, ctx: Context, num_pipeline_stages: int, name: Name) -> Self:
        sfa, sfb = (
            SMemTileArrayWithLayout(
                ctx,
                dtype,
                scale_factor_k_major(*shape),
                num_pipeline_stages,
                name=f"{name}_{scales}",
            )
            for scales, dtype, shape in (
                ("sfa", self.sfa_type, self.sfa_shape),
                ("sfb", self.sfb_type, self.sfb_shape),
            )
        )
        return replace(
            super().allocate(ctx, num_pipeline_stages, name), sfa_tiles=sfa, sfb_tiles=sfb
        )

    def get_sfa_tile(
        self,
        stage: Value | int,
        k_idx: NonNegativeInt = 0,
        *,
        k_group_size: PositiveInt,
        owner: Handle | None = None,
    ) -> SmemTile:
        """The tile of A's scale factors of `get_tile`."""
        return self._tiles()[2].tile(stage * k_group_size + k_idx, owner)

    def get_sfb_tile(
        self,
        stage: Value | int,
        k_idx: NonNegativeInt = 0,
        *,
        k_group_size: PositiveInt,
        owner: Handle | None = None,
    ) -> SmemTile:
        """The tile of B's scale factors of `get_tile`."""
        return self._tiles()[3].tile(stage * k_group_size + k_idx, owner)

    def _arrays(self) -> tuple[SMemTileArray2D | None, ...]:
        return *super()._arrays(), self.sfa_tiles, self.sfb_tiles
