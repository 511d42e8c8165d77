"""What the scripts share that measure many configurations of a kernel: configurations from texts,
compiling them all, and timing the fastest again beside the peers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from tilepipe.bench import timing
from tilepipe.errors import TilepipeError

SCREENING = 4  # blocks of each configuration in the first round
T = TypeVar("T")


def settings_of(text: str) -> dict[str, Any]:
    """The settings that `name=value` words give."""
    pairs = dict(word.split("=") for word in text.split())
    return {name: int(value) if value.isdigit() else value for name, value in pairs.items()}


def compiled(build: Callable[[T], Any], jobs: Sequence[T]) -> list[Any]:
    """The kernel that `build` makes of each job, or the error that it raises; in as many threads as
    there are processors.
    """

    def made(job: T) -> Any:
        try:
            return build(job)
        except TilepipeError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(made, jobs))


@dataclass(frozen=True)
class Measured:
    """The times of configurations and peers.

    Attributes:
        screened: microseconds in the first round. ranked: the configurations, the fastest first.
        burst, steady: the finalists and the peers, timed again.
    """

    screened: Mapping[str, float]
    ranked: list[str]
    burst: Mapping[str, timing.Sample]
    steady: Mapping[str, timing.Sample]


def measured(
    blocks: Mapping[str, timing.Block],
    peers: Collection[str],
    finalists: int,
    repeats: int,
    seed: int,
    also: Collection[str] = (),
) -> Measured:
    """Times all blocks in a few bursts; then the fastest of ours, those of `also` and the peers in
    bursts and in steady state.
    """
    screened = {name: sample.us for name, sample in timing.burst(blocks, SCREENING, seed).items()}
    ranked = sorted(
        (name for name in screened if name not in peers), key=lambda name: screened[name]
    )
    last = {
        name: blocks[name]
        for name in dict.fromkeys([*ranked[:finalists], *also, *peers])
        if name in blocks
    }
    return Measured(screened, ranked, timing.burst(last, repeats, seed), timing.steady(last))
