"""Which configuration for which product: a model of a GEMM's time, and the configurations that are
worth a try.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import tilepipe as tp
from tilepipe.kernels.gemm import tuned
from tilepipe.kernels.gemm.config import BLOCK_ROWS, GemmConfig, store_width

SPAN = 128  # bytes of K in a tile: a swizzle span
# registers of a thread, where the epilogue needs more than usual
EXTRAS_ACCUMULATOR, SCALED_ACCUMULATOR = 128, 160
SLOT_BYTES = BLOCK_ROWS * 128
# a second store slot is worth less than a fifth stage, and more than a sixth
ENOUGH_STAGES, MAX_STAGES = 5, 12
MMA_K_BYTES = 32  # of K in one wgmma
BARRIERS = 1024  # bytes left for mbarriers and alignment


@dataclass(frozen=True)
class Problem:
    """A product C (m, n) = A (m, k) · B (n, k)ᵀ, `batch` times.

    Attributes:
        dtype: of A and B. out_dtype: of C. a_order, b_order: "row" (K contiguous) or "col".
        scales: "none", "tensor" or "row". extras: bias, activation or source take registers in the
            epilogue.
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
    """The configuration for a product: what tuning has remembered for it, or the one that the model
    expects to be fastest.
    """
    problem = Problem(m, n, k, batch, dtype, out_dtype, a_order, b_order, scales, extras)
    remembered = tuned.lookup(problem, chip)
    return (
        remembered
        if remembered is not None and _takes_orders(problem, remembered)
        else best(problem, chip)
    )


@functools.lru_cache(maxsize=4096)
def best(problem: Problem, chip: tp.Chip = tp.H200) -> GemmConfig:
    """The configuration that the model expects to be fastest.

    Raises:
        LimitError: the chip has no room for any.
    """
    found = candidates(problem, chip, 1)
    if not found:
        raise tp.LimitError(
            f"no configuration of the GEMM fits {chip.name}, whose CTAs have"
            f" {chip.smem_per_cta:,} bytes of shared memory"
        )
    return found[0]


def candidates(
    problem: Problem, chip: tp.Chip = tp.H200, limit: int | None = None
) -> list[GemmConfig]:
    """Configurations that fit the problem and the chip, the fastest by the model first."""
    allowed = (
        cfg
        for cfg in _fitting(problem.dtype, chip)
        if _takes_orders(problem, cfg) and _spares_registers(problem, cfg)
    )
    return sorted(allowed, key=lambda cfg: predicted_us(problem, cfg, chip))[:limit]


def smem_bytes(cfg: GemmConfig, dtype: tp.DType) -> int:
    """Shared memory of a configuration, about."""
    tiles = cfg.stages * cfg.k_group_size * (cfg.bm + cfg.bn) * cfg.bk * dtype.nbytes
    parts = cfg.bm * cfg.bn * 4 if cfg.split_k > 1 else 0
    return tiles + cfg.store_slots * cfg.consumers * SLOT_BYTES + parts + BARRIERS


def _takes_orders(problem: Problem, cfg: GemmConfig) -> bool:
    """Whether the parts of a tile that each CTA loads are whole swizzle panels where an operand is
    contiguous along M or N.
    """
    orders = (
        (problem.a_order, problem.b_order)
        if cfg.swap == "none"
        else (problem.b_order, problem.a_order)
    )
    parts = cfg.bm // cfg.cluster_n, cfg.bn // cfg.cluster
    return all(order == "row" or part % 64 == 0 for order, part in zip(orders, parts, strict=True))


def _spares_registers(problem: Problem, cfg: GemmConfig) -> bool:
    """Whether the accumulator leaves registers for what the epilogue does with it."""
    used = cfg.rows * cfg.bn // 128
    if problem.extras:
        return used <= EXTRAS_ACCUMULATOR
    return problem.scales != "row" or cfg.swap == "ab" or used <= SCALED_ACCUMULATOR


@functools.cache
def _fitting(dtype: tp.DType, chip: tp.Chip) -> list[GemmConfig]:
    """Every configuration that the chip has room for, with as many stages as fit in its shared
    memory.
    """
    found = []
    for cfg in _all(SPAN // dtype.nbytes):
        stages, slots = max(
            (min(_stages(replace(cfg, store_slots=s), dtype, chip), ENOUGH_STAGES), s)
            for s in (1, 2)
        )
        if stages >= 3 and chip.resident_clusters(cfg.cluster_size):
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
    return [
        cfg
        for shape in _shapes()
        for cluster in _CLUSTERS
        for swap in ("none", "ab")
        if (cfg := _config(shape, cluster, swap, bk))
    ]


# cluster, cluster_n, split_k
_CLUSTERS = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (4, 1, 1), (1, 4, 1), (1, 1, 2), (1, 1, 4))


def _shapes() -> Iterator[tuple[str, int, int, int]]:
    """(schedule, consumers, bm, bn)"""
    yield from (("cooperative", 2, 128, bn) for bn in (*range(48, 257, 16), 320))
    yield from (("cooperative", 2, 256, bn) for bn in range(64, 193, 16))
    yield from (("cooperative", 3, 192, bn) for bn in range(64, 193, 16))
    yield from (("cooperative", 1, 64, bn) for bn in range(16, 257, 16))
    yield from (("pingpong", 2, 128, bn) for bn in range(64, 193, 16))
    yield from (("pingpong", 2, 64, bn) for bn in range(96, 257, 32))


def _config(
    shape: tuple[str, int, int, int], clusters: tuple[int, int, int], swap: str, bk: int
) -> GemmConfig | None:
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


@dataclass(frozen=True)
class Model:
    """Constants of the model of a GEMM's time on a chip, fitted to measurements
    (benchmarks/gemm_model.py): they explain times, and are no properties of the chip. Microseconds,
    and bytes a microsecond.

    Attributes:
        start: of a launch. wave: of each tile that a CTA works on, beside the rest.
        tensor_mhz: clock of the tensor cores. one, three, pingpong: how much longer their work
            takes with 1 and 3 consumers, or ping-pong.
        fill: into one SM's shared memory. chip_loads: from L2, to all SMs. pair, quad: how much
            longer a K tile takes in clusters of 2 and 4.
        skew: how much longer loads take of rows that are 16, 32 or 64 bytes off a 128-byte line.
        latency: of a load, divided by the stages in flight.
        dram: A, B and C once, and A and B a second time where several CTAs read them and L2 does
            not hold them. idle: how much longer with no SM at work.
        store: of an epilogue of 128 × 256. slice: of 64 rows of it. skewed_store: how much longer,
            where rows of C are 16 or 32 bytes off a line. hidden: part of it that ping-pong hides.
            extras: how much longer with scales, bias, ...
        single, triple: factors for 1 and 3 consumers. join: more, of a cluster of 2. split: more,
            of exchanging sums between 2 and 4 CTAs.
    """

    start: float
    wave: float
    tensor_mhz: float
    one: float
    three: float
    pingpong: float
    fill: float
    chip_loads: float
    pair: float
    quad: float
    skew: tuple[float, float, float]
    latency: float
    dram: float
    idle: float
    store: float
    slice: float
    skewed_store: float
    hidden: float
    extras: float
    single: float
    triple: float
    join: float
    split: tuple[float, float]


H200_MODEL = Model(
    start=1.114, wave=0.143, tensor_mhz=2090.0, one=1.290, three=1.441, pingpong=1.164, fill=115.9e3, chip_loads=20.77e6, pair=1.020,
    quad=0.976, skew=(3.653, 2.650, 3.482), latency=1.134, dram=6.33e6, idle=1.313, store=3.467, slice=0.094, skewed_store=1.084,
    hidden=0.768, extras=2.6, single=0.970, triple=0.899, join=0.448, split=(0.0, 2.113),
)  # fmt: skip
STEEP, STEEPER = 6, 16  # of how the larger of several limits wins
L2_BYTES = 30e6  # what L2 keeps of an operand


def _off_line(nbytes: int) -> int:
    """How far rows of so many bytes are from 128-byte lines: 0 for 16 bytes, 1 for 32, 2 for 64, 3
    where they are not.
    """
    return min((nbytes & -nbytes).bit_length() - 5, 3)


def predicted_us(
    problem: Problem, cfg: GemmConfig, chip: tp.Chip = tp.H200, model: Model = H200_MODEL
) -> float:
    """Time by the model, microseconds."""
    size = cfg.cluster_size
    m, n = (problem.m, problem.n) if cfg.swap == "none" else (problem.n, problem.m)
    rows, cols = -(-m // (cfg.bm * cfg.cluster)), -(-n // (cfg.bn * cfg.cluster_n))
    tiles = rows * cols * problem.batch
    resident = chip.resident_clusters(size)
    waves = -(-tiles // resident)
    ctas = min(tiles, resident) * size
    store = _store_us(problem, cfg, model)
    hidden = model.hidden if cfg.schedule == "pingpong" else 0.0  # of every epilogue but the last
    steps = -(-problem.k // (cfg.bk * cfg.split_k))
    body = (
        waves * (steps * _step_us(problem, cfg, ctas, model) + store * (1 - hidden))
        + store * hidden
    )
    body *= {1: model.single, 2: 1.0, 3: model.triple}[cfg.consumers]
    left, right = (x * problem.k * problem.dtype.nbytes * problem.batch for x in (m, n))
    once = left + right + m * n * problem.out_dtype.nbytes * problem.batch
    again = sum(
        x * min(1.0, x / L2_BYTES) for x, readers in ((left, cols), (right, rows)) if readers > 1
    )
    memory = (once + again) / model.dram * (1 + model.idle * max(0, chip.sms - ctas) / chip.sms)
    body = float((body**STEEPER + memory**STEEPER) ** (1 / STEEPER))
    exchange = model.split[cfg.split_k > 2] if cfg.split_k > 1 else 0.0
    return model.start + body + waves * model.wave + exchange + (model.join if size == 2 else 0.0)


def _step_us(problem: Problem, cfg: GemmConfig, ctas: int, model: Model) -> float:
    """Of one K tile: what is slowest of the tensor cores and the ways to them, while `ctas` CTAs
    run.
    """
    line = cfg.bk * problem.dtype.nbytes
    mma = cfg.bm / 64 * cfg.bn / 2 * (line / MMA_K_BYTES) / model.tensor_mhz
    mma *= {1: model.one, 2: 1.0, 3: model.three}[cfg.consumers] * (
        model.pingpong if cfg.schedule == "pingpong" else 1.0
    )
    loads = (
        (cfg.bm / cfg.cluster_n + cfg.bn / cfg.cluster)
        * line
        * (*model.skew, 1.0)[_off_line(problem.k * problem.dtype.nbytes)]
    )
    filled = (cfg.bm + cfg.bn) * line / model.fill
    limits = mma, filled, loads * ctas / model.chip_loads, model.latency / (cfg.stages - 1)
    slower = {1: 1.0, 2: model.pair}.get(cfg.cluster_size, model.quad)
    return float(sum(x**STEEP for x in limits) ** (1 / STEEP)) * slower


def _store_us(problem: Problem, cfg: GemmConfig, model: Model) -> float:
    """Of one epilogue."""
    width = store_width(problem.out_dtype, cfg)
    slices = cfg.rows / BLOCK_ROWS * (cfg.bn / cfg.split_k / width)
    skew = model.skewed_store if _off_line(problem.n * problem.out_dtype.nbytes) < 2 else 1.0
    more = model.extras if problem.extras or problem.scales != "none" else 1.0
    return (model.store * cfg.bm * cfg.bn / (128 * 256) + model.slice * slices) * skew * more
