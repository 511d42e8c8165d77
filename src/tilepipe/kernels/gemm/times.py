"""How long the GEMM takes on Hopper, by a model that is fitted to measurements. Its equation stands
in `times_constants`: waves of tiles, each with steps that take as long as the slowest of the tensor
cores and the loads, and with an epilogue; memory; and what the power limit allows.

All of it is arithmetic on arrays of one element for each configuration: choosing from hundreds of
them takes some forty operations of NumPy. `model` is the older and coarser one, of one
configuration at a time, by which the kernels that are several products choose.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.common.tiling import BLOCK_ROWS, Sm90Tiling, slices_of_slot, store_width
from tilepipe.kernels.gemm.model import L2_BYTES, MMA_K_BYTES, Problem, off_line
from tilepipe.kernels.gemm.times_constants import H200, Constants

PRODUCT_TRAITS = 12
REACH = 1.5  # places so far apart share 60 % of a correction
UNIT = 1e4  # µs, of times whose eighth powers float32 shall hold
NARROW = 256  # rows or columns of C that one row of tiles has

Floats: TypeAlias = npt.NDArray[np.float64]


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
        traits: what the corrections depend on, an element for each trait of the product.
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
        found = 1.0, m, n, deep, float(loads_off < 3), float(stores_off), *squares
        return cls(rows, cols, k, batch, loads_off, stores_off, left + right, results, again, found)


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
        self.splits = np.log2(column(cfg.split_k for cfg in configs))
        self.places = [place(cfg) for cfg in configs]


class Table:
    """What the model knows of configurations before it knows the product."""

    def __init__(
        self,
        settings: Settings,
        model: Constants,
        extras: bool = False,
        dtype: type[np.floating[Any]] = np.float64,
    ) -> None:
        def kept(values: npt.ArrayLike) -> npt.NDArray[Any]:
            return np.ascontiguousarray(values, dtype=dtype)

        self.model, self.sms, self.dtype = model, settings.sms, dtype
        x = settings
        shared = np.where(x.splits > 0, 1, np.minimum(x.size, 3)).astype(int) - 1
        mma = x.mma / model.tensor_mhz * np.where(x.pingpong, model.pingpong, 1.0)
        fill, floor = np.array(model.fill)[shared], np.array(model.floor)[shared]
        self.step = kept(mma**8 + (x.filled / fill) ** 8 + floor**8)
        corrections = np.zeros((len(x.places), PRODUCT_TRAITS))
        if model.corrections:
            weights = np.array(list(model.corrections.values()))
            corrections += alike(x.places, list(model.corrections)) @ weights
        corrections[:, 0] += 1.0
        self.corrections = kept(corrections.T / UNIT)
        self.extents, self.k, self.resident = kept(x.extents), kept(x.k), kept(x.resident)
        # what a CTA loads, by the time that takes alone, for each distance of rows from a line
        skews, parts = (*model.skew, 1.0), x.parts / model.sm_loads
        self.outside = tuple(kept(parts * (model.outside * skew)) for skew in skews)
        self.parts = tuple(kept(parts.sum(axis=0) * ((1 + model.outside) * skew)) for skew in skews)
        # by how much other clusters, and bytes that are not in L2, slow loads down
        self.crowd = kept(x.size * (model.sm_loads / model.chip_loads))
        self.new = kept(model.missed / (x.size * x.parts.sum(axis=0)))
        self.wait = kept(model.latency / (x.stages - 1))
        self.far = kept(model.far / model.missed / (x.stages - 1))
        store = model.store * x.area / (128 * 256) + model.slice * x.slices + model.box * x.boxes
        store *= model.extras if extras else 1.0
        last = store * np.where(x.pingpong, model.hidden, 0.0)
        once = model.start + np.interp(x.splits, range(4), (0.0, *model.split))
        once += np.array([0.0, *model.join])[shared]
        once += model.exchange * x.area / (128 * 256) * (1 - 0.5**x.splits)
        skewed = 1.0, model.skewed_store
        self.each_store = tuple(kept((store - last) * skew + model.wave) for skew in skewed)
        self.once = tuple(kept(last * skew + once) for skew in skewed)
        self.step_power = kept(
            x.size
            * (
                x.mma / model.mma_power
                + x.filled / model.fill_power
                + x.parts.sum(axis=0) / model.load_power
            )
        )

    @classmethod
    def of(cls, configs: Sequence[Sm90Tiling], problem: Problem, chip: tp.Chip) -> Table:
        """That of configurations for products that are like one but for their extents."""
        settings = Settings(configs, problem.dtype, problem.out_dtype, chip)
        return cls(settings, H200, problem.extras or problem.scales != "none", np.float32)

    def first(self, count: int) -> Table:
        """The table of the first configurations only."""

        def part(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(part, value))
            array = isinstance(value, np.ndarray)
            return np.ascontiguousarray(value[..., :count]) if array else value

        found = copy.copy(self)
        for name, value in vars(self).items():
            setattr(found, name, part(value))
        return found

    def powers(self, facts: Facts) -> tuple[Floats, Floats]:
        """The fourth powers of what a launch takes by the model, and of what the power limit
        allows, in units of `UNIT`.

        Limits that act at once are joined by a norm: the largest wins, and near a tie both count.
        Its powers are squares and square roots, which NumPy is fast at; what is raised to a power
        stands in one array, since an operation costs as much as hundreds of elements.
        """
        model = self.model
        limits = np.empty_like(self.extents)
        load, wait = limits  # at first, rows and columns of tiles
        np.divide(facts.rows, self.extents[0], out=load)
        np.divide(facts.cols, self.extents[1], out=wait)
        counts = np.ceil(limits)
        limits /= counts  # the part of the rows and columns of tiles that is inside
        limits *= _either(facts.loads_off, self.outside)
        np.add(load, wait, out=load)
        np.subtract(_either(facts.loads_off, self.parts), load, out=load)
        tiles, busy = counts
        tiles *= busy
        if not isinstance(facts.batch, int) or facts.batch > 1:
            tiles *= facts.batch
        waves = tiles / self.resident
        np.ceil(waves, out=waves)
        steps = facts.k / self.k
        np.ceil(steps, out=steps)
        np.divide(tiles, waves, out=busy)
        busy *= self.crowd
        tiles *= steps
        all_steps = tiles
        missed = self.new * facts.inputs
        missed /= all_steps
        np.multiply(missed, self.far, out=wait)
        wait += self.wait
        missed += busy
        missed += 1.0
        load *= missed
        limits *= limits
        limits *= limits
        limits *= limits
        step = np.add(load, wait, out=missed)
        step += self.step
        for _ in range(3):
            np.sqrt(step, out=step)
        whole = (facts.inputs + facts.results * model.written) / model.dram
        whole = whole + facts.again / model.again
        times = np.empty((3, *step.shape), dtype=self.dtype)
        body, memory, power = times
        np.multiply(steps, step, out=body)
        body += _either(facts.stores_off, self.each_store)
        body *= waves
        body += _either(facts.stores_off, self.once)
        idle = model.idle * model.chip_loads / (model.sm_loads * self.sms)
        np.multiply(busy, whole * -idle, out=memory)
        memory += whole * (1 + model.idle)
        np.multiply(all_steps, self.step_power, out=power)
        power += (facts.inputs + facts.results) / model.dram_power
        times *= self._factors(facts)
        times *= times
        times *= times
        body += memory
        return body, power

    def _factors(self, facts: Facts) -> Floats:
        """The corrections."""
        traits = np.array(facts.traits, dtype=self.dtype)
        if traits.ndim == 1:
            found: Floats = traits.dot(self.corrections)
        else:  # of each configuration its product
            found = (self.corrections.T * traits).sum(axis=1)
        return found

    def scores(self, problem: Problem) -> Floats:
        """What orders configurations: the eighth power of the geometric mean of the times without
        and with the power limit, in units of `UNIT`.
        """
        time, power = self.powers(Facts.of(problem))
        power += time
        power *= time
        return power

    def times(self, facts: Facts) -> tuple[Floats, Floats]:
        """Microseconds after a pause, and in steady state."""
        time, power = self.powers(facts)
        return time**0.25 * UNIT, (time + power) ** 0.25 * UNIT


def _either(which: Any, choices: Sequence[Any]) -> Any:
    """One of several, by its place, or, of several products, each its own."""
    return choices[which] if isinstance(which, int) else np.choose(which, choices)
