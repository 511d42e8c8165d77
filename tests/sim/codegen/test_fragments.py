"""The fragment kernels of `tests.cases.fragments` on the simulated GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.fragments import CASES, OUTSIDE, Case, check


@pytest.mark.sampled(11, suite=2, classes=lambda case, seed: [case.name])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("seed", [0, 1])
def test_gives_what_numpy_gives(case: Case, seed: int) -> None:
    program, out, want, limit = case.make(np.random.default_rng(seed))
    run = program.run(seed=seed)
    check(out, want, limit)
    assert bool(run.advice) == (case.name in OUTSIDE), run.advice
