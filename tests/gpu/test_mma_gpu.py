"""MMAs of every operand type on the GPU, against the same NumPy references as in the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.mma import CASES, Case


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_gpu_multiplies_like_numpy(case: Case) -> None:
    program, c, reference, tolerance = case.make(np.random.default_rng(0))
    program.launch()
    assert np.abs(c - reference).max() <= tolerance
