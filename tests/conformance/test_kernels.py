"""The kernels of the table: right in the simulator, compiled for each architecture, and each uses
the members that name it.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.fragments import Case
from tests.cases.scalars import check
from tests.conformance.cases import CASES, SHORT
from tests.conformance.replacing import forget_traces, watched
from tests.conformance.table import kernels, resolve, rows
from tilepipe import cuda
from tilepipe.check import Bounds

BUILDS = [(case, arch) for case in CASES for arch in kernels()[case.name]]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gives_what_numpy_gives(case: Case, seed: int) -> None:
    program, out, want, limit = case.make(np.random.default_rng(seed))
    run = program.run(seed=seed)
    assert np.any(want), "a test of nothing"
    check(out, want, limit)
    assert run.advice == []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_is_verified(case: Case) -> None:
    """Over all interleavings: the flat forms, the tries and the copies that no shipped kernel uses,
    too.
    """
    make = SHORT.get(case.name, case.make)
    verdict = make(np.random.default_rng(0))[0].check(bounds=Bounds(seconds=60))
    assert verdict.ok, str(verdict)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("case", "arch"), BUILDS, ids=[f"{case.name}-{arch}" for case, arch in BUILDS]
)
def test_compiles(case: Case, arch: str) -> None:
    compiled = cuda.compile(case.make(np.random.default_rng(0))[0].kernel, arch=arch)
    assert compiled.spill_bytes == 0
    assert compiled.arch == arch
    assert compiled.data[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_uses_the_members_that_name_it(case: Case) -> None:
    named = {
        f"{page.name}: {row.name}": resolve(page.ours(row))
        for page, row in rows()
        if row.case == case.name
    }
    forget_traces()
    with watched(named.values()) as seen:
        case.make(np.random.default_rng(0))
    assert [name for name, target in named.items() if target not in seen] == []
