"""TMAProducerPipeline and TMAConsumerPipeline: the two sides of a ring of K or V tiles that TMA
fills and MMAs read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, memory
from tilepipe.ir import expressions as exprs
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Index, Name, Predicate
from tilepipe.lang.context.context import Context
from tilepipe.lang.memory.elements import ElementRef
from tilepipe.lang.memory.shared_tiles import SmemTile, SmemTileArray
from tilepipe.lang.values.scalars import Value
from tilepipe.pipelines.attention.fa4_config import FA4Config
from tilepipe.pipelines.attention.tile_layouts import (
    TileLayout,
    tile_layout_k_major,
    tile_layout_mn_major,
)
from tilepipe.pipelines.barriers.shared import Barriers, MbarPtr, SharedMemBarrier, SMemArray
from tilepipe.pipelines.rings.staged import StagedPipeline, truth


@dataclass(frozen=True, eq=False)
class TMADestination:
    """Where a TMA load writes, and which barrier gets its bytes: `k.async_copy(dst, coords)`, the
    same as `ctx.tma_load(k, coords, dst.smem, dst.mbar)`.
    """

    mbar: MbarPtr
    smem: SmemTile


@dataclass(frozen=True, eq=False)
class KVTiles:
    """The slots of a ring that K and V share, one tile of either in each: `use_fused_kv`.

    Attributes:
        k, v: the slots as tiles of K, (keys, depth) with the depth contiguous, and as tiles of V,
            (columns, keys) with the columns contiguous. A slot holds what was written last; reading
            it as the other is a fault in the simulator.
    """

    k: SmemTileArray
    v: SmemTileArray

    @classmethod
    def allocate(
        cls,
        ctx: Context,
        config: FA4Config,
        dtype: DType | str | None = None,
        *,
        name: Name = "kv_tiles",
    ) -> KVTiles:
        """`config.num_kv_stages` slots, each as large as the larger tile, in set-up code.

        Raises:
            TraceError: no FA4Config, or one with a ring for each of K and V.
        """
        if not isinstance(config, FA4Config) or not config.use_fused_kv:
            raise TraceError(
                f"KVTiles are of an FA4Config with use_fused_kv; got {config!r}. Where K and V"
                " have rings of their own, each has an array"
                " of tiles: tile_layout_k_major(...).allocate, tile_layout_mn_major(...).allocate",
                caller(),
            )
        kind, c = config.qkv_dtype if dtype is None else dtypes.dtype(dtype), config
        k = tile_layout_k_major(kind, c.k_rows_per_cta(), c.BK0, c.swizzle_mode)
        v = tile_layout_mn_major(kind, c.v_cols_per_cta(), c.BK1, c.swizzle_mode)
        first, second = (k, v) if k.nbytes >= v.nbytes else (v, k)
        tiles = first.allocate(ctx, c.num_kv_stages, f"{name}_{'k' if first is k else 'v'}")
        view = tiles.view((second.rows, second.cols), order=second.order, swizzle=second.swizzle,
                          name=f"{name}_{'v' if first is k else 'k'}")  # fmt: skip
        return cls(tiles, view) if first is k else cls(view, tiles)


class TilePipeline:
    """What both sides have: the ring, the tiles, and the arithmetic of a tile.

    Attributes:
        pipeline: the barriers, and this side's place in the ring.
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
                f"{type(self).__name__} is for {'K' if self.KIND else 'V'}; it is given is_k={is_k!r}",
                caller(),
            )
        if not isinstance(config, FA4Config):
            raise TraceError(
                f"{type(self).__name__}: config is an FA4Config, got {config!r}", caller()
            )
        if not isinstance(pipeline, StagedPipeline | SMemArray | SharedMemBarrier):
            raise TraceError(
                f"{type(self).__name__}: it stands on a StagedPipeline, or on an array of barriers for one; got {pipeline!r}",
                caller(),
            )
        self.config = config
        self.dtype = config.qkv_dtype if dtype is None else dtypes.dtype(dtype)
        broken = config.broken_rule()
        if broken is not None:
            raise TraceError(f"{type(self).__name__}: {broken}", caller())
        if config.use_fused_kv and not isinstance(pipeline, StagedPipeline):
            raise TraceError(
                f"{type(self).__name__}: with use_fused_kv K and V take turns in one ring and"
                " step one place, so both stand on the same"
                " StagedPipeline: make it first, and give it to both",
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
        """The pipeline with a state for this side; as it is where it has one, so that two views may
        share a place. In a ring for K and V in turn they must: there is one state for each side.
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
                f"{type(self).__name__}: '{pipeline.name}' has {have[0]} stages of {have[1]}"
                " parts; the config says num_kv_stages ="
                f" {want[0]} and, of {'K' if self.is_k else 'V'}, {want[1]} parts",
                caller(),
            )
        return pipeline

    def _fitting_tiles(self, smem: SmemTileArray | ElementRef | KVTiles) -> SmemTileArray:
        if isinstance(smem, KVTiles):
            smem = smem.k if self.is_k else smem.v
        elif self.config.use_fused_kv:
            raise TraceError(
                f"{type(self).__name__}: with use_fused_kv a slot holds a tile of K and one of V"
                " in turn; its tiles are"
                " `tp.KVTiles.allocate(ctx, config)`, given to the pipelines of both",
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
                f" `{'tile_layout_k_major' if self.is_k else 'tile_layout_mn_major'}(...).allocate(ctx, count)`.",
                caller(),
            )
        need = self.config.num_kv_stages * self.num_qk_stages_effective
        if len(tiles) < need:
            raise TraceError(
                f"{type(self).__name__}: '{tiles.buffer.name}' has {len(tiles)} tiles;"
                f" {self.config.num_kv_stages} stages of"
                f" {self.num_qk_stages_effective} parts need {need}",
                caller(),
            )
        return tiles

    def copy(self) -> Self:
        """The same barriers and tiles with a state of its own, at the place of this one's."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.pipeline = self.pipeline.copy()
        return other

    # -- arithmetic --------------------------------------------------------------------

    @property
    def num_qk_stages_effective(self) -> int:
        """Parts of a stage: `config.num_qk_stages` of K, 1 of V."""
        return self.config.num_qk_stages if self.is_k else 1

    @property
    def tile_layout(self) -> TileLayout:
        """Of one part: K-major (k_rows_per_cta, BK0) of K, MN-major (v_cols_per_cta, BK1) of V."""
        c = self.config
        if self.is_k:
            return tile_layout_k_major(self.dtype, c.k_rows_per_cta(), c.BK0, c.swizzle_mode)
        return tile_layout_mn_major(self.dtype, c.v_cols_per_cta(), c.BK1, c.swizzle_mode)

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
                f"{what} is of {v}; '{self.pipeline.name}' is a pipeline of {k} (is_k={self.is_k}): call {_other(what, self.is_k)}",
                caller(),
            )


def _other(what: str, is_k: bool) -> str:
    return what.replace("_v", "_k") if is_k else what.replace("_k", "_v")


def _pointed_to(pointer: ElementRef, tracer: object) -> SmemTileArray:
    base = pointer.ir.base if isinstance(pointer, ElementRef) else None
    if isinstance(base, memory.Tile) and all(
        isinstance(x, exprs.Const) and x.value == 0 for x in (base.index, *pointer.ir.index)
    ):
        return SmemTileArray(tracer, base.buffer)  # type: ignore[arg-type]
    raise TraceError(
        f"smem is an array of tiles, or a pointer to its first element (`tiles[0][0, 0]`); got {pointer!r}",
        caller(),
    )


class TMAProducerPipeline(TilePipeline):
    """The load warp's side (seed page TMAProducerPipeline): `acquire`, `get_tile(e=1)`, a copy, for
    each part; then `commit_step`.

    Its state starts at phase 1, so that the first lap does not wait. `expect_bytes` is the one
    arrival of a part; where one announcement covers more than the part (Q and the first K, say),
    take `get_tile` without e and expect the sum on its `mbar`.
    """

    PairType = TMADestination
    KPairType = TMADestination
    SMemType = SmemTile

    def _phase(self) -> int:
        return 1

    def get_smem(self, *, qk_stage: int = 0) -> SmemTile:
        """Part `qk_stage` of the present stage: tile index · num_qk_stages_effective + qk_stage."""
        return self._tile(self.pipeline.state.index(), qk_stage)

    def get_tile(self, e: Predicate | None = None, *, qk_stage: int = 0) -> TMADestination:
        """The same, and its full barrier. With `e`, and where that is not 0, `tile_bytes` are
        expected there, by one lane: say `e=1` under `ctx.elect_one()`.
        """
        index = self.pipeline.state.index()
        mbar = self.pipeline.producer_mbar(index, qk_stage=qk_stage)
        pair = TMADestination(mbar, self._tile(index, qk_stage))
        if isinstance(e, int):
            if e:
                mbar.expect_bytes(self.tile_bytes)
        elif e is not None:
            with Context(self.pipeline._tracer).when(truth(self.pipeline._tracer, e)):
                mbar.expect_bytes(self.tile_bytes)
        return pair

    def acquire(self, *, qk_stage: int = 0) -> None:
        """Waits until the consumer has freed the part; passes at once on the first lap."""
        self.pipeline.producer_acquire(qk_stage=qk_stage)

    def commit_step(self) -> None:
        """The next stage. Nothing is signalled: the bytes of the copies complete the phases."""
        self.pipeline.state.step()

    def drain(self) -> None:
        """Waits until every stage has been freed: behind the last stage, before the role ends.
        Once, of a ring for K and V in turn.

        Raises:
            TraceError: the other view of the ring is drained in this role already.
        """
        role = self.pipeline._tracer.role
        first = self.pipeline._drained.setdefault(role, (self.is_k, caller()))
        if self.config.use_fused_kv and first[0] is not self.is_k:
            raise TraceError(
                f"'{self.pipeline.name}' is drained at {first[1].short} already: K and V share"
                " this ring, and a second drain would wait for"
                " tiles that are never loaded. Drain one of the two views.",
                caller(),
            )
        self.pipeline.drain_producer()

    def get_k_smem(self, *, qk_stage: int) -> SmemTile:
        """`get_smem` of K."""
        self._only("get_k_smem", True)
        return self.get_smem(qk_stage=qk_stage)

    def get_k(self, e: Predicate | None = None, *, qk_stage: int) -> TMADestination:
        """`get_tile` of K."""
        self._only("get_k", True)
        return self.get_tile(qk_stage=qk_stage, e=e)

    def acquire_k(self, *, qk_stage: int) -> None:
        """`acquire` of K."""
        self._only("acquire_k", True)
        self.acquire(qk_stage=qk_stage)

    def get_v_smem(self) -> SmemTile:
        """`get_smem` of V."""
        self._only("get_v_smem", False)
        return self.get_smem()

    def get_v(self, e: Predicate | None = None) -> TMADestination:
        """`get_tile` of V."""
        self._only("get_v", False)
        return self.get_tile(e=e)

    def acquire_v(self) -> None:
        """`acquire` of V."""
        self._only("acquire_v", False)
        self.acquire()


class TMAConsumerPipeline(TilePipeline):
    """The MMA side: `wait`, `ctx.mma(..., get())`, `release`.

    K and V are released apart, since an MMA of each is in flight: S of the next tile, and O of this
    one. On Hopper a release closes the group of wgmmas issued so far; `ctx.wgmma_wait(1)` behind
    the release of K and that of V makes the arrival of K, and `ctx.wgmma_wait(0)` that of V.
    """

    def _phase(self) -> int:
        return 0

    def get(self, *, qk_stage: int | None = None) -> SmemTile:
        """Part `qk_stage` of the present stage, as operand B of an MMA.

        Raises:
            TraceError: a stage has several parts, and it is not said which.
        """
        parts = self.num_qk_stages_effective
        if qk_stage is None and parts > 1:
            raise TraceError(
                f"get() without qk_stage: a stage of '{self.pipeline.name}' has {parts} parts,"
                " waited for and released one by one:"
                " get(qk_stage=part)",
                caller(),
            )
        return self._tile(self.pipeline.state.index(), qk_stage or 0)

    @property
    def full_kv_bytes(self) -> int:
        """Bytes from one stage to the next."""
        return self.tile_bytes * self.num_qk_stages_effective

    def wait(self, *, qk_stage: int = 0) -> None:
        """Waits until the part has landed."""
        self.pipeline.consumer_wait(qk_stage=qk_stage)

    def release(self, *, qk_stage: int = 0, e: Predicate | None = None) -> None:
        """Frees the part once the MMAs issued so far have read it; steps when it is the stage's
        last. See `StagedPipeline`.
        """
        self.pipeline.consumer_release(qk_stage=qk_stage, e=e)

    def release_at(self, idx: Index | None, e: Predicate | None = None) -> None:
        """Frees the last part of another stage, and does not step."""
        self.pipeline.consumer_release_at(idx, e)

    def wait_k(self, *, qk_stage: int | None = None) -> None:
        """`wait` of K; the last part unless given."""
        self._only("wait_k", True)
        self.pipeline.consumer_wait(qk_stage=qk_stage)

    def release_k(self, *, qk_stage: int | None = None, e: Predicate | None = None) -> None:
        """`release` of K; the last part unless given."""
        self._only("release_k", True)
        self.pipeline.consumer_release(qk_stage=qk_stage, e=e)

    def wait_v(self) -> None:
        """`wait` of V."""
        self._only("wait_v", False)
        self.wait()

    def release_v(self, e: Predicate | None = None) -> None:
        """`release` of V."""
        self._only("release_v", False)
        self.release(e=e)


class KProducerPipeline(TMAProducerPipeline):
    """`TMAProducerPipeline` of K."""

    KIND = True


class VProducerPipeline(TMAProducerPipeline):
    """`TMAProducerPipeline` of V."""

    KIND = False


class KConsumerPipeline(TMAConsumerPipeline):
    """`TMAConsumerPipeline` of K."""

    KIND = True


class VConsumerPipeline(TMAConsumerPipeline):
    """`TMAConsumerPipeline` of V."""

    KIND = False
