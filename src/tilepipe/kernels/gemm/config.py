"""Settings of the GEMM, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import tilepipe as tp
from tilepipe.kernels.common.settings import Settings

# registers of a thread for the accumulator, by MMA warpgroups
MAX_ACCUMULATOR = {1: 192, 2: 192, 3: 96}
BLOCK_ROWS = 64  # rows of an accumulator block: one wgmma
MAX_BLOCK_COLS = 256  # columns of one wgmma
LINE = 128  # bytes of a row of a store slot, where the columns allow
RASTERS = ("grouped", "rows", "columns")
SCHEDULES = ("cooperative", "pingpong")
ACTIVATIONS = ("none", "relu", "gelu", "silu")
SWAPS = ("none", "ab")
ACCUMULATES = ("fast", "promote")


class OutputTiling(Protocol):
    """How the sums of an output tile come to the epilogue: in blocks of (block_rows, block_cols),
    as fragments of a layout.
    """

    @property
    def bm(self) -> int: ...
    @property
    def bn(self) -> int: ...
    @property
    def block_rows(self) -> int: ...
    @property
    def block_cols(self) -> int: ...
    @property
    def fragment_layout(self) -> str: ...
    @property
    def consumers(self) -> int: ...
    @property
    def store_slots(self) -> int: ...
    @property
    def split_k(self) -> int: ...
    @property
    def swap(self) -> str: ...
    @property
    def activation(self) -> str: ...


@dataclass(frozen=True)
class GemmConfig(Settings):
    """Static settings of the GEMM.

    Attributes:
        bm, bn, bk: the tile, elements: bm of 64 or 128 rows for each warpgroup that works on it, bn
            a multiple of 16 up to 256 (of 32 up to 512), bk of 32 up to 256; 128 bytes' worth fills
            a swizzle span.
        stages: pairs of barriers, each for k_group_size K tiles.
        k_group_size: K tiles that share a barrier pair.
        consumers: MMA warpgroups, 1 to 3.
        schedule: "cooperative": the consumers split the rows of each tile. "pingpong": two
            consumers take whole tiles in turn, so that the epilogue of one hides behind the MMAs of
            the other.
        swap: "ab": computes Cᵀ = B · Aᵀ. bm then runs along N and bn along M, which wants fewer
            rows of padding where M is small.
        cluster, cluster_n: CTAs along M that share B tiles by multicast, and along N that share A
            tiles; one of them 1.
        split_k: CTAs that each take a part of K of the same tile; they exchange sums through
            distributed shared memory and add them in one fixed order. Not with ping-pong.
        raster: order of the output tiles ("grouped", "rows", "columns"). group: cluster tiles of a
            "grouped" band.
        store_slots: buffers of 64 rows × 128 bytes for each consumer's stores.
        accumulate: "fast": in the tensor core's registers over all of K. "promote": each stage's
            sum is added to float32 registers, for fp8, whose tensor-core sums keep about 14 bits.
        activation: of the output: "none", "relu", "gelu" (tanh form) or "silu".
    """

    bm: int = 128
    bn: int = 128
    bk: int = 64
    stages: int = 4
    k_group_size: int = 1
    consumers: int = 2
    schedule: str = "cooperative"
    swap: str = "none"
    cluster: int = 1
    cluster_n: int = 1
    split_k: int = 1
    raster: str = "grouped"
    group: int = 8
    store_slots: int = 2
    accumulate: str = "fast"
    activation: str = "none"
    # which of them a configuration has
    cluster_settings: ClassVar[tuple[str, ...]] = ("cluster", "cluster_n", "split_k")

    def _rules(self) -> dict[str, bool]:
        if self.consumers not in MAX_ACCUMULATOR:  # nothing else can be said of the tile
            return {"consumers must be 1, 2 or 3": False}
        registers = self.rows * self.bn // 128 * (2 if self.accumulate == "promote" else 1)
        what, take = (
            ("two accumulators", "take")
            if self.accumulate == "promote"
            else ("an accumulator", "takes")
        )
        times = " * 2" if self.accumulate == "promote" else ""
        limit = MAX_ACCUMULATOR[self.consumers]
        of = self.cluster_settings
        clusters = [n for n in (self.cluster, self.cluster_n, self.split_k) if n > 1]
        return {
            f"schedule must be one of {', '.join(SCHEDULES)}": self.schedule in SCHEDULES,
            "schedule pingpong takes 2 consumers": self.schedule != "pingpong"
            or self.consumers == 2,
            "split_k above 1 takes schedule cooperative": self.split_k == 1
            or self.schedule != "pingpong",
            f"bm must be 64 or 128 rows for each of the {self.sharers} warpgroups of a tile": self.rows
            in (64, 128)
            and self.bm % self.sharers == 0,
            "bn must be a multiple of 16 in 16..256, or of 32 in 256..512": self.bn
            % (16 if self.bn <= 256 else 32)
            == 0
            and self.bn <= 512,
            "bk must be a multiple of 32 in 32..256": self.bk % 32 == 0 and self.bk <= 256,
            "stages must be at least 2: one is held by the MMAs in flight": self.stages >= 2,
            f"only one of {', '.join(of[:-1])} and {of[-1]} may be above 1, and that is 2, 4 or 8": len(
                clusters
            )
            <= 1
            and max([1, *clusters]) in (1, 2, 4, 8),
            "bn / cluster must be a multiple of 8, and bm / cluster_n, too": self.bn
            % (8 * self.cluster)
            == 0
            and self.bm % (8 * self.cluster_n) == 0,
            "bn / split_k must be a multiple of 16, of 32 where bn is above 256": self.split_k == 1
            or self.block_cols % (16 * self.split_k) == 0,
            f"raster must be one of {', '.join(RASTERS)}": self.raster in RASTERS,
            f"swap must be one of {', '.join(SWAPS)}": self.swap in SWAPS,
            f"accumulate must be one of {', '.join(ACCUMULATES)}": self.accumulate in ACCUMULATES,
            f"activation must be one of {', '.join(ACTIVATIONS)}": self.activation in ACTIVATIONS,
            f"{what} of {self.rows}×{self.bn} float32 {take} {self.rows} * {self.bn} / 128{times}"
            f" = {registers} registers of each thread;"
            f" at most {limit} leave room for the rest": registers <= limit,
        }

    @property
    def sharers(self) -> int:
        """Warpgroups that work on one tile."""
        return self.consumers if self.schedule == "cooperative" else 1

    @property
    def rows(self) -> int:
        """Rows of the output tile of one consumer warpgroup."""
        return self.bm // max(self.sharers, 1)

    @property
    def registers(self) -> tuple[int, int]:
        """What setmaxnreg gives a thread of the load warp's warpgroup, and of an MMA warpgroup."""
        return {
            1: (40, 232),
            2: (40, 232) if self.schedule == "cooperative" else (24, 240),
            3: (24, 160),
        }[self.consumers]

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster * self.cluster_n * self.split_k

    @property
    def block_rows(self) -> int:
        """Rows of an accumulator block: of one wgmma."""
        return BLOCK_ROWS

    @property
    def fragment_layout(self) -> str:
        """Of accumulators."""
        return "wgmma"

    @property
    def block_cols(self) -> int:
        """Columns of an accumulator block: of one wgmma."""
        parts = -(-self.bn // MAX_BLOCK_COLS)
        return self.bn // parts


class Tile(GemmConfig):
    """The settings that another configuration has in common with the GEMM's; it is the one that has
    them checked.
    """

    cluster_settings = ("cluster", "cluster_n")

    def __post_init__(self) -> None:
        """Nothing: messages would end in settings that nobody wrote."""


def store_width(dtype: tp.DType, cfg: OutputTiling) -> int:
    """Columns of one TMA store. Where C is row-major: a 128-byte line, or half or a quarter of one
    where a block's columns need it. Where it is column-major, lines run along the rows, and any
    multiple of 8 that divides the block's columns will do.
    """
    cols = cfg.block_cols // cfg.split_k
    if cfg.swap == "ab":
        return max(width for width in range(8, LINE // dtype.nbytes + 1, 8) if cols % width == 0)
    return next(
        line // dtype.nbytes
        for line in (LINE, LINE // 2, LINE // 4)
        if cols % (line // dtype.nbytes) == 0
    )
