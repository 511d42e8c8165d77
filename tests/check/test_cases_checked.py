"""No false alarm: the kernels that try every op, and the examples, are proved, or their exploration
is given up at a bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases import (
    between_ctas,
    bits as bit_cases,
    block_scales as block_scale_cases,
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
from tests.examples.ladder import EXAMPLES, NAMES, load
from tests.support.case_classes import by_deed
from tilepipe.check import Bounds
from tilepipe.ir import ops
from tilepipe.ir.program import Kernel, walk

MODULES = (
    between_ctas,
    bit_cases,
    block_scale_cases,
    column_cases,
    copy_cases,
    dequantised_cases,
    first_rows,
    fragment_cases,
    grid_cases,
    half_cases,
    lane_cases,
    mma_cases,
    packed_operands,
    power_cases,
    reductions,
    row_fragments,
    scalar_cases,
    scan_cases,
    sync_cases,
    tmem_cases,
)
CASES = [case for module in MODULES for case in module.CASES]
BOUNDS = Bounds(traces=60)
# of kernels whose orders are too many for any bound
FEW = Bounds(traces=4)


def asks(kernel: Kernel) -> bool:
    """Whether it asks who came first: the orders that differ are many then."""
    return any(
        isinstance(op, ops.Atomic | ops.StrongLoad | ops.ClcTryCancel | ops.MbarTryWait)
        for role in kernel.roles
        for op in walk(role.body)
    )


@pytest.mark.slow
@pytest.mark.sampled(suite=1000, classes=by_deed)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_kernel_of_every_op(case: Any) -> None:
    """`make test-all` adds other values of the same settings, and dtypes."""
    program = case.make(np.random.default_rng(0))[0]
    many = asks(program.kernel)
    verdict = program.check(bounds=FEW if many else BOUNDS)
    assert not verdict.faults, verdict.faults[0].message
    assert verdict.ok or (verdict.bound and many), verdict.bound
    # sums of floats by atomic operations have this one line
    advice = [
        line for line in verdict.advice if "floating-point numbers in no fixed order" not in line
    ]
    assert bool(advice) == (case.name in fragment_cases.OUTSIDE), advice


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_example(name: str) -> None:
    verdict = load(EXAMPLES / f"{name}.py")(0).check(bounds=BOUNDS)
    assert verdict.ok, [f.message for f in verdict.faults] or verdict.bound
    assert not verdict.advice, verdict.advice
