"""ctx.mma for every operand type: in the simulator against NumPy, and through NVRTC to the
instruction meant.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.cases.mma import CASES, Case, truncated
from tests.support.case_classes import by_name
from tilepipe.cuda.nvrtc import sass

EVERY = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


@EVERY
def test_the_simulator_multiplies_like_numpy(case: Case) -> None:
    program, c, reference, tolerance = case.make(np.random.default_rng(0))
    program.run(seed=1)
    assert np.abs(c - reference).max() <= tolerance
    assert np.abs(reference).max() > 1


def opcodes_and_forms(case: Case) -> list[str]:
    """The opcode for any N, and those settings that change how it is printed."""
    forms = {"b", "registers", "skip", "turned"}
    return [re.sub(r"x\d+x", "x", case.opcode), *(x for x in by_name(case) if x[:-1] in forms)]


@pytest.mark.sampled(suite=100, classes=opcodes_and_forms)
@pytest.mark.slow
@EVERY
def test_the_printed_code_compiles_to_the_instruction(case: Case) -> None:
    """`make test-all` adds other values of the same settings."""
    compiled = case.make(np.random.default_rng(0))[0].compile()
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log
    found = {i.opcode for i in sass.disassemble(compiled.data) if "GMMA" in i.opcode}
    assert {re.sub(r"\.(tnspA|tnspB|gsb0)", "", x) for x in found} == {case.opcode}


def test_tf32_cuts_and_does_not_round() -> None:
    x = np.array([1 + 2.0**-11 + 2.0**-12, -(1 + 2.0**-10 + 2.0**-11)], np.float32)
    assert truncated(x).tolist() == [1, -(1 + 2.0**-10)]
