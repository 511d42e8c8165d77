"""Block-scaled MMAs in the simulator: values, and what a wrong use of scale factors is told as."""

from __future__ import annotations

import numpy as np
import pytest

from tests.block_scale_cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@pytest.mark.sampled(3)
def test_the_simulator_computes_like_numpy(case: Case) -> None:
    for seed in (0, 1, 2):
        program, c, reference, tolerance = case.make(np.random.default_rng(seed))
        assert not program.run(seed=seed).advice
        assert np.abs(c.astype(np.float64) - reference).max() <= tolerance
        assert np.abs(reference).max() > 1
