"""The printed kernels that the campaign changes, on problems of a few tiles."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.printed_ptx import Printed, printed
from tilepipe.errors import SimFault
from tilepipe.machine import clusters
from tilepipe.machine.barriers.state import LIVE
from tilepipe.machine.machine import Machine
from tilepipe.ptx import launch as of_launch
from tilepipe.registry.catalog import find

Arrays = dict[str, npt.NDArray[Any]]
SEEDS = (0, 1, 2)  # of the interleavings that a mutant runs in
# Name -> (kernel, architecture, settings).
SUBJECTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "GEMM of CTA pairs, sm_100a": (
        "gemm",
        "sm_100a",
        {"arch": "sm100", "m": 512, "n": 64, "k": 192, "bn": 64, "stages": 2}
        | {"cta_group": 2, "cluster": 2},
    ),
    "mxfp4 GEMM, sm_100a": (
        "gemm_block_scaled",
        "sm_100a",
        {"kind": "mxfp4", "m": 256, "n": 64, "k": 768, "bn": 64, "bk": 256, "stages": 2},
    ),
    "attention, sm_100a": (
        "attention",
        "sm_100a",
        {"arch": "sm100", "s_q": 200, "s_kv": 160, "d": 64, "bn": 64, "stages": 2},
    ),
    "GEMM, sm_90a": (
        "gemm",
        "sm_90a",
        {"m": 264, "n": 72, "k": 200, "bn": 64, "stages": 2},
    ),
    "attention, sm_90a": (
        "attention",
        "sm_90a",
        {"s_q": 150, "s_kv": 160, "d": 64, "bn": 64},
    ),
}
# Of these every N-th mutant only: most of their code is softmax, unrolled.
EVERY = {"attention, sm_100a": 4, "attention, sm_90a": 2}


@dataclass(frozen=True, eq=False)
class Subject:
    """A printed kernel.

    Attributes:
        before: its arrays before a run, their output not a number. after: when it has run.
        executed: lines of the text of which an instruction is executed. seconds: of the processor
            that a run takes.
    """

    printed: Printed
    arrays: Arrays
    before: Arrays
    after: dict[str, bytes]
    executed: frozenset[int]
    seconds: float

    def restore(self) -> None:
        """Puts back what the arrays held before the first run."""
        for name, array in self.arrays.items():
            array[...] = self.before[name]

    def result(self, text: str, seed: int, timeout: float) -> dict[str, bytes]:
        """What the arrays hold after a run of a text."""
        self.restore()
        launch = replace(self.printed, text=text).launch()
        launch.run(seed, timeout=timeout)
        if launch.advice:  # what only the strict rules refuse
            raise SimFault(launch.advice[0])
        return {name: array.tobytes() for name, array in self.arrays.items()}

    def barriers(self, text: str) -> dict[tuple[int, int], int]:
        """(CTA, address) of the mbarriers that runs of a text, in all interleavings of a mutant,
        initialise, arrive at or wait for -> the line of the init; 0 where there is none. A barrier
        that nothing but its init names is not among those of a text without that line.
        """
        launch = replace(self.printed, text=text).launch()
        lines = {s.number: s.instruction.line for s in launch.kernel.code.sites.values()}
        found: dict[tuple[int, int], int] = {}

        def note(m: Machine) -> None:
            for cta in m.ctas:
                for bar in cta.bars:
                    site = bar.init_site if bar.state == LIVE else None
                    found[cta.block_id, bar.address] = 0 if site is None else lines[site.id]

        def noted(run: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *given: run(*given[:-1], note)  # in place of `finished`

        with pytest.MonkeyPatch.context() as patch:
            for run in (clusters.one_after_another, clusters.together):
                patch.setattr(of_launch, run.__name__, noted(run))
            for seed in SEEDS:
                self.restore()
                launch.run(seed)
        return found


@functools.cache
def subject(name: str) -> Subject:
    """A kernel by its name.

    Raises:
        AssertionError: it computes something else than NumPy.
    """
    kernel, arch, settings = SUBJECTS[name]
    spec = find(kernel)
    config, _ = spec.configure(settings, None)
    case = spec.make(config, 0)
    case.output[...] = np.nan
    made = printed(case.program, arch)
    arguments = case.program.launch_args.args.items()
    arrays: Arrays = {n: a.array for n, a in arguments if hasattr(a, "array")}
    before = {n: a.copy() for n, a in arrays.items()}
    launch = made.launch()
    begun = time.process_time()
    launch.run()
    seconds = time.process_time() - begun
    assert case.verify().ok
    after = {n: a.tobytes() for n, a in arrays.items()}
    return Subject(made, arrays, before, after, frozenset(_executed(launch.kernel.code)), seconds)


def _executed(code: Any) -> set[int]:
    """Lines of instructions in segments that have run: these have been compiled."""
    found = set()
    for whole, part, span in zip(code.whole, code.part, code.spans, strict=True):
        if "first_run" not in (whole.__name__, part.__name__) or whole.__name__ != part.__name__:
            found |= {i.line for i in code.function.instructions[span.begin : span.end]}
    return found
