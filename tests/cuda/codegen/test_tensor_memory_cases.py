"""The kernels of `tests.cases.tensor_memory`, which the simulator runs, compile for sm_100a: what
the machine code of each holds.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.cases.tensor_memory import CASES, Case
from tests.support.cuda.functions import for_each_function
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.ir import ops
from tilepipe.ir.hardware.operand_tiles import mma_k
from tilepipe.ir.program import Kernel, walk


def found(kernel: Kernel, kind: type[ops.Op]) -> list[Any]:
    """The ops of that class."""
    return [op for role in kernel.roles for op in walk(role.body) if isinstance(op, kind)]


def compiles(name: str, kernel: Kernel) -> cuda.Compiled:
    compiled = cuda.compile(kernel, "sm_100a")
    assert (compiled.spill_bytes, compiled.stack_bytes) == (0, 0), name
    assert "warning" not in compiled.log, name
    assert "C75" not in compiled.log, name
    return compiled


@pytest.mark.slow
def test_each_function_that_is_printed_compiles() -> None:
    for name, kernel in for_each_function(CASES, "sm_100a"):
        compiles(name, kernel)


def kinds(case: Case) -> list[str]:
    """What is done, in words, and how many bits an operand has: the instructions differ by that."""
    words = case.name.split("=")[0].split()
    dtypes = [word for word in words if "float" in word]
    return [" ".join(words[: words.index(dtypes[0])]), *re.findall(r"\d+", dtypes[0])[:1]]


@pytest.mark.sampled(suite=1000, classes=kinds)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_machine_code(case: Case) -> None:
    """`make test-all` adds the other settings."""
    kernel = case.make(np.random.default_rng(0))[0].kernel
    compiled = compiles(case.name, kernel)
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
