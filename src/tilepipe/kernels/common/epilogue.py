"""The epilogue of every GEMM: scales a tile's sums, adds, activates, stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.common.source_tiles import Place as Place, Slice, SourceTiles
from tilepipe.kernels.common.split_k import part_rank
from tilepipe.kernels.common.tiling import (
    OutputTiling,
    Sums as Sums,
    slices_of_slot,
    store_width,
)

# sqrt(2 / pi), and the cubic term of gelu's tanh form
GELU_SCALE, GELU_CUBE = 0.7978845608028654, 0.044715
SQRT_HALF = 0.7071067811865476


def activate(name: str, x: tp.Fragment) -> tp.FragmentValue:
    """An activation of each element."""
    if name == "relu":
        return x.maximum(0)
    if name == "silu":
        return x / (1 + (-x).apply("exp"))
    if name == "gelu":
        return 0.5 * x * (1 + (GELU_SCALE * (x + GELU_CUBE * x * x * x)).apply("tanh"))
    if name == "gelu_erf":
        return 0.5 * x * (1 + (SQRT_HALF * x).apply("erf"))
    return x


@dataclass(frozen=True, eq=False)
class Terms:
    """What scales the sums of a tile and what is added to them; None for a term that the product
    does not have.

    `scales`: what `a_scale` and `b_scale` are of: "none", the whole "tensor", or each "row".
    `bias`: one value a column of the product, (n,), or one value a row, (1, m).
    `source_slots`: stages of the ring through which a source arrives that is a tensor map; 0: it is
    read from global memory in the epilogue.
    """

    bias: tp.GlobalTensor | None = None
    a_scale: tp.GlobalTensor | None = None
    b_scale: tp.GlobalTensor | None = None
    source: tp.GlobalTensor | None = None
    alpha: tp.Value | None = None
    beta: tp.Value | None = None
    scales: str = "none"
    source_slots: int = 0


# Registers of a thread that an accumulator may take where the vectors of the next slice are on
# their way while one is stored: with more, ptxas spills.
AHEAD_ACCUMULATOR = 176


class Epilogue:
    """Made in set-up code; `store` and `drain` are called in the role that holds the sums, or loads
    them. Where CTAs split K, each stores the columns that it owns.
    """

    def __init__(
        self, ctx: tp.Context, c: tp.GlobalTensor, cfg: OutputTiling, terms: Terms | None = None
    ) -> None:
        self._ctx = ctx
        self._cfg = cfg
        self._c = c
        self._terms = terms or Terms()
        self._width = store_width(c.dtype, cfg)
        # of a source that arrives slice by slice, one stage is held at a time
        self._together = 1 if self._terms.source_slots else slices_of_slot(c.dtype, cfg)
        self._rows, self._layout = cfg.block_rows, cfg.fragment_layout
        self._slots = ctx.smem(
            (self._rows, self._width),
            c.dtype,
            count=cfg.store_slots * cfg.consumers * self._together,
            order=c.order,
            name="output",
        )
        source, slots = self._terms.source, self._terms.source_slots
        self._source = None if source is None or not slots else SourceTiles(ctx, source, cfg, slots)

    # -- source ------------------------------------------------------------------------

    @property
    def loads_source(self) -> bool:
        """True if a role of one warp must run `load_source`."""
        return self._source is not None

    def load_source(self, work: Iterable[tp.WorkTile]) -> None:
        """The role that loads the source, ahead of the epilogue of each tile."""
        assert self._source is not None
        self._source.load(work, self._slices(), self._place)

    def skip_source(self, tiles: tp.Value | int) -> None:
        """Steps over the source of tiles that another warpgroup stores."""
        if self._source is not None:
            self._source.skip(tiles * len(self._slices()))

    def _slices(self) -> list[Slice]:
        """The slices of a warpgroup's part of a tile, in the order in which they are stored."""
        cfg = self._cfg
        return [
            Slice(i, n, x)
            for i in range(cfg.rows // self._rows)
            for n in range(cfg.bn // cfg.block_cols)
            for x in range(0, cfg.block_cols // cfg.split_k, self._width)
        ]

    # -- store -------------------------------------------------------------------------

    def store(
        self, blocks: Sequence[Sequence[Sums]], tile: tp.WorkTile, first_row: tp.Value | int
    ) -> None:
        """Stores a tile's sums in slices of a 128-byte line, or of the part of one that divides a
        block's columns, through a ring of slots of shared memory for each warpgroup. A slot holds
        as many slices as `slices_of_slot` says; the warpgroup meets once for each slot.
        """
        ctx, cfg, width = self._ctx, self._cfg, self._width
        slices = self._slices()
        places = [self._place(tile, first_row, part) for part in slices]
        row_scales = self._row_scales(tile, first_row, len(blocks))
        ahead = cfg.rows * cfg.bn // 128 <= AHEAD_ACCUMULATOR
        loaded = self._load(tile, *places[0])
        rounds = [slices[i : i + self._together] for i in range(0, len(slices), self._together)]
        for number, parts in enumerate(rounds):
            slots = self._slots_of(number)
            values, stage = [], None
            for at, part in enumerate(parts, number * self._together):
                if at and not ahead:
                    loaded = self._load(tile, *places[at])
                value = blocks[part.row][part.block].cols(part.col, width)
                source, stage = self._source_at(tile, places[at])
                values.append(self._value(value, source, loaded, row_scales[part.row]))
                if ahead and at + 1 < len(slices):  # on its way while this slice is stored
                    loaded = self._load(tile, *places[at + 1])
            # The slot's last store was `store_slots` ago, and must have read it. A tile begins with
            # the first slot again: where the tile before did not end with the last, which store was
            # the first slot's differs.
            unread = 0 if number == 0 and len(rounds) % cfg.store_slots else cfg.store_slots - 1
            with ctx.elect_one("warpgroup"):
                ctx.tma_store_wait(unread, read=True)
            ctx.sync_warpgroup()
            if self._source is not None and stage is not None:
                self._source.free(stage)
            for slot, value in zip(slots, values, strict=False):  # the last slot may be less full
                ctx.store(slot, value)
            ctx.fence_proxy_async()
            ctx.sync_warpgroup()
            with ctx.elect_one("warpgroup"):
                for i in range(len(parts)):
                    self._write(tile, places[number * self._together + i], slots[i])
                ctx.tma_store_commit()

    def _slots_of(self, number: int) -> list[tp.SmemTile]:
        """The tiles of the slot for a warpgroup's round `number` of stores."""
        cfg, together = self._cfg, self._together
        slot = self._ctx.warpgroup_rank * cfg.store_slots + number % cfg.store_slots
        if together == 1:
            return [self._slots[slot]]
        return [self._slots[slot * together + i] for i in range(together)]

    def store_at_once(
        self, blocks: Sequence[Sequence[Sums]], tile: tp.WorkTile, first_row: tp.Value | int
    ) -> None:
        """As `store`, of unscaled sums, where the slots hold a whole tile: the warpgroup meets once
        before and once after all slices.
        """
        ctx, cfg, width = self._ctx, self._cfg, self._width
        slices = self._slices()
        slots = [
            self._slots[ctx.warpgroup_rank * cfg.store_slots + number]
            for number in range(len(slices))
        ]
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(0, read=True)
        ctx.sync_warpgroup()
        for slot, part in zip(slots, slices, strict=True):
            ctx.store(slot, blocks[part.row][part.block].cols(part.col, width))
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            for slot, part in zip(slots, slices, strict=True):
                self._write(tile, self._place(tile, first_row, part), slot)
            ctx.tma_store_commit()

    def _write(self, tile: tp.WorkTile, place: Place, slot: tp.SmemTile) -> None:
        """Starts the store of a slot to its place in C."""
        self._ctx.tma_store(self._c, (tile.batch, *place)[-self._c.rank :], slot)

    def _row(self, tile: tp.WorkTile) -> tp.Value:
        """The row of C where a tile begins."""
        return tile.m * self._cfg.bm

    def _place(self, tile: tp.WorkTile, first_row: tp.Value | int, part: Slice) -> Place:
        """(row, column) of C where a slice begins."""
        cfg = self._cfg
        col = tile.n * cfg.bn + part.block * cfg.block_cols + part.col
        if cfg.split_k > 1:
            col = col + part_rank(self._ctx, cfg) * (cfg.block_cols // cfg.split_k)
        return self._row(tile) + first_row + part.row * self._rows, col

    def _load(self, tile: tp.WorkTile, row: tp.Value, col: tp.Value) -> dict[str, tp.Fragment]:
        """Vectors that a slice's values are scaled by and added to, from global memory."""
        ctx, width = self._ctx, self._width
        bias, b_scale = self._terms.bias, self._terms.b_scale
        loaded = {}
        if self._terms.scales == "row" and b_scale is not None:
            where = (tile.batch, col)[-b_scale.rank :]
            loaded["b_scale"] = ctx.load_global(b_scale, where, (1, width))
        if bias is not None:
            of_columns = bias.rank == 1
            if self._cfg.swap == "ab":  # C is Cᵀ
                of_columns = not of_columns
            start, shape = (col, (1, width)) if of_columns else (row, (self._rows, 1))
            at = (0, start)[-bias.rank :]
            loaded["bias"] = ctx.load_global(bias, at, shape, layout=self._layout)
        return loaded

    def _row_scales(
        self, tile: tp.WorkTile, first_row: tp.Value | int, blocks: int
    ) -> list[tp.Fragment | tp.Value | None]:
        """For each block of rows: a factor for each row, one factor for all, or None."""
        ctx, a_scale, b_scale = self._ctx, self._terms.a_scale, self._terms.b_scale
        if a_scale is None or b_scale is None:
            return [None] * blocks
        if self._terms.scales == "tensor":
            return [ctx.let(ctx.load(a_scale[0]) * ctx.load(b_scale[0]), "scale")] * blocks
        rows = [self._row(tile) + first_row + i * self._rows for i in range(blocks)]
        return [
            ctx.load_global(a_scale, (row,), (self._rows, 1), layout=self._layout) for row in rows
        ]

    def _source_at(
        self, tile: tp.WorkTile, place: Place
    ) -> tuple[tp.Fragment | None, tp.InputConsumerStage | None]:
        """The source of the slice that begins at `place` in C, and the stage that it is in, where
        it arrived through the ring.
        """
        if self._source is not None:
            return self._source.take()
        source = self._terms.source
        if source is None:
            return None, None
        where, shape = (tile.batch, *place)[-source.rank :], (self._rows, self._width)
        return self._ctx.load_global(source, where, shape, layout=self._layout), None

    def _value(
        self,
        x: tp.FragmentValue,
        source: tp.Fragment | None,
        loaded: dict[str, tp.Fragment],
        row_scale: tp.Fragment | tp.Value | None,
    ) -> tp.FragmentValue:
        """What is stored for a slice of sums."""
        if row_scale is not None:
            x = x * row_scale
        if "b_scale" in loaded:
            x = x * loaded["b_scale"]
        terms = self._terms
        if terms.alpha is not None:
            x = x * terms.alpha
        if "bias" in loaded:
            x = x + loaded["bias"].to("float32")
        if source is not None:
            x = x + source.to("float32") * terms.beta
        if self._cfg.activation != "none":
            x = activate(self._cfg.activation, self._ctx.fragment(x))
        return x

    def drain(self) -> None:
        """After the last tile: its stores have finished."""
        with self._ctx.elect_one("warpgroup"):
            self._ctx.tma_store_wait(0)
