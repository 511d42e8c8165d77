"""Kernels in tensor memory on a Blackwell GPU, against the same NumPy references as in the
simulator; skipped on any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases import block_scales as block_scale_cases, tensor_memory as tmem_cases
from tests.cases.scalars import check
from tilepipe.cuda.runtime import driver

pytestmark = pytest.mark.gpu
CASES: list[Any] = [*tmem_cases.CASES, *block_scale_cases.CASES]


@pytest.fixture(autouse=True)
def blackwell() -> None:
    """Skips the test where the GPU has no tensor memory."""
    chip = driver.chip()
    if chip.arch != "sm_100a":
        pytest.skip(f"tensor memory needs sm_100a; device 0 is a {chip.name} ({chip.arch})")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gpu_gives_what_numpy_gives(case: Any) -> None:
    program, out, want, limit = case.make(np.random.default_rng(0))
    program.launch()
    check(out, want, limit)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: case.name)
def test_delays_change_nothing(case: Any, seed: int) -> None:
    program, out, want, limit = case.make(np.random.default_rng(0))
    program.launch(debug=True, perturb=seed)
    check(out, want, limit)
