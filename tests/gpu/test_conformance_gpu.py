"""The kernels of the conformance table and the pages' examples on the GPU, those that its
architecture has: against NumPy, and under random delays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases.fragments import Case
from tests.cases.scalars import check
from tests.conformance.cases import CASES
from tests.conformance.page_examples import HOPPER_EXAMPLES
from tests.conformance.table import kernels
from tilepipe.cuda.runtime import driver

pytestmark = pytest.mark.gpu
BUILDS: list[dict[str, Any]] = [
    {},
    *({"perturb": seed} for seed in range(4)),
    {"debug": True, "perturb": 4},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gpu_gives_what_numpy_gives(case: Case) -> None:
    chip, archs = driver.chip(), kernels()[case.name]
    if chip.arch not in archs:
        pytest.skip(
            f"{case.name} is for {', '.join(archs)}; device 0 is a {chip.name} ({chip.arch})"
        )
    for options in BUILDS:
        program, out, want, limit = case.make(np.random.default_rng(0))
        program.launch(**options)
        check(out, want, limit)


@pytest.mark.parametrize("name", HOPPER_EXAMPLES)
def test_an_example_of_the_pages(name: str) -> None:
    for options in BUILDS:
        program, out, want, limit = HOPPER_EXAMPLES[name](np.random.default_rng(0))
        program.launch(**options)
        check(out, want, limit)
