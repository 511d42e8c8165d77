"""A model of a GEMM's time on Hopper: waves of tiles, each as long as the slowest of the tensor
cores and the ways to them, and its epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.common.tiling import BLOCK_ROWS, Sm90Tiling, store_width
from tilepipe.kernels.gemm import model_data
from tilepipe.kernels.gemm.config import GemmConfig

SLOT_BYTES = BLOCK_ROWS * 128
MMA_K_BYTES = 32  # of K in one wgmma
TMA_PITCH = 16  # bytes of which the distance of rows is a multiple
OFF_LINE = 3, 0, 1, 0, 2, 0, 1, 0  # `off_line` of rows of so many times that, and of 8 more
BARRIERS = 1024  # bytes left for mbarriers and alignment


@dataclass(frozen=True)
class Problem:
    """A product C (m, n) = A (m, k) · B (n, k)ᵀ, `batch` times.

    Attributes:
        dtype: of A and B. out_dtype: of C. a_order, b_order: "row" (K contiguous) or "col".
        scales: "none", "tensor", "row" or "block". extras: bias, activation or source take
            registers in the epilogue. source: a matrix like C is added.
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
    source: bool = False


def smem_bytes(cfg: Sm90Tiling, dtype: tp.DType) -> int:
    """Shared memory of a configuration, about."""
    tiles = cfg.stages * cfg.k_group_size * (cfg.bm + cfg.bn) * cfg.bk * dtype.nbytes
    parts = cfg.bm * cfg.bn * 4 if cfg.split_k > 1 else 0
    slots = cfg.store_slots * cfg.consumers
    if isinstance(cfg, GemmConfig):
        slots += cfg.source_slots * cfg.sharers
    return tiles + slots * SLOT_BYTES + parts + BARRIERS


@dataclass(frozen=True)
class Model:
    """Constants of the older model, for one chip. Times are microseconds; rates are for each
    microsecond; factors multiply a time and have no unit. The equation is `predicted_us`.

    Attributes:
        start: µs that each launch takes besides the rest.
        wave: µs that each wave of tiles takes besides the rest.
        tensor_mhz: cycles of the tensor cores in a microsecond.
        one, three: factors of the wgmmas' time with 1 consumer, and with 3; with 2 it is 1.
        pingpong: factor of the wgmmas' time with schedule "pingpong".
        fill: bytes that are written to the shared memory of one SM.
        chip_loads: bytes that all SMs together load from L2.
        pair, quad: factors of a step along K in clusters of 2 CTAs, and of 4.
        skew: factors of the loads where rows of A and B start 16, 32 or 64 bytes off a line of 128
            bytes; where they start on one, it is 1.
        latency: µs of a load, which the stages in flight share.
        dram: bytes that memory delivers or takes: of A, B and C once, and of A and B a second time
            where several CTAs read them and L2 does not hold them.
        idle: how many times its own time is added to that of memory if no SM were at work.
        store: µs of an epilogue of 128 × 256 elements.
        slice: µs of each store of a warpgroup, of 64 rows.
        skewed_store: factor of the epilogue where rows of C start 16 or 32 bytes off a line.
        hidden: part of each epilogue but the last that runs beside the next tile with ping-pong.
        extras: factor of the epilogue with scales, a bias, a source or an activation.
        single, triple: factors of all steps and epilogues with 1 consumer, and with 3.
        join: µs that a launch takes longer in clusters of 2 CTAs.
        split: µs that a launch takes longer because 2, or 4, CTAs exchange their sums.
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


H200_MODEL = Model(**model_data.H200)  # type: ignore[arg-type]  # a dict of both kinds
# Limits that act at once are joined by a p-norm: with a large p the largest wins, and near a tie
# both count. These, and what L2 keeps of an operand, are not among the constants that the fit
# changes.
STEEP, STEEPER = 6, 16
# In the place of `pair`, which was fitted to products of 16 bits, by what is shared: A by two CTAs
# along N, B by two along M. Of 8 bits at 4096×4096×7168 the same tiles in clusters of 2 took 0.99
# of the time in bursts, and 0.94 in steady state; those of "pingpong" took 1.004 and 1.014 of it at
# 8192×8192×8192 and at 16384×4096×7168, so that theirs is `pair`.
PAIR_OF_8_BITS = {"a": 0.975, "b": 0.98}
L2_BYTES = 30e6  # of an operand that L2 keeps, of the 50 MB of an H200


def off_line(row_bytes: int) -> int:
    """How far rows of so many bytes start from lines of 128 bytes, in memory that TMA takes: 0 for
    16 bytes off, 1 for 32, 2 for 64, 3 for rows that all start on a line.

    TMA wants a pitch of whole 16 bytes, so operations copy other operands to rows that are padded
    to that, and write other results to such rows: the pitch is that of the padded rows.
    """
    return OFF_LINE[-(-row_bytes // TMA_PITCH) % len(OFF_LINE)]


def predicted_us(
    problem: Problem, cfg: Sm90Tiling, chip: tp.Chip = tp.H200, model: Model = H200_MODEL
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


def _step_us(problem: Problem, cfg: Sm90Tiling, ctas: int, model: Model) -> float:
    """Microseconds of one K tile while `ctas` CTAs run: the slowest of the tensor cores and the
    ways to them.
    """
    line = cfg.bk * problem.dtype.nbytes
    mma = cfg.bm / 64 * cfg.bn / 2 * (line / MMA_K_BYTES) / model.tensor_mhz
    mma *= {1: model.one, 2: 1.0, 3: model.three}[cfg.consumers] * (
        model.pingpong if cfg.schedule == "pingpong" else 1.0
    )
    loads = (
        (cfg.bm / cfg.cluster_n + cfg.bn / cfg.cluster)
        * line
        * (*model.skew, 1.0)[off_line(problem.k * problem.dtype.nbytes)]
    )
    filled = (cfg.bm + cfg.bn) * line / model.fill
    limits = mma, filled, loads * ctas / model.chip_loads, model.latency / (cfg.stages - 1)
    pair = model.pair
    if problem.dtype.bits == 8 and cfg.schedule != "pingpong":
        pair = PAIR_OF_8_BITS["a" if cfg.cluster_n == 2 else "b"]
    slower = {1: 1.0, 2: pair}.get(cfg.cluster_size, model.quad)
    return float(sum(x**STEEP for x in limits) ** (1 / STEEP)) * slower


def _store_us(problem: Problem, cfg: Sm90Tiling, model: Model) -> float:
    """Microseconds of one epilogue."""
    width = store_width(problem.out_dtype, cfg)
    slices = cfg.rows / BLOCK_ROWS * (cfg.bn / cfg.split_k / width)
    skew = model.skewed_store if off_line(problem.n * problem.out_dtype.nbytes) < 2 else 1.0
    more = model.extras if problem.extras or problem.scales != "none" else 1.0
    return (model.store * cfg.bm * cfg.bn / (128 * 256) + model.slice * slices) * skew * more
