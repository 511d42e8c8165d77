"""Settings of the block-scaled GEMM, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass, field

import tilepipe as tp
from tilepipe.kernels.common.tiling import TMEM_COLUMNS, Sm100Tiling
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_block_scaled.layout import (
    KINDS,
    LINE,
    LINES,
    PIECE_ROWS,
    PIECE_SCALES,
    Kind,
)

PIECE_COLUMNS = 4  # of tensor memory, for the scales of 128 rows × 4 blocks
HALF = 64  # rows from where on scales of B may begin inside a piece


@dataclass(frozen=True)
class BlockScaledGemmConfig(Sm100Tiling):
    """Static settings of the block-scaled GEMM: those of `Sm100Tiling`, and what is
    multiplied.

    Attributes:
        kind: "mxfp8" (fp8 elements, a scale of float8_e8m0 for 32 of them along K), "mxfp4"
            (float4_e2m1, the same scales), "nvfp4" (float4_e2m1, a scale of float8_e4m3 for 16).
        bm: 128. bn: 64, 128, 192 or 256. bk: whole pieces of 4 blocks: a multiple of 128, of 64 for
            nvfp4, up to 256.
    """

    kind: str = "mxfp8"
    bk: int = 128
    split_k: int = field(default=1, init=False, repr=False)

    def _rules(self) -> dict[str, bool]:
        if self.kind not in KINDS:  # nothing else can be said
            return {f"kind must be one of {', '.join(KINDS)}": False}
        piece, accumulators = PIECE_SCALES * self.format.block, self.accumulators * self.bn
        columns = accumulators + self.scale_columns
        total = self.k_group_size * self.tile_bytes * self.cta_group
        return super()._rules() | {
            "bm must be 128: a block-scaled MMA has 128 rows in each CTA": self.bm == PIECE_ROWS,
            f"bn must be a multiple of {HALF} in {HALF}..256": self.bn % HALF == 0
            and self.bn <= 256,
            f"bk must be a multiple of {piece} in {piece}..256 of {self.kind}: scales come for"
            f" {PIECE_SCALES} blocks of K at once": (self.bk % piece == 0 and self.bk <= 256),
            f"{self.accumulators} accumulators of {self.bn} columns and {self.scale_columns}"
            f" columns of scales are {columns}; tensor memory"
            f" has {TMEM_COLUMNS}: lower accumulators or bn": accumulators > TMEM_COLUMNS
            or columns <= TMEM_COLUMNS,
            f"k_group_size={self.k_group_size} makes a stage of {self.k_group_size} *"
            f" {self.tile_bytes:,} bytes * {self.cta_group} CTAs = {total:,} bytes; its mbarrier"
            f" counts up to {tp.Chip.max_tx_bytes:,}": total <= tp.Chip.max_tx_bytes,
        }

    @property
    def format(self) -> Kind:
        """The number format."""
        return KINDS[self.kind]

    @property
    def blocks(self) -> int:
        """Blocks of K that a tile has."""
        return self.bk // self.format.block

    @property
    def sfb_rows(self) -> int:
        """Rows of B whose scales a tile loads: whole pieces of 128, the first of which it may begin
        in the middle of.
        """
        return -(-(self.bn + self.bn % PIECE_ROWS) // PIECE_ROWS) * PIECE_ROWS

    @property
    def scale_columns(self) -> int:
        """Columns of tensor memory for the scales of one tile."""
        return (
            PIECE_COLUMNS
            * -(-self.blocks // PIECE_SCALES)
            * (self.bm + self.sfb_rows)
            // PIECE_ROWS
        )

    @property
    def tile_bytes(self) -> int:
        """Bytes in one CTA of a K tile of A and B, with their scales."""
        elements = tp.dtype(self.format.elements[0]).bytes_of((self.bm + self.b_rows) * self.bk)
        return elements + LINES * LINE * self.scale_columns // PIECE_COLUMNS


def tile_settings(kind: str) -> dict[str, int | str]:
    """The settings that make the rows of K tiles fill one swizzle span."""
    # For an unknown kind the configuration raises the error.
    elements = KINDS[kind].elements if kind in KINDS else ("float8_e4m3",)
    return {"bk": SPAN * 8 // tp.dtype(elements[0]).bits}
