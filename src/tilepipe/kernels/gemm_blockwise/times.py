"""How long the blockwise fp8 GEMM takes on Hopper, by a model that is fitted to measurements.

    time = start + joined + (body^8 + memory^8)^(1/8)
    body = waves · (blocks of K · step + epilogue)
    step = (mma^8 + shared^8 + filled^8 + chain^8 + loaded^8)^(1/8), times what clusters, three
        warpgroups, two wgmma along N and the choice among several scales of B take

It is arithmetic on arrays with an element for each configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.common.tiling import BLOCK_ROWS, store_width
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig

Floats: TypeAlias = npt.NDArray[np.float64]
MMA_AREA = 32  # rows · columns that an SM multiplies in a cycle, for a block of K
SMEM_BYTES, FILL_BYTES = 128, 64  # that shared memory reads or writes, and is filled by, in a cycle
POWER = 8  # of the sums of limits that act at once: the largest wins
TILE = 256 * 128  # elements that a store is measured by


@dataclass(frozen=True)
class Constants:
    """Times are microseconds; rates are for each microsecond; factors multiply a time.

    Attributes:
        start: of a launch.
        mma, shared, filled, chain: cycles of the tensor cores, of shared memory, of the way into
            it, and of a warpgroup. loaded: bytes that all SMs load from L2.
        turn: cycles of a warpgroup between two of its wgmma groups.
        select: factor of a step whose columns choose among scales of B in groups of 16, more than
            1; half of that in groups of 32.
        pair_m, pair_n: factors of a step in clusters along M, and along N. pair_k: along M, where
            the warpgroups take turns along K.
        three, twice: factors of a step with three warpgroups, and with two wgmma along N.
        spared: of the time that SMs idle in the last wave, what the others gain: the chip's power.
        epilogue: of a wave of tiles. store: of an epilogue of 256 × 128 elements. slice: of each
            store of a warpgroup.
        joined: of a launch in clusters without a second wave. halves: of adding up what two
            warpgroups have.
        dram: bytes that memory delivers or takes. idle: how many times its own time is added to
            that of memory if no SM were at work.
    """

    start: float
    mma: float
    shared: float
    filled: float
    chain: float
    loaded: float
    turn: float
    select: float
    pair_m: float
    pair_n: float
    pair_k: float
    three: float
    twice: float
    spared: float
    epilogue: float
    store: float
    slice: float
    joined: float
    halves: float
    dram: float
    idle: float


class Table:
    """What the model knows of configurations before it knows the product."""

    def __init__(
        self,
        configs: Sequence[BlockwiseGemmConfig],
        out_dtype: tp.DType,
        model: Constants,
        chip: tp.Chip = tp.H200,
    ) -> None:
        def of(name: str) -> Floats:
            return np.array([getattr(x, name) for x in configs], dtype=np.float64)

        self._model, self._sms = model, chip.sms
        bm, bn, every = of("bm"), of("bn"), of("blocks_of_stage")
        pieces, cols = of("pieces"), of("piece_cols")
        self._size = of("cluster_size")
        self._resident = np.array([chip.resident_clusters(x.cluster_size) for x in configs])
        self._rows, self._cols = bm * of("cluster"), bn * of("cluster_n")
        read = of("consumers") / every * pieces * (BLOCK_ROWS + cols) * BLOCK
        copied = (bm + bn) * BLOCK
        limits = (
            bm * bn / MMA_AREA / model.mma,
            (read + copied) / SMEM_BYTES / model.shared,
            copied / FILL_BYTES / model.filled,
            pieces * (BLOCK_ROWS * cols / MMA_AREA + model.turn) / every / model.chain,
        )
        self._limits = sum((x**POWER for x in limits), np.zeros_like(bm))
        loads = (bm / of("cluster_n") + bn / of("cluster")) * BLOCK * self._size
        self._loads = loads / model.loaded
        factor = np.where(of("consumers") == 3, model.three, 1.0)
        factor *= np.where(of("splits") == 2, model.twice, 1.0)
        pair = np.where(every > 1, model.pair_k, model.pair_m)
        factor *= np.where(of("cluster") > 1, pair, 1.0)
        factor *= np.where(of("cluster_n") > 1, model.pair_n, 1.0)
        chosen = np.array([_chosen_groups(x) for x in configs])
        self._factor = factor * (1 + (model.select - 1) * chosen)
        slices = np.array(
            [x.rows // BLOCK_ROWS * x.bn / store_width(out_dtype, x) for x in configs]
        )
        self._epilogue = model.epilogue + model.store * bm * bn / TILE + model.slice * slices
        self._joined = np.where(self._size > 1, model.joined, 0.0)
        self._once = model.start + np.where(every > 1, model.halves, 0.0)

    def us(self, problem: Problem) -> Floats:
        """The time of each configuration, microseconds."""
        model, p = self._model, problem
        clusters = np.ceil(p.m / self._rows) * np.ceil(p.n / self._cols)
        share = clusters / self._resident
        waves = model.spared * np.maximum(share, 1.0) + (1 - model.spared) * np.ceil(share)
        running = np.minimum(clusters, self._resident)
        step = (self._limits + (running * self._loads) ** POWER) ** (1 / POWER) * self._factor
        body = waves * (-(-p.k // BLOCK) * step + self._epilogue)
        moved = p.m * p.k + p.n * p.k + p.m * p.n * p.out_dtype.nbytes
        idle = np.maximum(1 - running * self._size / self._sms, 0.0)
        memory = moved / model.dram * (1 + model.idle * idle)
        once = self._once + np.where(share <= 1, self._joined, 0.0)
        found: Floats = once + (body**POWER + memory**POWER) ** (1 / POWER)
        return found


def _chosen_groups(cfg: BlockwiseGemmConfig) -> float:
    """How finely columns choose among scales of B: 1 in groups of 16, 0 where a tile has them in
    fixed places.
    """
    fixed: Any = BLOCK % cfg.bn == 0 or cfg.bn % BLOCK == 0
    return 0.0 if fixed else 16 / min(cfg.scale_cols, BLOCK)


# Fitted to measurements of bursts on an H200 by `benchmarks/gemm_blockwise_fit.py`.
H200 = Constants(
    start=2.308,
    mma=1619.0,
    shared=1846.0,
    filled=1745.0,
    chain=1642.0,
    loaded=14.4e6,
    turn=200.6,
    select=1.103,
    pair_m=1.035,
    pair_n=0.9905,
    pair_k=0.9517,
    three=1.039,
    twice=1.029,
    spared=0.2289,
    epilogue=0.3052,
    store=0.9705,
    slice=0.05369,
    joined=0.4782,
    halves=0.3722,
    dram=4.321e6,
    idle=0.4672,
)
