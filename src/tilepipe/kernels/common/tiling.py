"""How a GEMM divides an output tile: among the warpgroups of Hopper, into accumulators, and into
TMA stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import tilepipe as tp
from tilepipe.kernels.common.multicast import rows_of_load
from tilepipe.kernels.common.settings import Settings

BLOCK_ROWS = 64  # rows of an accumulator block on Hopper: of one wgmma
MAX_BLOCK_COLS = 256  # columns of one wgmma
# Columns of one of three warpgroups: ptxas gives an instruction no more than the 128 registers that
# each of 512 threads is launched with, and 104 of an accumulator, with what else it names, are 130.
MAX_BLOCK_COLS_OF_THREE = 200
# Registers of a thread that its accumulator may take, by MMA warpgroups: with more, ptxas spills.
MAX_ACCUMULATOR = {1: 192, 2: 192, 3: 96}
TMEM_COLUMNS = 512  # of an SM's tensor memory
LINE = 128  # bytes of a row of a store slot, where the columns allow
RASTERS = ("grouped", "rows", "columns")
SCHEDULES = ("cooperative", "pingpong")
ACTIVATIONS = ("none", "relu", "gelu", "silu", "gelu_erf")
SCHEDULERS = ("clc", "static")
SWAPS = ("none", "ab")
ACCUMULATES = ("fast", "promote")


@dataclass(frozen=True)
class Sm90Tiling(Settings):
    """Static settings of a GEMM on Hopper: its tiles, what follows from them, and the rules that
    they obey. A configuration that leaves no choice of a setting has it as a field that is not
    given (`init=False`).

    Attributes:
        bm, bn, bk: the tile, elements: bm of 64 or 128 rows for each warpgroup that works on it,
            bn a multiple of 16 up to 256 (of 32 up to 512), bk of 32 up to 256; 128 bytes'
            worth fills a swizzle span.
        stages: pairs of barriers, each for k_group_size K tiles.
        k_group_size: K tiles that share a barrier pair.
        consumers: MMA warpgroups, 1 to 3.
        schedule: "cooperative": the consumers split the rows of each tile. "pingpong": two
            consumers take whole tiles in turn, so that the epilogue of one runs beside the MMAs of
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
        activation: of the output: "none", "relu", "gelu" (tanh form), "silu" or
            "gelu_erf" (GELU itself).
    """

    # True: a store slot has room for a line of 128 bytes, and slices that are shorter share one.
    fills_slots: ClassVar[bool] = False
    bn_unit: ClassVar[int] = 16  # what bn is a multiple of
    row_choices: ClassVar[tuple[int, ...]] = (64, 128)  # of the output tile of one warpgroup
    max_accumulator: ClassVar[Mapping[int, int]] = MAX_ACCUMULATOR
    # True: clusters of tiles whose rows they cannot divide equally, and CTAs that split K in any
    # number.
    any_share: ClassVar[bool] = False

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

    def _rules(self) -> dict[str, bool]:
        if self.consumers not in MAX_ACCUMULATOR:  # what follows divides by it, or looks it up
            return {"consumers must be 1, 2 or 3": False}
        choices = {
            f"schedule must be one of {', '.join(SCHEDULES)}": self.schedule in SCHEDULES,
            f"raster must be one of {', '.join(RASTERS)}": self.raster in RASTERS,
            f"swap must be one of {', '.join(SWAPS)}": self.swap in SWAPS,
            f"accumulate must be one of {', '.join(ACCUMULATES)}": self.accumulate in ACCUMULATES,
            f"activation must be one of {', '.join(ACTIVATIONS)}": self.activation in ACTIVATIONS,
        }
        if not all(choices.values()):
            return choices
        promotes = self.accumulate == "promote"
        registers = self.rows * self.bn // 128 * (2 if promotes else 1)
        what, times = ("two accumulators", " * 2") if promotes else ("an accumulator", "")
        limit, unit = self.max_accumulator[self.consumers], self.bn_unit
        rows = ", ".join(map(str, self.row_choices[:-1]))
        each = (
            "for a tile of 1 warpgroup"
            if self.sharers == 1
            else f"for each of the {self.sharers} warpgroups of a tile"
        )
        heights = [str(x * self.sharers) for x in self.row_choices]
        whole = "" if self.sharers == 1 else f": {', '.join(heights[:-1])} or {heights[-1]}"
        tiles = {
            "schedule pingpong takes 2 consumers": (
                self.schedule != "pingpong" or self.consumers == 2
            ),
            "split_k above 1 takes schedule cooperative": (
                self.split_k == 1 or self.schedule != "pingpong"
            ),
            f"bm must be {rows} or {self.row_choices[-1]} rows {each}{whole}": (
                self.rows in self.row_choices and self.bm % self.sharers == 0
            ),
            f"bn must be a multiple of {unit} in {unit}..256, or of 32 in 256..512": (
                self.bn % (unit if self.bn <= 256 else 32) == 0 and self.bn <= 512
            ),
            f"bn above {MAX_BLOCK_COLS_OF_THREE} must be a multiple of 16 where consumers is 3: two"
            " wgmmas have half of the columns each": (
                self.consumers != 3 or self.bn <= MAX_BLOCK_COLS_OF_THREE or self.bn % 16 == 0
            ),
            "bk must be a multiple of 32 in 32..256": self.bk % 32 == 0 and self.bk <= 256,
            "stages must be at least 2: one is held by the MMAs in flight": self.stages >= 2,
        }
        if not all(tiles.values()):  # what follows is arithmetic on them
            return tiles
        return {
            **self._cluster_rules(),
            f"{what} of {self.rows}×{self.bn} float32 {'take' if promotes else 'takes'}"
            f" {self.rows} * {self.bn} / 128{times} = {registers} registers of each thread;"
            f" at most {limit} leave room for the rest: lower bm or bn": registers <= limit,
        }

    def _cluster_rules(self) -> dict[str, bool]:
        names = [name for name in ("cluster", "cluster_n", "split_k") if name in self.names()]
        above = {name: n for name in names if (n := getattr(self, name)) > 1}
        if len(above) > 1:
            listed = " and ".join((", ".join(names[:-1]), names[-1]))
            return {f"only one of {listed} may be above 1": False}
        for name, n in above.items():
            if self.any_share and name == "split_k":
                numbers, takes = "from 1 to 8", n <= 8
            else:
                numbers, takes = "1, 2, 4 or 8", n in (2, 4, 8)
            if not takes:
                return {f"{name} must be {numbers}": False}
        if not self.any_share:
            return {
                "bn / cluster must be a multiple of 8, and bm / cluster_n, too": (
                    self.bn % (8 * self.cluster) == 0 and self.bm % (8 * self.cluster_n) == 0
                ),
                "bn / split_k must be a multiple of 16, of 32 where bn is above 256": (
                    self.split_k == 1 or self.block_cols % (16 * self.split_k) == 0
                ),
            }
        rows = self.bn * self.k_group_size
        return {
            "each CTA of a cluster loads 8 rows of the B tiles of a stage, or more; bn *"
            f" k_group_size = {rows} are less than 8 * cluster = {8 * self.cluster}": (
                rows >= 8 * self.cluster
            ),
            "bn / split_k must be a multiple of 8, of 16 where bn is above 256": (
                self.split_k == 1 or self.block_cols % (8 * self.split_k) == 0
            ),
        }

    @property
    def copied_rows(self) -> tuple[int, int]:
        """Rows of one TMA copy of a tile of A, and of B."""
        return rows_of_load(self.bm, self.cluster_n), rows_of_load(self.bn, self.cluster)

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
        """What setmaxnreg gives a thread of the load warp's warpgroup, and of an MMA warpgroup. The
        sums are what an SM has: 128 * (40 + 2 * 232) and 128 * (24 + 3 * 160) of 65,536.
        """
        two = (40, 232) if self.schedule == "cooperative" else (24, 240)
        return {1: (40, 232), 2: two, 3: (24, 160)}[self.consumers]

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster * self.cluster_n * self.split_k

    @property
    def block_rows(self) -> int:
        """Rows of an accumulator block: of one wgmma."""
        return BLOCK_ROWS

    @property
    def block_cols(self) -> int:
        """Columns of an accumulator block: of one wgmma."""
        most = MAX_BLOCK_COLS_OF_THREE if self.consumers == 3 else MAX_BLOCK_COLS
        return self.bn // -(-self.bn // most)

    @property
    def fragment_layout(self) -> str:
        """Layout of the fragments that hold accumulators."""
        return "wgmma"


@dataclass(frozen=True)
class Sm100Tiling(Settings):
    """Static settings that every GEMM for Blackwell has.

    Attributes:
        bm, bn, bk: the tile of one CTA, elements: bm 64 or 128, bn a multiple of 16, of pairs 32,
            up to 256, bk of 32 up to 256.
        stages: pairs of barriers, each for k_group_size K tiles. k_group_size: K tiles that share a
            barrier pair.
        cta_group: 2: pairs of CTAs along M share an MMA of 2 bm rows: each loads its rows of A and
            half of B.
        cluster, cluster_n: CTAs of a cluster along M and N: those beside each other along M share B
            tiles by multicast, along N A tiles.
        split_k: CTAs, of pairs as many pairs, that each take a part of K of the same tile; they
            exchange sums through distributed shared memory and add them in one fixed order. A
            cluster has cluster · cluster_n · split_k CTAs.
        accumulators: tiles in tensor memory: with 2, one is stored while the next is multiplied.
        scheduler: "clc": clusters that are done take the work of clusters that have not begun
            (cluster launch control); "static": each cluster has a fixed share.
        raster: order of the output tiles ("grouped", "rows", "columns"). group: cluster tiles of a
            "grouped" band.
        store_slots: buffers of bm rows × 128 bytes for stores.
        activation: of the output: "none", "relu", "gelu" (tanh form), "silu" or
            "gelu_erf" (GELU itself).
    """

    bm: int = 128
    bn: int = 128
    bk: int = 64
    stages: int = 4
    k_group_size: int = 1
    cta_group: int = 1
    cluster: int = 1
    cluster_n: int = 1
    split_k: int = 1
    accumulators: int = 2
    scheduler: str = "clc"
    raster: str = "grouped"
    group: int = 8
    store_slots: int = 2
    activation: str = "none"

    def _rules(self) -> dict[str, bool]:
        step = 32 if self.cta_group == 2 else 16
        columns = self.accumulators * self.bn
        extents = [name for name in ("cluster", "cluster_n", "split_k") if name in self.names()]
        return {
            "cta_group must be 1 or 2": self.cta_group in (1, 2),
            "bm must be 64 or 128, and 128 where cta_group is 2": (
                self.bm == 128 or (self.bm == 64 and self.cta_group != 2)
            ),
            f"bn must be a multiple of {step} in {step}..256": (
                self.bn % step == 0 and self.bn <= 256
            ),
            "bk must be a multiple of 32 in 32..256": self.bk % 32 == 0 and self.bk <= 256,
            "stages must be at least 2: one is held by the MMAs in flight": self.stages >= 2,
            f"{' · '.join(extents)} must be 1, 2, 4 or 8": self.cluster_size in (1, 2, 4, 8),
            "cta_group 2 takes an even cluster, cluster=2 at least": (
                self.cta_group == 1 or self.cluster % 2 == 0
            ),
            "bm / cluster_n must be a multiple of 8, and bn / cluster, too": (
                self.bm % (8 * self.cluster_n) == 0 and self.bn % (8 * self.cluster) == 0
            ),
            "bn / split_k must be a multiple of 16, the columns that each CTA stores:"
            f" {self.bn} / {self.split_k} = {self.bn / self.split_k:g}": (
                self.split_k == 1 or self.bn % (16 * self.split_k) == 0
            ),
            f"{self.accumulators} accumulators of {self.bn} columns are {columns}; tensor memory"
            f" has {TMEM_COLUMNS}: lower accumulators or bn": columns <= TMEM_COLUMNS,
            f"scheduler must be one of {', '.join(SCHEDULERS)}": self.scheduler in SCHEDULERS,
            f"raster must be one of {', '.join(RASTERS)}": self.raster in RASTERS,
            f"activation must be one of {', '.join(ACTIVATIONS)}": self.activation in ACTIVATIONS,
        }

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster * self.cluster_n * self.split_k

    @property
    def b_rows(self) -> int:
        """Rows of B that one CTA holds: a pair shares a tile."""
        return self.bn // self.cta_group

    # What the epilogue asks (`OutputTiling`): a tile is one block, which one warpgroup stores.

    @property
    def rows(self) -> int:
        """Rows of the output tile of the warpgroup."""
        return self.bm

    @property
    def block_rows(self) -> int:
        """Rows of the accumulator."""
        return self.bm

    @property
    def block_cols(self) -> int:
        """Columns of the accumulator."""
        return self.bn

    @property
    def fragment_layout(self) -> str:
        """Layout of the fragments that are loaded from tensor memory."""
        return "tmem"

    fills_slots: ClassVar[bool] = False
    consumers: ClassVar[int] = 1
    sharers: ClassVar[int] = 1
    swap: ClassVar[str] = "none"


class Sums(Protocol):
    """A block of sums, of which the epilogue takes slices of columns: a fragment, an accumulator in
    tensor memory, or what CTAs that split K have sent.
    """

    def cols(self, start: int, count: int) -> tp.FragmentValue:
        """Columns [start, start + count)."""


# How the sums of an output tile reach the epilogue: in blocks of (block_rows, block_cols), as
# fragments of a layout.
OutputTiling = Sm90Tiling | Sm100Tiling


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
        for line in (LINE, LINE // 2, LINE // 4, LINE // 8)
        if cols % (line // dtype.nbytes) == 0
    )


def slices_of_slot(dtype: tp.DType, cfg: OutputTiling) -> int:
    """Slices of `store_width` that one store slot holds: as many as make a line, where the kernel's
    slots have room for lines; else one.
    """
    return LINE // dtype.nbytes // store_width(dtype, cfg) if cfg.fills_slots else 1
