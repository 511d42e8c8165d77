"""The kernels of the conformance table on the GPU: every member of the pages that Hopper has, against NumPy, and under random delays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conformance.cases import CASES
from tests.conformance.table import kernels
from tests.fragment_cases import Case
from tests.scalar_cases import check

pytestmark = pytest.mark.gpu
HOPPER_CASES = [case for case in CASES if "sm_90a" in kernels()[case.name]]
BUILDS: list[dict[str, Any]] = [{}, *({"perturb": seed} for seed in range(4)), {"debug": True, "perturb": 4}]


@pytest.mark.parametrize("case", HOPPER_CASES, ids=lambda case: case.name)
def test_the_gpu_gives_what_numpy_gives(case: Case) -> None:
    for options in BUILDS:
        program, out, want, limit = case.make(np.random.default_rng(0))
        program.launch(**options)
        check(out, want, limit)
