"""The kernels of `tests.cases.scalars`, `copies`, `synchronisation`, `grid`, `bits`: in the
simulator against NumPy, and through NVRTC; and every op is in a case that a GPU runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases import (
    between_ctas,
    bits as bit_cases,
    columns as column_cases,
    copies as copy_cases,
    dequantised as dequantised_cases,
    first_rows,
    fragments as fragment_cases,
    grid as grid_cases,
    halves as half_cases,
    lanes as lane_cases,
    mma as mma_cases,
    packed_operands,
    powers as power_cases,
    reductions,
    row_fragments,
    scalars as scalar_cases,
    scans as scan_cases,
    synchronisation as sync_cases,
    tensor_memory as tmem_cases,
)
from tests.cases.fragments import Case
from tests.cases.scalars import check
from tests.support.cuda.functions import for_each_function
from tilepipe import cuda
from tilepipe.ir import ops
from tilepipe.ir.program import Kernel, all_ops

LISTS = {
    "scalars": [
        *scalar_cases.CASES,
        *bit_cases.CASES,
        *dequantised_cases.CASES,
        *packed_operands.CASES,
        *power_cases.CASES,
    ],
    "memory": [
        *lane_cases.CASES,
        *copy_cases.CASES,
        *sync_cases.CASES,
        *grid_cases.CASES,
        *between_ctas.CASES,
    ],
    "fragments": [
        *row_fragments.CASES,
        *first_rows.CASES,
        *column_cases.CASES,
        *scan_cases.CASES,
        *half_cases.CASES,
    ],
    "reductions": reductions.CASES,
}
CASES = [case for cases in LISTS.values() for case in cases]


@pytest.mark.sampled(64, suite=2, classes=lambda case, seed: [case.name])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gives_what_numpy_gives(case: Case, seed: int) -> None:
    program, out, want, limit = case.make(np.random.default_rng(seed))
    before = out.copy()
    run = program.run(seed=seed)
    assert case.name == "copy_to_outside" or not np.array_equal(before, out), "a test of nothing"
    check(out, want, limit)
    assert run.advice == []


def compiles(name: str, kernel: Kernel) -> None:
    compiled = cuda.compile(kernel)
    assert compiled.spill_bytes == 0, name
    assert "warning" not in compiled.log, name


@pytest.mark.slow
@pytest.mark.parametrize("cases", LISTS.values(), ids=LISTS)
def test_each_function_that_is_printed_compiles(cases: list[Case]) -> None:
    for name, kernel in for_each_function(cases, "sm_90a"):
        compiles(name, kernel)


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compiles(case: Case) -> None:
    compiles(case.name, case.make(np.random.default_rng(0))[0].kernel)


@pytest.mark.slow
def test_every_op_is_in_a_case_that_runs_on_the_gpu() -> None:
    """tests/gpu launches the cases of these lists."""
    # Blackwell's: cuda.test_grid sees them refused for Hopper
    classes = set(ops.EVERY) - {ops.ClcTryCancel, ops.ClcQuery}
    rng = np.random.default_rng(0)
    cases: list[Any] = [*CASES, *fragment_cases.CASES, *mma_cases.CASES, *tmem_cases.CASES]
    kernels = [case.make(rng)[0].kernel for case in cases]
    found = {type(op) for kernel in kernels for op in all_ops(kernel)}
    assert classes - found == set()
