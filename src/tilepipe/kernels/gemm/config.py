"""Settings of the GEMM on each architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tilepipe.kernels.common.tiling import MAX_ACCUMULATOR, Sm90Tiling, Sm100Tiling

EARLY = ("none", "b")
MAX_K_PARTS = 8  # more have not been measured


@dataclass(frozen=True)
class GemmConfig(Sm90Tiling):
    """Static settings of the GEMM on Hopper: those of `Sm90Tiling`, of which bn may be any multiple
    of 8, bm 192 rows for each warpgroup, and split_k any number up to 8, and three more.

    Tiles for few rows and a long K: a cluster along M may share B tiles of any bn that has eight
    rows for each CTA, and CTAs that split K take tiles of which each stores eight columns or more.

    Tiles for what waves cost: of any bn up to 192 with bm 256, a tile that divides the extents into
    just so many as the chip has SMs, or twice as many, leaves none of them idle. Three warpgroups
    take 192 × 208..256, two of 192 rows each 384 × 64..128.

    Attributes:
        source_slots: buffers of 64 rows × 128 bytes, for each warpgroup that works on a tile, into
            which TMA brings the source while the tile is multiplied. 0: the epilogue reads it from
            global memory. Without a source there are none.
        early: "b": each CTA loads B for its first stages before it waits for the kernel before it
            in the stream. For weights: all that any earlier kernel writes of B must be there when
            that kernel begins. "none": nothing is read before the wait.
        k_parts: parts of K, of which any CTAs, or clusters, multiply one each. They meet in a
            workspace in global memory: the one that comes last adds up all parts of a tile in the
            order of K, and stores it. For few large tiles of a long K: unlike with split_k, the
            CTAs of a cluster share operands. Not with split_k, ping-pong or source_slots.
    """

    fills_slots: ClassVar[bool] = True
    bn_unit: ClassVar[int] = 8
    row_choices: ClassVar[tuple[int, ...]] = (64, 128, 192)
    max_accumulator: ClassVar[Mapping[int, int]] = MAX_ACCUMULATOR | {3: 128}
    any_share: ClassVar[bool] = True

    source_slots: int = 0
    early: str = "none"
    k_parts: int = 1

    def _rules(self) -> dict[str, bool]:
        known = {f"early must be one of {', '.join(EARLY)}": self.early in EARLY}
        if self.k_parts == 1:
            return super()._rules() | known
        return (
            super()._rules()
            | known
            | {
                f"k_parts must be at most {MAX_K_PARTS}": self.k_parts <= MAX_K_PARTS,
                "k_parts above 1 takes split_k 1: both divide K": self.split_k == 1,
                "k_parts above 1 takes schedule cooperative": self.schedule == "cooperative",
                "k_parts above 1 takes source_slots 0: only the part that comes last reads the"
                " source": self.source_slots == 0,
            }
        )

    @property
    def early_operand(self) -> str | None:
        """The kernel's operand that is loaded early: its A where C is Cᵀ."""
        return None if self.early == "none" else {"none": "b", "ab": "a"}[self.swap]


@dataclass(frozen=True)
class StreamKConfig(Sm90Tiling):
    """Static settings of the GEMM on Hopper whose CTAs share tiles along K (`stream_k`): those of
    `Sm90Tiling` for single CTAs whose warpgroups work on one tile together.
    """

    fills_slots: ClassVar[bool] = True

    schedule: str = field(default="cooperative", init=False)
    swap: str = field(default="none", init=False)
    cluster: int = field(default=1, init=False)
    cluster_n: int = field(default=1, init=False)
    split_k: int = field(default=1, init=False)
    raster: str = field(default="grouped", init=False)


@dataclass(frozen=True)
class Sm100GemmConfig(Sm100Tiling):
    """Static settings of the GEMM on Blackwell: those of `Sm100Tiling`."""
