"""The base class of both sides of a ring of K or V tiles: the ring, the tiles, a tile's extents."""

from __future__ import annotations

from typing import ClassVar

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, memory
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import caller
from tilepipe.lang.memory.elements import ElementRef
from tilepipe.lang.memory.shared_tiles import SmemTile, SmemTileArray
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.scalars import Value
from tilepipe.pipelines.attention.fa4_config import FA4Config
from tilepipe.pipelines.attention.staged import StagedPipeline
from tilepipe.pipelines.attention.tile_layouts import (
    KVTiles,
    TileLayout,
    tile_layout_k_major,
    tile_layout_mn_major,
)
from tilepipe.pipelines.barriers.arrays import Barriers, SMemArray
from tilepipe.pipelines.barriers.mbarriers import SharedMemBarrier
from tilepipe.pipelines.rings.ring import OverRing


class TilePipeline(OverRing[StagedPipeline]):
    """Base class of both sides of a ring: the ring, the tiles, and the arithmetic of a tile.

    Attributes:
        pipeline: the barriers, and this side's position in the ring.
        smem: the tiles, in the order [stage][part]; in a ring for K and V in turn this side's view
            of the slots.
        config: the shape of the attention kernel.
        is_k: K tiles, (keys, depth) with the depth contiguous, in `config.num_qk_stages` parts; or
            V tiles, (columns, keys) with the columns contiguous, whole.
    """

    KIND: ClassVar[bool | None] = None  # True, False: what a subclass is for

    def __init__(
        self,
        pipeline: StagedPipeline | Barriers,
        smem: SmemTileArray | ElementRef | KVTiles,
        config: FA4Config,
        is_k: bool | None = None,
        dtype: DType | str | None = None,
    ) -> None:
        """Over a pipeline, or over barriers for one (an array, or a pointer to the first), and an
        array of tiles, or a pointer to its first element.

        Raises:
            TraceError: a configuration that is not supported, or barriers or tiles that do not fit
                it.
        """
        self.is_k = self.KIND is not False if is_k is None else is_k
        if self.KIND is not None and self.is_k is not self.KIND:
            raise TraceError(
                f"{type(self).__name__} is for {'K' if self.KIND else 'V'}; it is given"
                f" is_k={is_k!r}",
                caller(),
            )
        if not isinstance(config, FA4Config):
            raise TraceError(
                f"{type(self).__name__}: config is an FA4Config, got {config!r}", caller()
            )
        if not isinstance(pipeline, StagedPipeline | SMemArray | SharedMemBarrier):
            raise TraceError(
                f"{type(self).__name__}: it takes a StagedPipeline, or an array of barriers for"
                f" one; got {pipeline!r}",
                caller(),
            )
        self.config = config
        self.dtype = config.qkv_dtype if dtype is None else dtypes.dtype(dtype)
        require_rule(config.broken_rule(), type(self).__name__)
        if config.use_fused_kv and not isinstance(pipeline, StagedPipeline):
            raise TraceError(
                f"{type(self).__name__}: with use_fused_kv K and V take turns in one ring and share"
                " one position, so both take the same StagedPipeline: make it first, and pass it to"
                " both",
                caller(),
            )
        if not isinstance(pipeline, StagedPipeline):
            pipeline = StagedPipeline(
                pipeline,
                config.num_kv_stages,
                self.num_qk_stages_effective,
                phase=self._phase(),
                name="k" if self.is_k else "v",
            )
        self.pipeline = self._own(self._fitting(pipeline))
        self.smem = self._fitting_tiles(smem)

    def _phase(self) -> int:
        raise NotImplementedError

    def _own(self, pipeline: StagedPipeline) -> StagedPipeline:
        """The pipeline with a state for this side; unchanged where it has one, so that two views
        may share a position. In a ring that K and V share they must: it has one state for each
        side.
        """
        if pipeline._phase == self._phase():
            return pipeline
        return (
            pipeline.other_side()
            if self.config.use_fused_kv
            else pipeline.copy(phase=self._phase())
        )

    def _fitting(self, pipeline: StagedPipeline) -> StagedPipeline:
        have, want = (
            (pipeline.num_kv_stages, pipeline.num_qk_stages),
            (self.config.num_kv_stages, self.num_qk_stages_effective),
        )
        if have != want:
            raise TraceError(
                f"{type(self).__name__}: '{pipeline.name}' has {have[0]} stages of {have[1]} parts;"
                f" the config says num_kv_stages = {want[0]} and, of {'K' if self.is_k else 'V'},"
                f" {want[1]} parts",
                caller(),
            )
        return pipeline

    def _fitting_tiles(self, smem: SmemTileArray | ElementRef | KVTiles) -> SmemTileArray:
        if isinstance(smem, KVTiles):
            smem = smem.k if self.is_k else smem.v
        elif self.config.use_fused_kv:
            raise TraceError(
                f"{type(self).__name__}: with use_fused_kv a slot holds a tile of K and one of V in"
                " turn; its tiles are `tp.KVTiles.allocate(ctx, config)`, given to the pipelines of"
                " both",
                caller(),
            )
        tiles = (
            smem if isinstance(smem, SmemTileArray) else _pointed_to(smem, self.pipeline._tracer)
        )
        have, want = TileLayout.of(tiles), self.tile_layout
        if have != want:
            raise TraceError(
                f"{type(self).__name__}: a tile of '{tiles.buffer.name}' is {have}, the config's"
                f" {'K' if self.is_k else 'V'} tile is"
                f" {want}: tile i would start at byte i × {have.nbytes} for one side and at i ×"
                f" {want.nbytes} for the other. Allocate it as"
                f" `tile_layout_{'k_major' if want.order == 'row' else 'mn_major'}(...)"
                ".allocate(ctx, count)`.",
                caller(),
            )
        need = self.config.num_kv_stages * self.num_qk_stages_effective
        if len(tiles) < need:
            raise TraceError(
                f"{type(self).__name__}: '{tiles.buffer.name}' has {len(tiles)} tiles;"
                f" {self.config.num_kv_stages} stages of {self.num_qk_stages_effective} parts need"
                f" {need}",
                caller(),
            )
        return tiles

    # -- arithmetic --------------------------------------------------------------------

    @property
    def num_qk_stages_effective(self) -> int:
        """Parts of a stage: `config.num_qk_stages` of K, 1 of V."""
        return self.config.num_qk_stages if self.is_k else 1

    @property
    def tile_layout(self) -> TileLayout:
        """The layout of one part: K-major (k_rows_per_cta, BK0) of K, MN-major (v_cols_per_cta,
        BK1) of V; K-major where `config.v_k_major`.
        """
        c = self.config
        if self.is_k:
            return tile_layout_k_major(self.dtype, c.k_rows_per_cta(), c.BK0, c.swizzle_mode)
        layout = tile_layout_k_major if c.v_k_major else tile_layout_mn_major
        return layout(self.dtype, c.v_cols_per_cta(), c.BK1, c.v_swizzle_mode)

    @property
    def elements(self) -> int:
        """Elements of one part."""
        return self.tile_layout.size()

    @property
    def elements_full(self) -> int:
        """Elements of a stage: elements · num_qk_stages_effective. (The page's formula lost its
        parentheses.)
        """
        return self.elements * self.num_qk_stages_effective

    @property
    def tile_bytes(self) -> int:
        """Bytes of one part: elements · size of the dtype. (The page's formula lost its
        parentheses.)
        """
        return self.tile_layout.nbytes

    @property
    def bytes(self) -> int:
        """The same as `tile_bytes`: what one `expect_bytes` takes."""
        return self.tile_bytes

    # -- tiles -------------------------------------------------------------------------

    def _tile(self, index: Value, qk_stage: int) -> SmemTile:
        q = self.pipeline.checked_part(qk_stage)
        return self.smem.tile(
            index if self.num_qk_stages_effective == 1 else index * self.num_qk_stages_effective + q
        )

    def _only(self, what: str, is_k: bool) -> None:
        if self.is_k is not is_k:
            k, v = ("K", "V") if self.is_k else ("V", "K")
            raise TraceError(
                f"{what} is of {v}; '{self.pipeline.name}' is a pipeline of {k} (is_k={self.is_k}):"
                f" call {_other(what, self.is_k)}",
                caller(),
            )


def _other(what: str, is_k: bool) -> str:
    return what.replace("_v", "_k") if is_k else what.replace("_k", "_v")


def _pointed_to(pointer: ElementRef, tracer: Tracer) -> SmemTileArray:
    base = pointer.ir.base if isinstance(pointer, ElementRef) else None
    if isinstance(base, memory.Tile) and all(
        isinstance(x, exprs.Const) and x.value == 0 for x in (base.index, *pointer.ir.index)
    ):
        return SmemTileArray(tracer, base.buffer)
    raise TraceError(
        "smem is an array of tiles, or a pointer to its first element (`tiles[0][0, 0]`); got"
        f" {pointer!r}",
        caller(),
    )
