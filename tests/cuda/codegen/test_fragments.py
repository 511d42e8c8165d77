"""The fragment kernels of `tests.cases.fragments` compile, without spills; what single lines of
them print as.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.fragments import CASES, Case
from tests.support.cuda.fake_driver import FakeDriver
from tilepipe.cuda.runtime import launching
from tilepipe.ir.program import TensorArg

BY_NAME = {case.name: case for case in CASES}


@pytest.mark.slow
@pytest.mark.sampled(suite=7)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compiles_without_spills(case: Case) -> None:
    compiled = case.make(np.random.default_rng(0))[0].compile()
    assert compiled.data[:4] == b"\x7fELF"
    assert compiled.spill_bytes == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["odd_pairs_bfloat16", "columns_apart", "push_float32_swizzled", "fetch_bfloat16", "gelu"],
)
def test_compiles_for_blackwell(name: str) -> None:
    assert BY_NAME[name].make(np.random.default_rng(0))[0].compile("sm_100a").spill_bytes == 0


def printed(name: str) -> str:
    return BY_NAME[name].make(np.random.default_rng(0))[0].source()


@pytest.mark.parametrize(
    ("case", "words", "absent"),
    [
        (
            "pairs_float32",
            (
                "load_whole_pair_float(",
                "load_pair_float(",
                "store_whole_pair_float(",
                "store_pair_float(",
            ),
            (),
        ),
        (
            "pairs_bfloat16",
            ("load_whole_pair_u16(", "load_pair_u16(", "store_pair_u16("),
            ("from_bf16(line",),
        ),
        # no tensor map: the alignment is not known
        ("move_bfloat16", ("join(inside(",), ("load_pair",)),
        ("columns_first_float16", ("join(inside(",), ("load_pair",)),
        ("push_float32", ("store_float2_remote(", "load_float2("), ("store_float_remote(",)),
        ("push_bfloat16", ("store_u32_remote(", "ldmatrix_x4("), ("stmatrix", "load_u32(")),
        ("push_bfloat16_col", ("store_u16_remote(", "ldmatrix_x4_trans("), ("stmatrix",)),
        ("fetch_float32", ("load_float2_remote(",), ()),
        ("fetch_bfloat16", ("load_u32_remote(", "stmatrix"), ()),
        ("local_float32_1×40_row", ("if (warp_in_group == 0 && lane < 4)",), ()),
        ("value_a_row", ("if (lane % 4 == 0)",), ()),
    ],
)
def test_accesses(case: str, words: tuple[str, ...], absent: tuple[str, ...]) -> None:
    text = printed(case)
    assert [w for w in words if w not in text] == []
    assert [w for w in absent if w in text] == []


@pytest.mark.slow
def test_pairs_are_aligned_where_a_launch_says_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing copies this tensor by TMA, but two columns are one access because it has a box."""
    FakeDriver().install(monkeypatch, launching)
    program = BY_NAME["pairs_float32"].make(np.random.default_rng(0))[0]
    strides = {
        name: arg.array.strides
        for name, arg in program.launch_args.args.items()
        if isinstance(arg, TensorArg)
    }
    function: Any = SimpleNamespace(ordinal=0, max_clusters=132, handle="handle")
    launcher = launching.Launcher(program.launch_args, program.compile(), function, strides)
    launcher((0x2000, 0x4000))
    with pytest.raises(
        tp.BindError,
        match="tensor 'out' starts at 0x4008; one with a box starts at a multiple of 16 bytes",
    ):
        launcher((0x2000, 0x4008))
