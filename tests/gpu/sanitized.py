"""One kernel of each family, launched and verified: what compute-sanitizer watches. `python -m
tests.gpu.sanitized NAME`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from tests.cases import (
    copies as copy_cases,
    fragments as fragment_cases,
    mma as mma_cases,
    scalars as scalar_cases,
    synchronisation as sync_cases,
)
from tests.gpu.gemms import FAMILIES, product
from tests.support.ordered_turns import bind_turns, expected_turns

LISTS = {
    "scalars": scalar_cases,
    "copies": copy_cases,
    "barriers": sync_cases,
    "fragments": fragment_cases,
    "mma": mma_cases,
}
GEMMS = ("default", "cluster", "cluster along n", "ping-pong", "half of k", "k groups")


def cases(name: str, every: int) -> None:
    """Every n-th case of a list."""
    for case in LISTS[name].CASES[::every]:
        program, out, want, limit = case.make(np.random.default_rng(0))
        program.launch()
        scalar_cases.check(out, want, limit)


def gemm(family: str) -> None:
    """A product of some tiles, with ragged edges."""
    p = product((200, 264, 328), **FAMILIES[family])
    p.program.launch()
    p.verify()


def turns() -> None:
    """Groups that take turns."""
    program, log, _ = bind_turns(3, 2, 10)
    program.launch()
    np.testing.assert_array_equal(log, expected_turns(3, 2, 10)[0])


def through_shared() -> None:
    """Ordinary accesses to shared memory, ordered by syncwarp and named barriers alone."""
    for case in [*scalar_cases.CASES, *sync_cases.CASES]:
        if case.name.startswith("shared_") or case.name == "meetings":
            program, out, want, limit = case.make(np.random.default_rng(0))
            program.launch()
            scalar_cases.check(out, want, limit)


KERNELS: dict[str, Callable[[], None]] = {
    "scalars": lambda: cases("scalars", 8),
    "copies": lambda: cases("copies", 4),
    "barriers": lambda: cases("barriers", 1),
    "fragments": lambda: cases("fragments", 10),
    "mma": lambda: cases("mma", 8),
    "turns": turns,
    "shared memory": through_shared,
    **{f"gemm, {family}": (lambda family=family: gemm(family)) for family in GEMMS},  # type: ignore[misc]
}


if __name__ == "__main__":
    KERNELS[sys.argv[1]]()
    print("verified")
