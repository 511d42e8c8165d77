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
from tests.support.case_classes import by_words
from tilepipe import cuda
from tilepipe.ir import ops
from tilepipe.ir.program import all_ops

CASES = [
    *scalar_cases.CASES,
    *lane_cases.CASES,
    *copy_cases.CASES,
    *sync_cases.CASES,
    *grid_cases.CASES,
    *between_ctas.CASES,
    *row_fragments.CASES,
    *first_rows.CASES,
    *reductions.CASES,
    *bit_cases.CASES,
    *dequantised_cases.CASES,
    *packed_operands.CASES,
    *power_cases.CASES,
    *column_cases.CASES,
    *scan_cases.CASES,
    *half_cases.CASES,
]


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


@pytest.mark.slow
@pytest.mark.sampled(suite=1000, classes=by_words)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compiles(case: Case) -> None:
    """`make test-all` adds each shape with each dtype."""
    compiled = cuda.compile(case.make(np.random.default_rng(0))[0].kernel)
    assert compiled.spill_bytes == 0
    assert "warning" not in compiled.log


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
