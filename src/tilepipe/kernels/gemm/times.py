"""How long the GEMM takes on Hopper, by a model that is fitted to measurements. Its equation stands
in `times_constants`: waves of tiles, each with steps that take as long as the slowest of the tensor
cores and the loads, and with an epilogue; memory; and what the power limit allows.

All of it is arithmetic on arrays of one element for each configuration: choosing from hundreds of
them takes some fifty operations of NumPy. `model` is the older and coarser one, of one
configuration at a time, by which the kernels that are several products choose.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.common.tiling import Sm90Tiling
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm.times_constants import H200, Constants
from tilepipe.kernels.gemm.times_facts import PRODUCT_TRAITS, Facts, Floats, Settings, alike

UNIT = 1e4  # µs, of times whose eighth powers float32 shall hold
NUMBERS = 7  # that `Table.powers` takes of a product besides the traits


class Scratch:
    """Arrays that `Table.powers` works in. They are kept, since making them takes as long as ten of
    its operations.

    Attributes:
        many: True if each configuration has a product of its own.
        rows: an array for each quantity, with an element for each configuration.
        extents, counts: the first three of `rows`, and the next three.
        inside, tiles: the first two of each. times: the last four of `rows`.
        given: what is known of the product. Of one, its elements are arrays without an axis in
            `numbers`: an operation with a plain number costs as much as two.
        traits: the last elements of `given`.
    """

    def __init__(self, count: int, dtype: type[np.floating[Any]], many: bool = False) -> None:
        rows = np.empty((10, count), dtype=dtype)
        self.many, self.rows = many, tuple(rows)
        self.extents, self.counts, self.times = rows[0:3], rows[3:6], rows[6:10]
        self.inside, self.tiles = rows[0:2], rows[3:5]
        size = NUMBERS + PRODUCT_TRAITS
        self.given = np.empty((size, count) if many else size, dtype=dtype)
        self.numbers = tuple(self.given[i, ...] for i in range(NUMBERS))
        self.traits = self.given[NUMBERS:]


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

        self.model, self.dtype, self.free = model, dtype, list[Scratch]()
        self.idle = model.idle * model.chip_loads / (model.sm_loads * settings.sms)
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
        self.rows, self.cols = map(kept, x.extents)
        self.shares = kept(1.0 / x.clusters)
        self.k = kept(x.k)
        self.resident = kept(x.resident / x.k_parts)  # tiles that all parts are at work on
        # what a CTA loads, by the time that takes alone, for each distance of rows from a line: if
        # all rows are outside of the operands, and how much less if those of A, or of B, are not
        skews, parts = (*model.skew, 1.0), x.parts / model.sm_loads
        outside = np.array(model.outside)[np.minimum(shared, 1)]
        self.parts = tuple(kept(parts.sum(axis=0) * ((1 + outside) * skew)) for skew in skews)
        self.inside = tuple(kept(parts * (-outside * skew)) for skew in skews)
        # by how much other clusters, and bytes that are not in L2, slow loads down
        self.ones = kept(np.ones_like(x.size))
        self.crowd = kept(x.k_parts * x.size * (model.sm_loads / model.chip_loads))
        self.new = kept(model.missed / (x.k_parts * x.size * x.parts.sum(axis=0)))
        self.wait = kept(model.latency / (x.stages - 1))
        self.far = kept(model.far / model.missed / (x.stages - 1))
        store = model.store * x.area / (128 * 256) + model.slice * x.slices + model.box * x.boxes
        store *= model.extras if extras else 1.0
        last = store * np.where(x.pingpong, model.hidden, 0.0)
        once = model.start + np.interp(x.splits, range(4), (0.0, *model.split))
        once += np.array([0.0, *model.join])[shared]
        once += model.exchange * x.area / (128 * 256) * (1 - 0.5**x.splits)
        met = model.meet + model.part * x.k_parts * x.area / (128 * 256)
        once += np.where(x.k_parts > 1, met, 0.0)
        skewed = 1.0, model.skewed_store
        self.each_store = tuple(kept((store - last) * skew + model.wave) for skew in skewed)
        self.once = tuple(kept(last * skew + once) for skew in skewed)
        self.step_power = kept(
            x.k_parts
            * x.size
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
        found.free = []
        return found

    def powers(self, facts: Facts, scratch: Scratch) -> tuple[Floats, Floats]:
        """The fourth powers of what a launch takes by the model, and of what the power limit
        allows, in units of `UNIT`, in rows of `scratch`.

        Limits that act at once are joined by a norm: the largest wins, and near a tie both count.
        Its powers are squares and square roots, which NumPy is fast at. An operation costs as much
        as a thousand elements, so what is treated alike stands in neighbouring rows; and a row
        takes the next quantity when its own is no longer needed.
        """
        model, off = self.model, facts.loads_off
        whole = (facts.inputs + facts.results * model.written) / model.dram
        whole = whole + facts.again / model.again
        scratch.given[:] = (
            facts.rows,
            facts.cols,
            facts.k,
            facts.inputs,
            whole * (1 + model.idle),
            whole * -self.idle,
            (facts.inputs + facts.results) / model.dram_power,
            *facts.traits,
        )
        rows, cols, k, inputs, most, less, dram_power = scratch.numbers
        load, wait, busy, tiles, waves, steps, body, memory, power, factor = scratch.rows

        # rows and columns of tiles, and steps; what a CTA loads, the more the less of it is inside
        np.divide(rows, self.rows, load)
        np.divide(cols, self.cols, wait)
        np.divide(k, self.k, busy)
        np.ceil(scratch.extents, scratch.counts)
        inside = scratch.inside
        inside /= scratch.tiles
        scratch.tiles *= self.shares  # now of clusters, with tiles that lie outside of C
        np.ceil(scratch.tiles, scratch.tiles)
        inside *= _either(off, self.inside)
        load += wait
        load += _either(off, self.parts)

        # tiles, waves, and CTAs by how much they slow loads down
        tiles *= waves
        if scratch.many or facts.batch > 1:
            tiles *= facts.batch
        np.divide(tiles, self.resident, waves)
        np.ceil(waves, waves)
        np.divide(tiles, waves, busy)
        busy *= self.crowd
        tiles *= steps
        all_steps = tiles

        # a step: what loads take, and waiting for them, beside the tensor cores and shared memory
        missed = np.multiply(self.new, inputs, memory)
        missed /= all_steps
        np.multiply(missed, self.far, wait)
        wait += self.wait
        missed += busy
        missed += self.ones
        load *= missed
        limits = inside
        for _ in range(3):
            limits *= limits
        step = np.add(load, wait, body)
        step += self.step
        for _ in range(3):
            np.sqrt(step, step)

        # a launch, its traffic with memory, what the power limit allows, and the correction of all
        body *= steps
        body += _either(facts.stores_off, self.each_store)
        body *= waves
        body += _either(facts.stores_off, self.once)
        np.multiply(busy, less, memory)
        memory += most
        np.multiply(all_steps, self.step_power, power)
        power += dram_power
        if scratch.many:
            np.sum(self.corrections * scratch.traits, axis=0, out=factor)
        else:
            scratch.traits.dot(self.corrections, factor)
        times = scratch.times
        times *= times
        times *= times
        body += memory
        body *= factor
        power *= factor
        return body, power

    def scores(self, problem: Problem) -> Floats:
        """What orders configurations: the eighth power of the geometric mean of the times without
        and with the power limit, in units of `UNIT`.
        """
        try:
            scratch = self.free.pop()  # which no other thread has then
        except IndexError:
            scratch = Scratch(len(self.step), self.dtype)
        time, power = self.powers(Facts.of(problem), scratch)
        power += time
        found: Floats = power * time
        self.free.append(scratch)
        return found

    def times(self, facts: Facts) -> tuple[Floats, Floats]:
        """Microseconds after a pause, and in steady state."""
        scratch = Scratch(len(self.step), self.dtype, not isinstance(facts.k, int))
        time, power = self.powers(facts, scratch)
        return time**0.25 * UNIT, (time + power) ** 0.25 * UNIT


def _either(which: Any, choices: Sequence[Any]) -> Any:
    """One of several, by its place, or, of several products, each its own."""
    return choices[which] if isinstance(which, int) else np.choose(which, choices)
