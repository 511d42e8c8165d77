"""The reader of PTX against the GPU, bit for bit: random small kernels, the cases, and the shipped
kernels for sm_90a.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases.scalars import check
from tests.ptx.measured import copies, forms, golden, matrices, memory, programs
from tests.ptx.measured.case import Case
from tests.ptx.measured.enumerate_forms import modelled
from tests.ptx.measured.on_gpu import launched
from tests.ptx.test_print_families import FAMILY_LIST, Family, exact
from tests.support.whole_numbers import whole_numbers as whole_numbers
from tools.snapshot import doors

pytestmark = pytest.mark.gpu
EACH = 25  # random kernels of a test
PARTS = 8
# Functions that the ISA defines by a bound on their error, and sums in the tensor cores' own order.
INEXACT = ("fragment", "mma", "scalar/fractions")
CASES = [
    (key, case)
    for key, case in doors.cases()
    if key.split("/")[0] not in ("tmem", "block_scale", "grid")
]
HOPPER = [family for family in FAMILY_LIST if family.arch == "sm_90a"]


def different(cases: list[Case], level: int = 4) -> list[str]:
    """The parts that the reader computes otherwise than this GPU. `level`: of optimisation."""
    found = []
    for case in cases:
        read, want = case.read(), launched(case, level)
        found += [
            f"{case.name}: {part.name}"
            for part in case.parts
            if part.rule.error(read[part.begin : part.end], want[part.begin : part.end]) > 1
        ]
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_random_kernels_write_the_same_bits(part: int) -> None:
    """Others than those whose results are kept, as the driver compiles them without optimising: at
    other levels a few of these programs write something else (driver 580.159).
    """
    first = 10_000 + EACH * part
    assert different([programs.case(seed) for seed in range(first, first + EACH)], 0) == []


@pytest.mark.parametrize("module", [memory, matrices, copies], ids=lambda m: m.__name__)
@pytest.mark.parametrize("part", range(PARTS))
def test_memory_matrices_and_copies_are_the_same(module: Any, part: int) -> None:
    assert different(list(module.cases())[part::PARTS]) == []


@pytest.mark.parametrize("part", range(PARTS))
def test_forms_of_instructions_are_the_same(part: int) -> None:
    kept = [f for f in forms.candidates() if f.key in golden.measured() and not modelled(f)]
    assert different(list(forms.cases(kept))[part::PARTS]) == []


@pytest.mark.parametrize(("key", "case"), CASES, ids=[key for key, _ in CASES])
def test_cases_write_the_same(key: str, case: Any) -> None:
    program, read, _, limit = case.make(np.random.default_rng(0))
    program.ptx("sm_90a").run(1)
    program, out, _, _ = case.make(np.random.default_rng(0))
    program.launch()
    if key.startswith(INEXACT):
        check(out, read, 2 * limit)
    else:
        np.testing.assert_array_equal(out.astype(np.float64), read.astype(np.float64))


@pytest.mark.parametrize("family", HOPPER, ids=lambda f: f"{f.key} {f.name}")
def test_shipped_kernels_write_the_same(family: Family, whole_numbers: None) -> None:
    """Sums of whole numbers are exact in any order; others are within the bounds of each other."""
    read, launched_case = family.case(), family.case()
    read.program.ptx(family.arch).run(1)
    launched_case.program.launch()
    if exact(family):
        np.testing.assert_array_equal(launched_case.output, read.output)
    else:
        got, want = launched_case.output.astype(np.float64), read.output.astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2 * float(np.abs(want).max()))
