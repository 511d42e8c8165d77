"""Attention compiled for sm_100a: no spills, and the machine code has the instructions
meant, as often as meant.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.kernels.attention.sm100_cases import BF16, Problem
from tilepipe import cuda
from tilepipe.cuda.nvrtc.sass import disassemble

FORMS: list[dict[str, Any]] = [
    {"d": 128, "causal": True},
    {"d": 64},
    {"d": 128},
    {"d": 64, "causal": True},
    {"d": 128, "dtype": np.float16, "lse": False},
    {"d": 64, "bn": 32},
    {"d": 128, "bn": 96, "stages": 2},
    {"d": 64, "bn": 64, "stages": 6, "causal": True},
]


@pytest.mark.sampled(suite=100)
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_machine_code(form: dict[str, Any]) -> None:
    """MMAs: both products of scores, and of the output both of the loop and the last. Softmax: of
    two roles, with and without a mask.
    """
    code = cuda.compile(Problem(256, 256, **{"dtype": BF16, **form}).program.kernel, arch="sm_100a")
    assert (code.spill_bytes, code.stack_bytes, code.registers) == (0, 0, 128)
    assert "warning" not in code.log
    assert "C75" not in code.log
    d, bn = form["d"], form.get("bn", 128)
    instructions = disassemble(code.data)
    found, opcodes = Counter(i.base for i in instructions), Counter(i.opcode for i in instructions)
    assert not {"LDL", "STL"} & found.keys()
    assert found["UTCHMMA"] == 2 * d // 16 + 3 * bn // 16
    assert found["UTCBAR"] == d // 64 + 2 + 3 + 2  # K's parts, both S, O of three places, V of two
    # An exponential for each score and, of each of four rows of a thread, the factor.
    assert opcodes["MUFU.EX2"] == 2 * 2 * (bn + 4)
    assert found["FFMA"] >= 2 * 2 * bn
    # In columns, by 16 of each 32 lanes: a block of scores in four places; the output in four, both
    # to rescale and to store it.
    loaded = sum(
        n * 8 * int(name.rsplit("x", 1)[1])
        for name, n in opcodes.items()
        if name.startswith("LDTM.16dp256bit")
    )
    assert loaded == 2 * (4 * bn + 4 * d)
    assert {
        "UTMALDG",
        "UTMASTG",
        "UTCATOMSWS",
        "STTM",
        "STSM",
        "SYNCS",
        "USETMAXREG",
        "VOTE",
    } <= found.keys()


@pytest.mark.slow
def test_the_softmax_is_fused(tmp_path: Any) -> None:
    """x · scale - shift is one instruction a score, the maximum less than one, and P is packed by
    pairs.
    """
    counts = []
    for bn in (32, 64):
        code = cuda.compile(
            Problem(256, 256, 64, lse=False, bn=bn, stages=2).program.kernel, arch="sm_100a"
        )
        counts.append(Counter(i.base for i in disassemble(code.data)))
    more = counts[1] - counts[0]
    scores = 2 * 2 * 32  # a thread's, of two roles, masked and not
    assert more["FFMA"] == scores
    assert more["FMNMX3"] + more["FMNMX"] <= scores
    assert more["F2FP"] == scores // 2
    assert more["FMUL"] <= scores // 4
