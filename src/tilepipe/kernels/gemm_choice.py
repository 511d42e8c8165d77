"""Which configuration for which product: a model of a GEMM's time, and the configurations that are worth a try."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import tilepipe as tp
from tilepipe.kernels import tuned
from tilepipe.kernels.gemm_config import BLOCK_ROWS, GemmConfig

LINE = 128  # bytes of K in a tile: a swizzle span
EXTRAS_ACCUMULATOR = 128  # registers of a thread, where the epilogue needs more than usual
SLOT_BYTES = BLOCK_ROWS * 128
ENOUGH_STAGES, MAX_STAGES = 5, 12  # a second store slot is worth less than a fifth stage, and more than a sixth
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
    return tuned.lookup(problem, chip) or best(problem, chip)


@functools.lru_cache(maxsize=4096)
def best(problem: Problem, chip: tp.Chip = tp.H200) -> GemmConfig:
    """The configuration that the model expects to be fastest."""
    return candidates(problem, chip, 1)[0]


def candidates(problem: Problem, chip: tp.Chip = tp.H200, limit: int | None = None) -> list[GemmConfig]:
    """Configurations that fit the problem and the chip, the fastest by the model first."""
    fitting = _fitting(problem.dtype, chip, problem.extras or problem.scales == "row")
    allowed = (cfg for cfg in fitting if _takes_orders(problem, cfg))
    return sorted(allowed, key=lambda cfg: predicted_us(problem, cfg, chip))[:limit]


def smem_bytes(cfg: GemmConfig, dtype: tp.DType) -> int:
    """Shared memory of a configuration, about."""
    tiles = cfg.stages * cfg.k_group_size * (cfg.bm + cfg.bn) * cfg.bk * dtype.nbytes
    parts = cfg.bm * cfg.bn * 4 if cfg.split_k > 1 else 0
    return tiles + cfg.store_slots * cfg.consumers * SLOT_BYTES + parts + BARRIERS


def _takes_orders(problem: Problem, cfg: GemmConfig) -> bool:
    """Whether the parts of a tile that each CTA loads are whole swizzle panels where an operand is contiguous along M or N."""
    orders = (problem.a_order, problem.b_order) if cfg.swap == "none" else (problem.b_order, problem.a_order)
    parts = cfg.bm // cfg.cluster_n, cfg.bn // cfg.cluster
    return all(order == "row" or part % 64 == 0 for order, part in zip(orders, parts, strict=True))


@functools.cache
def _fitting(dtype: tp.DType, chip: tp.Chip, extras: bool) -> list[GemmConfig]:
    """Every configuration that the chip's shared memory has room for, with as many stages as there is room for."""
    found = []
    for cfg in _all(LINE // dtype.nbytes):
        if extras and cfg.rows * cfg.bn // 128 > EXTRAS_ACCUMULATOR:
            continue
        stages, slots = max((min(_stages(replace(cfg, store_slots=s), dtype, chip), ENOUGH_STAGES), s) for s in (1, 2))
        if stages >= 3:
            cfg = replace(cfg, store_slots=slots)
            found.append(replace(cfg, stages=min(_stages(cfg, dtype, chip), MAX_STAGES)))
    return found


def _stages(cfg: GemmConfig, dtype: tp.DType, chip: tp.Chip) -> int:
    """Stages that fit in shared memory."""
    fixed = smem_bytes(replace(cfg, stages=2), dtype)
    each = (cfg.bm + cfg.bn) * cfg.bk * dtype.nbytes * cfg.k_group_size
    return 2 + (chip.smem_per_cta - fixed) // each if fixed <= chip.smem_per_cta else 0


@functools.cache
def _all(bk: int) -> list[GemmConfig]:
    """Every configuration worth a look, without its stages."""
    return [cfg for shape in _shapes() for cluster in _CLUSTERS for swap in ("none", "ab") if (cfg := _config(shape, cluster, swap, bk))]


_CLUSTERS = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (4, 1, 1), (1, 4, 1), (1, 1, 2), (1, 1, 4))  # cluster, cluster_n, split_k


def _shapes() -> Iterator[tuple[str, int, int, int]]:
    """(schedule, consumers, bm, bn)"""
    yield from (("cooperative", 2, 128, bn) for bn in (*range(48, 257, 16), 320))
    yield from (("cooperative", 2, 256, bn) for bn in range(64, 193, 16))
    yield from (("cooperative", 3, 192, bn) for bn in range(64, 209, 16))
    yield from (("cooperative", 1, 64, bn) for bn in range(16, 257, 16))
    yield from (("pingpong", 2, 128, bn) for bn in range(64, 193, 16))
    yield from (("pingpong", 2, 64, bn) for bn in range(96, 257, 32))


def _config(shape: tuple[str, int, int, int], clusters: tuple[int, int, int], swap: str, bk: int) -> GemmConfig | None:
    schedule, consumers, bm, bn = shape
    cluster, cluster_n, split_k = clusters
    if split_k > 1 and (bm * bn > 128 * 128 or schedule == "pingpong"):
        return None
    try:
        return GemmConfig(
            bm=bm, bn=bn, bk=bk, stages=2, consumers=consumers, schedule=schedule, swap=swap, cluster=cluster, cluster_n=cluster_n,
            split_k=split_k,
        )  # fmt: skip
    except tp.BindError:
        return None


# The model: microseconds and bytes a microsecond, fitted to measurements (benchmarks/gemm_model.py).
START, EPILOGUE, L2_SM, L2_CHIP, DRAM = 2.0, 0.8, 80e3, 5.5e6, 4.2e6


def predicted_us(problem: Problem, cfg: GemmConfig, chip: tp.Chip = tp.H200) -> float:
    """Time by the model, microseconds."""
    m, n = (problem.m, problem.n) if cfg.swap == "none" else (problem.n, problem.m)
    tiles = -(-m // (cfg.bm * cfg.cluster)) * -(-n // (cfg.bn * cfg.cluster_n)) * problem.batch
    waves = -(-tiles // chip.resident_clusters(cfg.cluster_size))
    nbytes = problem.dtype.nbytes
    steps = -(-problem.k // (cfg.bk * cfg.split_k))
    mma = cfg.bm / 64 * max(cfg.bn, 32) / 2 * (cfg.bk * nbytes / 32) / 1650
    skew = 1.3 if problem.k * nbytes % 128 else 1.0
    loads = (cfg.bm / cfg.cluster_n + cfg.bn / cfg.cluster) * cfg.bk * nbytes * skew
    step = max(mma, loads / L2_SM)
    body = waves * (steps * step + (0 if cfg.schedule == "pingpong" else EPILOGUE * cfg.bm * cfg.bn / 32768))
    l2 = tiles * cfg.cluster_size * steps * loads / L2_CHIP
    dram = (problem.m * problem.k + problem.n * problem.k + problem.m * problem.n) * nbytes * problem.batch / DRAM
    return START + max(body, l2, dram) + (2.5 if cfg.split_k > 1 else 0) + 0.05 * (cfg.cluster_size - 1)
