"""Timing kernels on a GPU whose clock gives way to its power limit: which of two kernels is faster
depends on how long and how hard the chip has worked before, so a figure belongs to a regime.

- burst: 30 ms idle, then one block of about 3 ms: what a kernel takes in a program that does other
things, too.
- steady: the kernel alone, again and again; 0.1 s to settle, then 0.3 s timed: what it takes in a
loop of its own.

In both, candidates take turns, each block is one CUDA graph, inputs rotate through more memory than
the caches hold, and the figure is a median.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

BLOCK_S = 3e-3
IDLE_S = 30e-3
SETTLE_S = 0.1
TIMED_S = 0.3
ROTATE_BYTES = 300e6  # inputs and outputs together; the L2 of an H200 holds 50 MB

Step = Callable[[str], None]  # called when a step has been done, with what comes next
Launch = Callable[[int], object]  # launches on the current stream, with the i-th set of operands


@dataclass(frozen=True)
class Sample:
    """Times of one kernel in one regime, microseconds for each launch."""

    times_us: tuple[float, ...]

    @property
    def us(self) -> float:
        """The median."""
        return statistics.median(self.times_us)

    def spread(self) -> float:
        """Half the interquartile range, relative to the median."""
        if len(self.times_us) < 4:
            return (max(self.times_us) - min(self.times_us)) / 2 / self.us
        low, _, high = statistics.quantiles(self.times_us, n=4)
        return (high - low) / 2 / self.us


def sets_for(nbytes: float) -> int:
    """How many sets of operands of `nbytes` each to rotate through."""
    return max(2, int(-(-ROTATE_BYTES // nbytes)))


def seconds(kernels: int, regimes: Sequence[str], repeats: int) -> float:
    """About how long timing so many kernels takes; `repeats`: blocks of each in a burst."""
    burst = repeats * (IDLE_S + BLOCK_S) if "burst" in regimes else 0.0
    steady = 3 * (SETTLE_S + TIMED_S) if "steady" in regimes else 0.0
    return kernels * (burst + steady)


class Block:
    """`count` launches captured as one CUDA graph.

    Attributes:
        length_s: about how long it runs, of which steady state is made.
    """

    def __init__(self, launch: Launch, count: int, sets: int) -> None:
        self.count = count
        self.length_s = BLOCK_S
        self._launch = launch  # whose operands the graph reads and writes
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for i in range(count):
                launch(i % sets)
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def run(self) -> float:
        """Microseconds for each launch."""
        self._start.record()
        self.graph.replay()
        self._end.record()
        self._end.synchronize()
        elapsed = float(self._start.elapsed_time(self._end))
        self.length_s = elapsed * 1e-3
        return elapsed * 1e3 / self.count


def block(launch: Launch, sets: int) -> Block:
    """A block of about `BLOCK_S`, warmed up."""
    for i in range(min(sets, 3)):
        launch(i)
    torch.cuda.synchronize()
    trial = Block(launch, 8, sets)
    trial.run()
    each = min(trial.run() for _ in range(3)) * 1e-6
    return Block(launch, max(2, round(BLOCK_S / each)), sets)


def burst(
    blocks: Mapping[str, Block], repeats: int = 15, seed: int = 0, idle_s: float = IDLE_S
) -> dict[str, Sample]:
    """Each block after a pause, in random order, `repeats` times."""
    times: dict[str, list[float]] = {name: [] for name in blocks}
    order = random.Random(seed)
    for _ in range(repeats):
        for name in order.sample(list(blocks), len(blocks)):
            torch.cuda.synchronize()
            time.sleep(idle_s)
            times[name].append(blocks[name].run())
    return {name: Sample(tuple(x)) for name, x in times.items()}


def timed(blocks: Mapping[str, Block], regime: str, repeats: int) -> dict[str, Sample]:
    """In a regime, "burst" or "steady"; `repeats`: of a burst."""
    return burst(blocks, repeats) if regime == "burst" else steady(blocks)


def steady(
    blocks: Mapping[str, Block],
    rounds: int = 3,
    settle_s: float = SETTLE_S,
    timed_s: float = TIMED_S,
) -> dict[str, Sample]:
    """Each block alone for a while, in turns, `rounds` times."""
    times: dict[str, list[float]] = {name: [] for name in blocks}
    for _ in range(rounds):
        for name, each in blocks.items():
            _repeat(each, settle_s)
            times[name].append(_repeat(each, timed_s))
    return {name: Sample(tuple(x)) for name, x in times.items()}


def _repeat(each: Block, seconds: float) -> float:
    """Replays for `seconds`, queued ahead so that the GPU never waits; microseconds for each
    launch.
    """
    count = max(1, round(seconds / each.length_s))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        each.graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / (count * each.count)
