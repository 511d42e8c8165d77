"""What the model of `times` needs to know: of a product, `Facts`; of configurations, `Settings`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.common.tiling import BLOCK_ROWS, Sm90Tiling, slices_of_slot, store_width
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.model import L2_BYTES, MMA_K_BYTES, Problem, off_line

PRODUCT_TRAITS = 12
REACH = 1.5  # places so far apart share 60 % of a correction
NARROW = 256  # rows or columns of C that one row of tiles has

Floats: TypeAlias = npt.NDArray[np.float64]


def parts_of_k(cfg: Sm90Tiling) -> int:
    """Parts of K that meet in global memory."""
    return cfg.k_parts if isinstance(cfg, GemmConfig) else 1


def place(cfg: Sm90Tiling) -> tuple[float, ...]:
    """Where a configuration stands among others: its corrections are like those of its neighbours.
    The factors say how far apart two choices are.
    """
    rows, cols = (cfg.cluster, cfg.cluster_n)[:: 1 if cfg.swap == "none" else -1]
    found = (
        math.log2(cfg.bm),
        math.log2(cfg.bn),
        cfg.consumers,
        1.4 * (cfg.schedule == "pingpong"),
        0.7 * math.log2(rows),
        0.7 * math.log2(cols),
        math.log2(cfg.split_k),
        0.5 * (cfg.swap == "ab"),
        0.7 * math.log2(cfg.stages),
        0.5 * cfg.store_slots,
        math.log2(cfg.bm * cfg.bn),
        math.log2(parts_of_k(cfg)),
    )
    return tuple(round(x, 3) for x in found)


def alike(places: npt.ArrayLike, others: npt.ArrayLike) -> Floats:
    """How near each place is to each of some others: 1 for the same, less for others."""
    y = np.asarray(others, dtype=np.float64)
    x = np.asarray(places, dtype=np.float64).reshape(-1, y.shape[1])  # which may be none
    apart = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1) - 2 * x @ y.T
    found: Floats = np.exp(-np.maximum(apart, 0.0) / (2 * REACH**2))
    return found


class Facts(NamedTuple):
    """What the model needs to know of a product: numbers, or, of several products, arrays.

    Attributes:
        rows, cols: of C.
        k: elements that are multiplied for each element of C.
        batch: how many such products the launch computes.
        loads_off: how far rows of A and B start from lines of 128 bytes: `model.off_line`.
        stores_off: True if rows of C start 16 or 32 bytes off a line of 128 bytes.
        inputs: bytes of A and B.
        results: bytes of C.
        again: bytes of A and B that are loaded from memory a second time: of an operand that
            several rows or columns of tiles read, the more, the larger it is than `L2_BYTES`.
        traits: what the corrections depend on: a number, or an array, for each trait of the
            product.
    """

    rows: Any
    cols: Any
    k: Any
    batch: Any
    loads_off: Any
    stores_off: Any
    inputs: Any
    results: Any
    again: Any
    traits: Any

    @classmethod
    def of(cls, problem: Problem) -> Facts:
        """Those of one product."""
        rows, cols, k, batch = problem.m, problem.n, problem.k, problem.batch
        nbytes, out = problem.dtype.nbytes, problem.out_dtype.nbytes
        left, right = rows * k * nbytes * batch, cols * k * nbytes * batch
        again = left * min(1.0, left / L2_BYTES) if cols > NARROW else 0.0
        if rows > NARROW:
            again += right * min(1.0, right / L2_BYTES)
        loads_off, stores_off = off_line(k * nbytes), off_line(cols * out) < 2
        results = rows * cols * out * batch
        m, n, deep = _scaled(rows), _scaled(cols), _scaled(k)
        squares = m * m, n * n, deep * deep, m * n, m * deep, n * deep
        found = 1.0, m, n, deep, loads_off < 3, stores_off, *squares
        return cls(rows, cols, k, batch, loads_off, stores_off, left + right, results, again, found)


def _scaled(extent: int) -> float:
    """About -1 to 1."""
    found = math.log2(extent) - 10.5
    if -6.0 < found < 5.0:  # faster than min and max
        return found / 4
    return -1.5 if found < 0 else 1.25


class Settings:
    """What the model needs to know of configurations: arrays with an element for each.

    Attributes:
        extents: rows and columns of C that a CTA works on at a time.
        clusters: CTAs of a cluster along the rows and along the columns of C.
        parts: bytes of A and of B that each CTA loads in a step; others of its cluster load the
            rest of its tiles, by multicast.
        k: elements of K that are multiplied in a step, by all that share a tile.
        size: CTAs of a cluster.
        resident: clusters that run at once.
        mma: cycles of the tensor cores in a step.
        filled: bytes of A and B that a step writes to the shared memory of a CTA.
        stages: of the ring of loads.
        pingpong: True with schedule "pingpong".
        area: elements of C that a CTA works on at a time.
        boxes: TMA stores of a warpgroup in an epilogue.
        slices: store slots that a warpgroup fills in an epilogue.
        splits: the binary logarithm of split_k.
        k_parts: parts of K that meet in global memory.
        places: what the corrections depend on: `place` of each.
    """

    def __init__(
        self, configs: Sequence[Sm90Tiling], dtype: tp.DType, out_dtype: tp.DType, chip: tp.Chip
    ) -> None:
        def column(values: Iterable[float]) -> Floats:
            return np.array(list(values), dtype=np.float64)

        def turned(pairs: Iterable[tuple[float, float]]) -> Floats:
            """Of A and B, or of rows and columns of C, where these are those of Cᵀ."""
            found = [
                pair if cfg.swap == "none" else pair[::-1]
                for cfg, pair in zip(configs, pairs, strict=True)
            ]
            return np.array(found, dtype=np.float64).reshape(-1, 2).T.copy()

        self.sms = chip.sms
        line = column(cfg.bk * dtype.nbytes for cfg in configs)
        self.extents = turned((cfg.bm, cfg.bn) for cfg in configs)
        self.clusters = turned((cfg.cluster, cfg.cluster_n) for cfg in configs)
        self.parts = line * turned(
            (cfg.bm / cfg.cluster_n, cfg.bn / cfg.cluster) for cfg in configs
        )
        self.k_parts = column(map(parts_of_k, configs))
        self.k = self.k_parts * column(cfg.bk * cfg.split_k for cfg in configs)
        self.size = column(cfg.cluster_size for cfg in configs)
        self.resident = column(chip.resident_clusters(cfg.cluster_size) for cfg in configs)
        self.mma = line / MMA_K_BYTES * column(cfg.bm / 64 * cfg.bn / 2 for cfg in configs)
        self.filled = line * column(cfg.bm + cfg.bn for cfg in configs)
        self.stages = column(cfg.stages for cfg in configs)
        self.pingpong = np.array([cfg.schedule == "pingpong" for cfg in configs], dtype=bool)
        self.area = column(cfg.bm * cfg.bn for cfg in configs)
        # what TMA stores at a time, and how often the warpgroups meet for it
        self.boxes = column(
            cfg.rows / BLOCK_ROWS * cfg.bn / cfg.split_k / store_width(out_dtype, cfg)
            for cfg in configs
        )
        in_slot = column(slices_of_slot(out_dtype, cfg) for cfg in configs)
        self.slices = np.ceil(self.boxes / in_slot)
        self.splits = np.log2(column(cfg.split_k for cfg in configs))
        self.places = [place(cfg) for cfg in configs]
