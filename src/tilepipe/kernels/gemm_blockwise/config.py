"""Settings of the blockwise fp8 GEMM on each architecture, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

import tilepipe as tp
from tilepipe.kernels.common.tiling import (
    BLOCK_ROWS,
    MAX_BLOCK_COLS,
    Sm90Tiling,
    Sm100Tiling,
    store_width,
)

BLOCK = 128  # elements of K, and of N, that a scale is of
# Registers of a thread that totals and partial sums may take, by MMA warpgroups: with more, ptxas
# spills.
MAX_SUMS = {1: 200, 2: 200, 3: 128}
MAX_UNROLL = 8
# Stages whose scales of B a warpgroup holds at a time, one for each of its threads.
WINDOW = 128
TAKES = ("rows", "k")


@dataclass(frozen=True)
class BlockwiseGemmConfig(Sm90Tiling):
    """Static settings on Hopper. A tile of K is one block of 128: the scales change
    from one to the next.

    Attributes:
        bm, bn: the tile, elements: 64 or 128 rows for each MMA warpgroup, bn a multiple of 16 up to
            256.
        stages: K tiles in flight.
        consumers: MMA warpgroups, 1 to 3, which split the rows of a tile.
        splits: wgmma of bn / splits columns, one after the other, which take fewer registers for
            partial sums.
        takes: what each of the MMA warpgroups takes of a tile: "rows" of it, or, of two warpgroups,
            every other block of K ("k"), with 64 or 128 rows: for tiles so small that one
            warpgroup's wgmma and additions, one after the other, are what a block of K takes.
        unroll: blocks of K that the compiler writes one after the other: the wait for a block is
            then tried while the sums of the one before are added.
        cluster, cluster_n: CTAs along M that share B tiles by multicast, and along N that share A
            tiles; one of them 1.
        raster: order of the output tiles ("grouped", "rows", "columns"). group: cluster tiles of a
            "grouped" band.
        store_slots: buffers of 64 rows × 128 bytes for each consumer's stores.
    """

    stages: int = 5
    splits: int = 1
    takes: str = "rows"
    unroll: int = 1
    # There is no choice of what the other Hopper GEMMs may set.
    bk: int = field(default=BLOCK, init=False, repr=False)
    k_group_size: int = field(default=1, init=False, repr=False)
    schedule: str = field(default="cooperative", init=False, repr=False)
    swap: str = field(default="none", init=False, repr=False)
    split_k: int = field(default=1, init=False, repr=False)
    accumulate: str = field(default="fast", init=False, repr=False)
    activation: str = field(default="none", init=False, repr=False)

    def _rules(self) -> dict[str, bool]:
        if self.takes not in TAKES:
            return {f"takes must be one of {', '.join(TAKES)}": False}
        if self.takes == "k" and self.consumers != 2:
            return {'takes "k" needs 2 consumers': False}
        if self.bn % 16 or self.bn > MAX_BLOCK_COLS:
            return {f"bn must be a multiple of 16 up to {MAX_BLOCK_COLS}": False}
        rules = super()._rules()
        if not all(rules.values()):  # what follows divides by what these are about
            return rules
        registers, limit = self.sums, MAX_SUMS[self.consumers]
        return {
            f"unroll must be at most {MAX_UNROLL}": self.unroll <= MAX_UNROLL,
            "bn / splits must be a multiple of 16": self.bn % (16 * self.splits) == 0,
            f"totals of {self.rows}×{self.bn} and partial sums of {BLOCK_ROWS}×{self.piece_cols}"
            f" take ({self.rows} * {self.bn} + {BLOCK_ROWS} * {self.piece_cols}) / 128 ="
            f" {registers} registers of each thread; at most {limit} leave room for the rest: lower"
            " bm or bn, or raise splits": registers <= limit,
        }

    @property
    def sharers(self) -> int:
        return 1 if self.takes == "k" else super().sharers

    @property
    def blocks_of_stage(self) -> int:
        """Blocks of K that a stage has: one for each warpgroup, where these take turns along K."""
        return self.consumers if self.takes == "k" else 1

    @property
    def piece_cols(self) -> int:
        """Columns of one wgmma."""
        return self.bn // self.splits

    @property
    def pieces(self) -> int:
        """Parts of 64 rows and `piece_cols` columns that a warpgroup's tile has."""
        return self.rows // BLOCK_ROWS * self.splits

    @property
    def sums(self) -> int:
        """Registers of a thread for totals and partial sums."""
        return (self.rows * self.bn + BLOCK_ROWS * self.piece_cols) // 128

    @property
    def scale_cols(self) -> int:
        """Columns of a piece that surely share a scale of B, wherever the tile begins."""
        return gcd(self.piece_cols, BLOCK)

    @property
    def scale_blocks(self) -> int:
        """Blocks of B's scales that the columns of a tile may lie in."""
        return -(-(BLOCK - gcd(self.bn, BLOCK) + self.bn) // BLOCK)

    @property
    def staged_scales(self) -> int:
        """Scales of B that a stage has room for."""
        return 0

    @property
    def held_scales(self) -> int:
        """Scales of B that all warpgroups hold."""
        return self.consumers * self.scale_blocks * WINDOW

    def slices(self, out_dtype: tp.DType) -> int:
        """Store slots that a warpgroup's part of a tile fills."""
        return self.rows // BLOCK_ROWS * (self.bn // store_width(out_dtype, self))


@dataclass(frozen=True)
class Sm100BlockwiseGemmConfig(Sm100Tiling):
    """Static settings on Blackwell: those of `Sm100Tiling`. A K
    tile is a block of scales, and the sums of a tile are in the registers of one warpgroup.
    """

    bk: int = BLOCK
    stages: int = 5
    accumulators: int = 2
    split_k: int = field(default=1, init=False, repr=False)

    def _rules(self) -> dict[str, bool]:
        return super()._rules() | {
            f"bk must be {BLOCK}, the block of a scale": self.bk == BLOCK,
            "k_group_size must be 1: each K tile has scales": self.k_group_size == 1,
            f"bn must divide {BLOCK}, so that a tile has one scale of B": (
                self.bn >= 1 and BLOCK % self.bn == 0
            ),
            "bm must be 128: a row for each thread of the epilogue": self.bm == BLOCK,
            "activation must be none": self.activation == "none",
        }
