"""How long the GEMM takes on Hopper, by a model that is fitted to measurements. Its equation stands
in `times_constants`: waves of tiles, each with steps that take as long as the slowest of the tensor
cores and the loads, and with an epilogue; memory; and what the power limit allows.

All of it is arithmetic on arrays of one element for each configuration: choosing from hundreds of
them takes some forty operations of NumPy. `model` is the older and coarser one, of one
configuration at a time, by which the kernels that are several products choose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.common.tiling import BLOCK_ROWS, Sm90Tiling, slices_of_slot, store_width
from tilepipe.kernels.gemm.model import L2_BYTES, MMA_K_BYTES, Problem, off_line
from tilepipe.kernels.gemm.times_constants import H200, Constants

PRODUCT_TRAITS = 6
NARROW = 256  # rows or columns of C that one row of tiles has

Floats: TypeAlias = npt.NDArray[np.float64]


def traits(cfg: Sm90Tiling) -> dict[str, float]:
    """What the corrections know of a configuration."""
    kind = f"{cfg.schedule[0]}{cfg.consumers}"
    rows, cols = (cfg.cluster, cfg.cluster_n)[:: 1 if cfg.swap == "none" else -1]
    found = {
        "all": 1.0,
        f"{kind} {cfg.bm}": 1.0,
        f"{kind} {cfg.bm}x{cfg.bn}": 1.0,
        f"{kind} wide": math.log2(cfg.bn / 128),
        f"cluster {rows}x{cols}x{cfg.split_k}": 1.0,
        f"{kind} cluster": math.log2(cfg.cluster_size),
        "turned": float(cfg.swap == "ab"),
        f"{kind} turned": float(cfg.swap == "ab"),
        "deep": math.log2(cfg.stages / 4),
    }
    return {name: x for name, x in found.items() if x}


class Facts(NamedTuple):
    """What the model needs to know of a product: numbers, or, of several products, arrays.

    Attributes:
        extents: rows and columns of C, one above the other.
        k: elements that are multiplied for each element of C.
        batch: how many such products the launch computes.
        loads_off: how far rows of A and B start from lines of 128 bytes: `model.off_line`.
        stores_off: True if rows of C start 16 or 32 bytes off a line of 128 bytes.
        inputs: bytes of A and B.
        results: bytes of C.
        again: bytes of A and B that are loaded from memory a second time: of an operand that
            several rows or columns of tiles read, the more, the larger it is than `L2_BYTES`.
        traits: what the corrections depend on, an element for each trait of the product.
    """

    extents: Floats
    k: Any
    batch: Any
    loads_off: Any
    stores_off: Any
    inputs: Any
    results: Any
    again: Any
    traits: Floats

    @classmethod
    def of(cls, problem: Problem) -> Facts:
        """Those of one product."""
        m, n, k, batch = problem.m, problem.n, problem.k, problem.batch
        nbytes, out = problem.dtype.nbytes, problem.out_dtype.nbytes
        left, right, results = (x * batch for x in (m * k * nbytes, n * k * nbytes, m * n * out))
        again = left * min(1.0, left / L2_BYTES) if n > NARROW else 0.0
        if m > NARROW:
            again += right * min(1.0, right / L2_BYTES)
        loads_off, stores_off = off_line(k * nbytes), off_line(n * out) < 2
        return cls(
            np.array([[m], [n]], dtype=np.float64),
            k,
            batch,
            loads_off,
            stores_off,
            left + right,
            results,
            again,
            np.array([1.0, *map(_scaled, (m, n, k)), loads_off < 3, stores_off]),
        )


def _scaled(extent: int) -> float:
    """About -1 to 1."""
    return min(max(math.log2(extent) - 10.5, -6.0), 5.0) / 4


class Settings:
    """What the model needs to know of configurations: arrays with an element for each.

    Attributes:
        extents: rows and columns of C that a cluster works on at a time.
        parts: bytes of A and of B that each CTA loads in a step; others of its cluster load the
            rest of its tiles, by multicast.
        k: elements of K that a cluster multiplies in a step.
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
        traits: what the corrections depend on: `traits` of each.
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
        self.extents = turned((cfg.bm * cfg.cluster, cfg.bn * cfg.cluster_n) for cfg in configs)
        self.parts = line * turned(
            (cfg.bm / cfg.cluster_n, cfg.bn / cfg.cluster) for cfg in configs
        )
        self.k = column(cfg.bk * cfg.split_k for cfg in configs)
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
        self.splits = np.array([cfg.split_k.bit_length() - 1 for cfg in configs], dtype=int)
        self.traits = [traits(cfg) for cfg in configs]


class Table:
    """What the model knows of configurations before it knows the product."""

    def __init__(self, settings: Settings, model: Constants, extras: bool = False) -> None:
        self.settings, self.model = settings, model
        x = settings
        slower = np.array([1.0, 1.0, model.pair])[np.minimum(x.size, 2).astype(int)]
        slower[x.size > 2] = model.quad
        mma = x.mma / model.tensor_mhz * np.where(x.pingpong, model.pingpong, 1.0)
        self.mma = _eighth(mma * slower)
        known = {name: np.array(weights) for name, weights in model.corrections.items()}
        self.corrections = np.zeros((len(x.traits), PRODUCT_TRAITS))
        for row, each in zip(self.corrections, x.traits, strict=True) if known else ():
            row += sum(value * known[name] for name, value in each.items() if name in known)
        self.corrections[:, 0] += 1.0
        self.parts, self.outside = x.parts * slower, x.parts * slower * model.outside
        self.skews = np.array([*model.skew, 1.0])
        later = np.where(x.size == 1, 1.0, np.where(x.size == 2, *model.later))
        self.in_flight = np.where(x.splits > 0, 1.0, later) * slower / (x.stages - 1)
        self.chip_share = x.size / model.chip_loads
        self.loads = x.size * x.parts.sum(axis=0)
        store = model.store * x.area / (128 * 256) + model.slice * x.slices + model.box * x.boxes
        store *= model.extras if extras else 1.0
        last = store * np.where(x.pingpong, model.hidden, 0.0)
        once = model.start + np.array([0.0, *model.split])[x.splits]
        once += np.where(x.size == 1, 0.0, np.where(x.size == 2, *model.join)) * (x.splits == 0)
        more = model.skewed_store
        self.stores = (
            (store - last + model.wave, (store - last) * more + model.wave),
            (last + once, last * more + once),
        )
        self.step_power = x.size * (
            x.mma / model.mma_power
            + x.filled / model.fill_power
            + x.parts.sum(axis=0) / model.load_power
        )

    @classmethod
    def of(cls, configs: Sequence[Sm90Tiling], problem: Problem, chip: tp.Chip) -> Table:
        """That of configurations for products that are like one but for their extents."""
        settings = Settings(configs, problem.dtype, problem.out_dtype, chip)
        return cls(settings, H200, problem.extras or problem.scales != "none")

    def powers(self, facts: Facts) -> tuple[Floats, Floats]:
        """The fourth powers of what a launch takes by the model, microseconds, and of what the
        power limit allows.

        Limits that act at once are joined by a norm: the largest wins, and near a tie both count.
        Its powers are squares and square roots, which NumPy is fast at; what is raised to a power
        stands in one array, since an operation costs as much as hundreds of elements.
        """
        x, model = self.settings, self.model
        ratios = facts.extents / x.extents
        counts = np.ceil(ratios)
        tiles = counts[0] * counts[1] * facts.batch
        waves = np.ceil(tiles / x.resident)
        busy = tiles * self.chip_share / waves  # CTAs, by what all may load in a microsecond
        steps = np.ceil(facts.k / x.k)
        all_steps = tiles * steps
        missed = facts.inputs / (all_steps * self.loads)
        # a part of the last tiles, shared out among all
        outside = (counts - ratios) / counts
        loaded = self.parts + self.outside * outside
        limits = np.empty((2, *tiles.shape))
        rates = missed * (model.missed / model.sm_loads) + busy + 1 / model.sm_loads
        limits[0] = (loaded[0] + loaded[1]) * rates * self.skews[facts.loads_off]
        limits[1] = (missed * model.far + model.latency) * self.in_flight
        limits = _eighth(limits)
        step = np.sqrt(np.sqrt(np.sqrt(limits[0] + limits[1] + self.mma)))
        each_store, last = (_either(facts.stores_off, pair) for pair in self.stores)
        whole = (facts.inputs + facts.results * model.written) / model.dram
        whole = whole + facts.again / model.again
        times = np.empty((3, *tiles.shape))
        times[0] = waves * (steps * step + each_store) + last
        times[1] = whole * (1 + model.idle) - busy * (
            whole * (model.idle * model.chip_loads / x.sms)
        )
        times[2] = all_steps * self.step_power + (facts.inputs + facts.results) / model.dram_power
        times *= self._factors(facts)
        times *= times
        times *= times
        return times[0] + times[1], times[2]

    def _factors(self, facts: Facts) -> Floats:
        """The corrections."""
        if facts.traits.ndim == 1:
            found: Floats = self.corrections.dot(facts.traits)
        else:  # of each configuration its product
            found = (self.corrections * facts.traits).sum(axis=1)
        return found

    def scores(self, problem: Problem) -> Floats:
        """What orders configurations: a power of the geometric mean of the times without and with
        the power limit.
        """
        time, power = self.powers(Facts.of(problem))
        return time * (time + power)

    def times(self, facts: Facts) -> tuple[Floats, Floats]:
        """Microseconds after a pause, and in steady state."""
        time, power = self.powers(facts)
        return time**0.25, (time + power) ** 0.25


def _eighth(x: Floats) -> Floats:
    x = x * x
    x *= x
    x *= x
    return x


def _either(second: Any, pair: tuple[Floats, Floats]) -> Floats:
    return pair[second] if isinstance(second, bool) else np.where(second, pair[1], pair[0])
