"""The kernels of `tests.cases.tensor_memory`, which the simulator runs, compile for sm_100a: what
the machine code of each holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases.tensor_memory import CASES, Case
from tests.support.case_classes import by_name
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.ir import ops
from tilepipe.ir.hardware.operand_tiles import mma_k
from tilepipe.ir.program import Kernel, walk


def found(kernel: Kernel, kind: type[ops.Op]) -> list[Any]:
    """The ops of that class."""
    return [op for role in kernel.roles for op in walk(role.body) if isinstance(op, kind)]


@pytest.mark.sampled(suite=17, classes=by_name)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compiles(case: Case) -> None:
    """`make test-all` adds other values of the same settings."""
    kernel = case.make(np.random.default_rng(0))[0].kernel
    compiled = cuda.compile(kernel, "sm_100a")
    assert (compiled.spill_bytes, compiled.stack_bytes) == (0, 0)
    assert "warning" not in compiled.log
    assert "C75" not in compiled.log
    counts = sass.count(sass.disassemble(compiled.data))
    mmas = found(kernel, ops.Tcgen05Mma)
    assert counts["UTCHMMA"] + counts["UTCQMMA"] == sum(
        op.b.cols // mma_k(op.b.buffer.dtype) for op in mmas
    )
    assert counts["UTCQMMA"] == 0 or all(op.b.buffer.dtype.nbytes == 1 for op in mmas)
    assert counts["UTCCP"] == len(found(kernel, ops.TmemCopy))
    assert counts["UTCBAR"] == len(found(kernel, ops.Tcgen05Commit))
    # An access for each power of two of 8 columns, and for each 16 of the 32 lanes of a warp.
    accesses = {
        "LDTM": [op.src for op in found(kernel, ops.TmemLoad)],
        "STTM": [op.dst for op in found(kernel, ops.TmemStore)],
    }
    for opcode, matrices in accesses.items():
        assert counts[opcode] == sum(t.rows // 64 * (t.cols // 8).bit_count() for t in matrices)


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[::8], ids=lambda case: case.name)
def test_instrumented_builds_compile(case: Case) -> None:
    compiled = cuda.compile(
        case.make(np.random.default_rng(0))[0].kernel, "sm_100a", debug=True, perturb=1
    )
    assert "warning" not in compiled.log
