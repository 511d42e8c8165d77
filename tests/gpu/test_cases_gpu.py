"""Every op on the GPU: against NumPy, against the simulator, as a debug build, and under random
delays.
"""

from __future__ import annotations

import ctypes
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
    numbers as number_cases,
    packed_operands,
    powers as power_cases,
    reductions,
    row_fragments,
    scalars as scalar_cases,
    scans as scan_cases,
    synchronisation as sync_cases,
)
from tests.cases.fragments import Array
from tests.cases.scalars import check

pytestmark = pytest.mark.gpu
OWN = [
    *scalar_cases.CASES,
    *lane_cases.CASES,
    *number_cases.CASES,
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
ALL: list[Any] = [*OWN, *fragment_cases.CASES, *mma_cases.CASES]


def launched(case: Any, **options: Any) -> tuple[Array, Array, float]:
    """(what a launch writes, the NumPy reference, tolerance)."""
    program, out, want, limit = case.make(np.random.default_rng(0))
    program.launch(**options)
    return out, want, limit


@pytest.mark.parametrize("case", OWN, ids=lambda case: case.name)
def test_the_gpu_gives_what_numpy_gives(case: Any) -> None:
    check(*launched(case))


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_gpu_gives_what_the_simulator_gives(case: Any) -> None:
    out, _, limit = launched(case)
    program, simulated, _, _ = case.make(np.random.default_rng(0))
    program.run(seed=1)
    check(out, simulated, 2 * limit)


@pytest.mark.parametrize(
    "options",
    [{"debug": True}, {"perturb": 1}, {"perturb": 2}, {"debug": True, "perturb": 3}],
    ids=str,
)
@pytest.mark.parametrize(
    "case",
    [*sync_cases.CASES, *grid_cases.CASES, *between_ctas.CASES],
    ids=lambda case: case.name,
)
def test_debug_and_perturbed_builds(case: Any, options: dict[str, Any]) -> None:
    check(*launched(case, **options))


def test_what_is_printed_on_the_gpu(capfd: pytest.CaptureFixture[str]) -> None:
    control = next(case for case in scalar_cases.CASES if case.name == "control_40")
    launched(control)
    ctypes.CDLL(None).fflush(None)  # the driver prints through the buffer of the C library
    assert "n is 40, 13 trips" in capfd.readouterr().out.splitlines()
