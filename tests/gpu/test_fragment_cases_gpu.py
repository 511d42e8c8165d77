"""The fragment kernels of `tests.cases.fragments` on a GPU, against the same NumPy as in the
simulator.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.fragments import CASES, Case, check


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gpu_gives_what_numpy_gives(case: Case) -> None:
    program, out, want, limit = case.make(np.random.default_rng(0))
    program.launch()
    check(out, want, limit)
