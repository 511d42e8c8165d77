"""Which configuration of the blockwise fp8 GEMM for which product: of those worth a try, the one
that is fastest by the model of `times`, for products in groups by an older one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

import tilepipe as tp
from tilepipe.kernels.common import limits
from tilepipe.kernels.common.tiling import BLOCK_ROWS, store_width
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.times import H200 as H200_TIMES, Table

ENOUGH_STAGES, MAX_STAGES = 3, 8
BARRIER_PAIR = 16  # bytes of a stage's two mbarriers
ALIGNMENT = 128  # bytes that the scales of B may be padded by
# Blocks of K that the compiler writes one after the other, and where tiles of 256 rows have many of
# them: so many or more.
UNROLL, LONG_UNROLL, LONG = 4, 8, 48
# Tiles along M that make one band of the raster, where there are no more and K has fewer than LONG
# blocks.
BAND = 16
MMA_AREA = 32  # rows · columns of an SM's tensor cores in a cycle, for a block of K
SMEM_BYTES = 128  # of shared memory that an SM reads or writes in a cycle
L2_BYTES = 6000  # that all SMs read from L2 in a cycle
# Fitted to measurements on an H200. Cycles: of a warpgroup between two of its wgmma groups, and how
# many of them are not hidden by the other warpgroup where each has one group a block; of a launch.
TURN, IDLE, LAUNCH = 200, 130, 8500
# Of the time of a step: with three warpgroups, and where each multiplies twice, along N.
THREE, TWICE = 0.945, 1.03
L2_COST = 0.06  # what reading from L2 adds, of the time it would take alone
STORE = 0.05  # cycles that the last tile's store takes, for each element
TOGETHER = 1500  # cycles that a cluster starts later, where no second wave makes up for it
SPARED = 0.9  # of the time that SMs idle in the last wave: the chip's power is then the others'


C = TypeVar("C", bound=BlockwiseGemmConfig)


@functools.lru_cache(maxsize=4096)
def best(problem: Problem, chip: tp.Chip = tp.H200) -> BlockwiseGemmConfig:
    """The configuration that the model expects to be fastest.

    Raises:
        LimitError: the chip has no room for any.
    """
    configs, table = _known(problem.out_dtype, chip)
    return _for_extents(configs[int(table.us(problem).argmin())], problem)


def candidates(
    problem: Problem, chip: tp.Chip = tp.H200, limit: int | None = None
) -> list[BlockwiseGemmConfig]:
    """Configurations worth a try, the fastest by the model first.

    Raises:
        LimitError: the chip has no room for any.
    """
    configs, table = _known(problem.out_dtype, chip)
    order = np.argsort(table.us(problem), kind="stable")[:limit]
    return [_for_extents(configs[i], problem) for i in order]


def by_cycles(problem: Problem, chip: tp.Chip = tp.H200) -> list[BlockwiseGemmConfig]:
    """Configurations for products in groups, by which the older model was fitted: the fastest by it
    first.

    Raises:
        LimitError: the chip has no room for any.
    """
    fitting = _fitting(_OLDER, problem.out_dtype, chip)
    ranked = sorted(fitting, key=lambda cfg: expected_cycles(problem, cfg, chip))
    return [_for_extents(cfg, problem) for cfg in ranked]


def _for_extents(cfg: BlockwiseGemmConfig, problem: Problem) -> BlockwiseGemmConfig:
    """The configuration with what its time by the model does not depend on."""
    if -(-problem.k // BLOCK) >= LONG:
        return replace(cfg, unroll=LONG_UNROLL) if cfg.bm == 256 else cfg
    return replace(cfg, group=BAND) if -(-problem.m // (cfg.bm * cfg.cluster)) <= BAND else cfg


@functools.lru_cache(maxsize=64)
def _known(out_dtype: tp.DType, chip: tp.Chip) -> tuple[list[BlockwiseGemmConfig], Table]:
    """Every configuration worth a look, and what the model knows of them."""
    fitting = [cfg for cfg in _fitting(_SHAPES, out_dtype, chip) if _may_share(cfg)]
    return fitting, Table(fitting, out_dtype, H200_TIMES, chip)


def _may_share(cfg: BlockwiseGemmConfig) -> bool:
    """False for clusters that share A where these were slower than single CTAs on all products
    that were measured.
    """
    small = cfg.takes == "k" or (cfg.bm == BLOCK and cfg.splits == 1)
    return cfg.cluster_n == 1 or not small


def _fitting(
    shapes: tuple[Settings, ...], out_dtype: tp.DType, chip: tp.Chip
) -> list[BlockwiseGemmConfig]:
    """Every configuration that the chip has room for, with slots for a whole tile where at least
    three stages are left.

    Raises:
        LimitError: the chip has no room for any.
    """
    found = []
    for cfg in _all(shapes):
        if not chip.resident_clusters(cfg.cluster_size):
            continue
        for slots in (cfg.slices(out_dtype), 2, 1):
            least = replace(cfg, store_slots=slots, stages=ENOUGH_STAGES)
            if smem_bytes(least, out_dtype) <= chip.smem_per_cta:
                found.append(filled(least, out_dtype, chip))
                break
    if not found:
        raise tp.LimitError(
            f"no configuration of the blockwise fp8 GEMM fits {chip.name}: {chip.smem_per_cta:,}"
            " bytes of shared memory"
        )
    return found


def _all(shapes: tuple[Settings, ...]) -> Iterator[BlockwiseGemmConfig]:
    """Every configuration of tiles, without its stages and slots."""
    clusters: tuple[Settings, ...] = {"cluster": 1}, {"cluster": 2}, {"cluster_n": 2}
    for shape in shapes:
        for cluster in clusters:
            yield BlockwiseGemmConfig(**shape, **cluster, unroll=UNROLL)


Settings: TypeAlias = dict[str, Any]
_OLDER: tuple[Settings, ...] = (
    {"bm": 256},
    {"bn": 256, "splits": 2},
    {"bm": 192, "consumers": 3},
    {"bn": 192},
    {"bn": 128},
    {"bn": 96},
    {"bn": 64},
    *({"bm": 64, "consumers": 1, "bn": bn} for bn in (128, 112, 64, 32)),
)
_SHAPES: tuple[Settings, ...] = (
    {"bm": 256},
    {"bm": 256, "bn": 112},
    {"bn": 256, "splits": 2},
    *({"bm": 192, "consumers": 3, "bn": bn} for bn in (96, 112, 128)),
    *({"bn": bn} for bn in (48, 64, 80, 96, 112, 128, 144, 160, 192)),
    *({"bm": 64, "consumers": 1, "bn": bn} for bn in (32, 48, 64, 80, 96, 112, 128, 192)),
    *({"bm": 64, "takes": "k", "bn": bn} for bn in (32, 48, 64)),
)


def expected_cycles(
    problem: Problem, cfg: BlockwiseGemmConfig, chip: tp.Chip = tp.H200, more_smem: float = 0.0
) -> float:
    """Time by the model, cycles: waves of tiles, each as long as the slowest of tensor cores,
    shared memory and a warpgroup's own turn from one block of K to the next. `more_smem`: cycles of
    shared memory for a block of K besides those for the tiles.
    """
    rows, cols = -(-problem.m // (cfg.bm * cfg.cluster)), -(-problem.n // (cfg.bn * cfg.cluster_n))
    resident = chip.resident_clusters(cfg.cluster_size)
    tiles = rows * cols / resident
    waves = SPARED * max(tiles, 1.0) + (1 - SPARED) * -(-rows * cols // resident)
    mma = cfg.bm * cfg.bn / MMA_AREA
    read = cfg.consumers * cfg.pieces * (BLOCK_ROWS + cfg.piece_cols) * BLOCK
    smem = (read + (cfg.bm + cfg.bn) * BLOCK) / SMEM_BYTES + more_smem
    turn = cfg.pieces * (BLOCK_ROWS * cfg.piece_cols / MMA_AREA + TURN)
    waiting = mma + (IDLE if cfg.consumers * cfg.pieces == 2 else 0)
    l2 = (
        (cfg.bm / cfg.cluster_n + cfg.bn / cfg.cluster)
        * BLOCK
        * min(rows * cols, resident)
        * cfg.cluster_size
        / L2_BYTES
    )
    factor = (THREE if cfg.consumers == 3 else 1.0) * (TWICE if cfg.splits == 2 else 1.0)
    step = max(mma, smem, turn, waiting) * factor + L2_COST * l2
    alone = cfg.cluster_size > 1 and rows * cols <= resident
    start = LAUNCH + (TOGETHER if alone else 0) + STORE * cfg.bm * cfg.bn
    return start + waves * -(-problem.k // BLOCK) * step


def smem_bytes(cfg: BlockwiseGemmConfig, out_dtype: tp.DType) -> int:
    """Shared memory that a configuration takes, bytes."""
    slot = BLOCK_ROWS * store_width(out_dtype, cfg) * out_dtype.nbytes
    parts = cfg.bm * cfg.bn * tp.float32.nbytes if cfg.takes == "k" else 0
    slots = cfg.store_slots * cfg.consumers * slot
    held = cfg.held_scales * tp.float32.nbytes
    return cfg.stages * _stage_bytes(cfg) + slots + parts + held + ALIGNMENT


def _stage_bytes(cfg: BlockwiseGemmConfig) -> int:
    """Bytes of one stage: tiles, scales and barriers."""
    scales = (cfg.bm + cfg.staged_scales) * tp.float32.nbytes
    return ((cfg.bm + cfg.bn) * BLOCK + scales) * cfg.blocks_of_stage + BARRIER_PAIR


def filled(cfg: C, out_dtype: tp.DType, chip: tp.Chip = tp.H200) -> C:
    """The configuration with as many stages as fit, up to 8.

    Raises:
        LimitError: not even two fit.
    """
    each = _stage_bytes(cfg)
    least = smem_bytes(cfg, out_dtype) + (2 - cfg.stages) * each
    room = chip.smem_per_cta - least
    if room < 0:
        raise tp.LimitError(
            f"two stages of {cfg.bm}×{cfg.bn} tiles take {least:,} bytes of shared memory; a CTA of"
            f" {chip.name} has {chip.smem_per_cta:,}: lower bm, bn or store_slots"
        )
    return replace(cfg, stages=min(2 + room // each, MAX_STAGES))


def check_room(cfg: BlockwiseGemmConfig, out_dtype: tp.DType, chip: tp.Chip) -> None:
    """Raises BindError where a CTA has not the shared memory that a configuration takes."""
    limits.check_room(smem_bytes(cfg, out_dtype), chip)


TUNABLE = Tunable(
    "gemm_blockwise",
    Problem,
    BlockwiseGemmConfig,
    best,
    candidates,
    lambda cfg, problem, chip: check_room(cfg, problem.out_dtype, chip),
    ("activation",),
)
