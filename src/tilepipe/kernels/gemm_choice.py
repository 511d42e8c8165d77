"""Which configuration for which product: a model of a GEMM's time, and the configurations that are worth a try."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import tilepipe as tp
from tilepipe.kernels.gemm_config import BLOCK_ROWS, GemmConfig

SLOT_BYTES = BLOCK_ROWS * 128
BARRIERS = 1024  # bytes left for mbarriers and alignment


@dataclass(frozen=True)
class Problem:
    """A product C (m, n) = A (m, k) · B (n, k)ᵀ, `batch` times.

    Attributes:
        dtype: of A and B. out_dtype: of C. a_order, b_order: "row" (K contiguous) or "col".
        scales: "none", "tensor" or "row". extras: bias, activation or source take registers in the epilogue.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: tp.DType = tp.bfloat16
    out_dtype: tp.DType = tp.bfloat16
    a_order: str = "row"
    b_order: str = "row"
    scales: str = "none"
    extras: bool = False


def choose(
    m: int, n: int, k: int, dtype: tp.DType, out_dtype: tp.DType, *, batch: int = 1, a_order: str = "row", b_order: str = "row",
    scales: str = "none", extras: bool = False, chip: tp.Chip = tp.H200,
) -> GemmConfig:  # fmt: skip
    """The configuration for a product: what tuning has remembered for it, or the one that the model expects to be fastest."""
    problem = Problem(m, n, k, batch, dtype, out_dtype, a_order, b_order, scales, extras)
    return best(problem, chip)


@functools.lru_cache(maxsize=4096)
def best(problem: Problem, chip: tp.Chip = tp.H200) -> GemmConfig:
    """The configuration that the model expects to be fastest."""
    return candidates(problem, chip, 1)[0]


def candidates(problem: Problem, chip: tp.Chip = tp.H200, limit: int | None = None) -> list[GemmConfig]:
    """Configurations that fit the problem and the chip, the fastest by the model first."""
    return sorted(_fitting(problem, chip), key=lambda cfg: predicted_us(problem, cfg, chip))[:limit]


def smem_bytes(cfg: GemmConfig, dtype: tp.DType) -> int:
    """Shared memory of a configuration, about."""
    tiles = cfg.stages * cfg.k_group_size * (cfg.bm + cfg.bn) * cfg.bk * dtype.nbytes
    parts = cfg.bm * cfg.bn * 4 if cfg.split_k > 1 else 0
    return tiles + cfg.store_slots * cfg.consumers * SLOT_BYTES + parts + BARRIERS


def _fitting(problem: Problem, chip: tp.Chip) -> Iterator[GemmConfig]:
    for cfg in _all(128 // problem.dtype.nbytes):
        slots = next((s for s in (2, 1) if _stages(replace(cfg, store_slots=s), problem, chip) >= 3), 0)
        if not slots:
            continue
        cfg = replace(cfg, store_slots=slots)
        yield replace(cfg, stages=min(_stages(cfg, problem, chip), 12))


def _stages(cfg: GemmConfig, problem: Problem, chip: tp.Chip) -> int:
    """Stages that fit in shared memory."""
    fixed = smem_bytes(replace(cfg, stages=2), problem.dtype)
    each = (cfg.bm + cfg.bn) * cfg.bk * problem.dtype.nbytes * cfg.k_group_size
    return 2 + (chip.smem_per_cta - fixed) // each if fixed <= chip.smem_per_cta else 0


@functools.cache
def _all(bk: int) -> list[GemmConfig]:
    """Every configuration worth a look, without its stages."""
    shapes = [("cooperative", 2, bm, bn) for bm, bn in ((128, 256), (256, 128), (128, 320), (256, 160), (256, 192), (128, 192), (128, 128))]
    shapes += [("pingpong", 2, bm, bn) for bm, bn in ((128, 192), (128, 160), (128, 128), (64, 256))]
    shapes += [("cooperative", 2, 128, 96), ("cooperative", 2, 128, 64)]
    shapes += [("cooperative", 1, 64, bn) for bn in (192, 128, 96, 64, 32)]
    found = []
    for schedule, consumers, bm, bn in shapes:
        for cluster, cluster_n, split_k in ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (1, 1, 4)):
            try:
                cfg = GemmConfig(
                    bm=bm, bn=bn, bk=bk, stages=2, consumers=consumers, schedule=schedule, cluster=cluster, cluster_n=cluster_n,
                    split_k=split_k,
                )  # fmt: skip
            except tp.BindError:
                continue
            found.append(cfg)
    return found


def predicted_us(problem: Problem, cfg: GemmConfig, chip: tp.Chip = tp.H200) -> float:
    """Time by the model, microseconds."""
    tiles = -(-problem.m // (cfg.bm * cfg.cluster)) * -(-problem.n // (cfg.bn * cfg.cluster_n)) * problem.batch
    waves = -(-tiles // (chip.sms // cfg.cluster_size))
    steps = -(-problem.k // (cfg.bk * cfg.split_k))
    cycles = waves * (steps * cfg.bm * cfg.bn * cfg.bk / 2048 + 1500)
    return cycles / 1700
