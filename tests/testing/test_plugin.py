"""The pytest plugin, in a pytest of its own: what a kernel author writes, and what is then said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import missing_gpu
from tests.testing import kernels

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def kernels_beside_the_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(kernels=Path(kernels.__file__).read_text(encoding="utf-8"))


TESTS = """
import numpy as np

from kernels import bind_doubled


def test_every_interleaving(tilepipe_check):
    program, a, out = bind_doubled()
    assert tilepipe_check(program).ok


def test_against_numpy(tilepipe_run):
    program, a, out = bind_doubled()
    assert len(tilepipe_run(program, expect=2 * a)) in (4, 6)


def test_delays(tilepipe_perturb):
    tilepipe_perturb(bind_doubled()[0], device="sim")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), marks=pytest.mark.thorough),
        ("-n", "2"),
        ("--tilepipe-explore", "--tilepipe-seeds", "6"),
    ],
    ids=["plain", "xdist", "options"],
)
def test_a_kernel_author_writes_three_lines(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)
    result.assert_outcomes(passed=3)
    method = "explored" if "--tilepipe-explore" in options else "single-execution"
    result.stdout.fnmatch_lines(
        [f"tilepipe: 1 verified ({method}); of these instances, not of other shapes"]
    )


@pytest.mark.slow
def test_a_fault_fails_the_test_and_is_counted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
from kernels import bind_doubled


def test_ring(tilepipe_check):
    tilepipe_check(bind_doubled(early=True)[0])
""")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*CheckFailed: fault: doubled of a 5×32*",
            "*RaceError: race on slots*",
            "tilepipe: 1 fault; of these*",
        ]
    )


@pytest.mark.slow
@pytest.mark.skipif(not missing_gpu(), reason="there is a GPU: tests/gpu/test_perturb_gpu.py")
def test_without_a_gpu_the_test_is_skipped_with_the_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
from kernels import bind_doubled
from tilepipe.testing import perturb


def test_fixture(tilepipe_perturb):
    tilepipe_perturb(bind_doubled()[0])


def test_function():
    perturb(bind_doubled()[0])
""")
    result = pytester.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*launching needs*"])


@pytest.mark.slow
def test_pytest_starts_without_numpy() -> None:
    code = (
        "import sys, pytest_tilepipe; print(*sorted({m.split('.')[0] for m in sys.modules} &"
        " {'tilepipe', 'numpy', 'ml_dtypes', 'rich'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
