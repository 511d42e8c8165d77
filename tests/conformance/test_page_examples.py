"""The examples of the pages: each gives NumPy's numbers, is verified by the checker, and
compiles.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.fragments import Case
from tests.cases.scalars import check
from tests.conformance.page_examples import BLACKWELL_EXAMPLES, EXAMPLES, HOPPER_EXAMPLES
from tilepipe import cuda

BUILDS = [
    (case, arch)
    for case in EXAMPLES
    for arch in (("sm_90a",) if case.name in HOPPER_EXAMPLES else ("sm_100a",))
]


def test_there_are_sixteen() -> None:
    """One is written for a CTA and for a pair of them."""
    assert len(HOPPER_EXAMPLES) + len(BLACKWELL_EXAMPLES) == 16 + 1


@pytest.mark.slow
@pytest.mark.parametrize("case", EXAMPLES, ids=lambda case: case.name)
def test_gives_what_numpy_gives(case: Case) -> None:
    for seed in range(4):
        program, out, want, limit = case.make(np.random.default_rng(seed))
        run = program.run(seed=seed)
        assert np.any(want), "a test of nothing"
        check(out, want, limit)
        assert run.advice == []


@pytest.mark.parametrize("case", EXAMPLES, ids=lambda case: case.name)
def test_is_verified(case: Case) -> None:
    verdict = case.make(np.random.default_rng(0))[0].check()
    assert verdict.ok, str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "arch"), BUILDS, ids=[f"{case.name}-{arch}" for case, arch in BUILDS]
)
def test_compiles(case: Case, arch: str) -> None:
    compiled = cuda.compile(case.make(np.random.default_rng(0))[0].kernel, arch=arch)
    assert compiled.spill_bytes == 0
    assert compiled.arch == arch
