"""The instructions of reductions of columns, and of whole tiles, as NVRTC unrolls them."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from tests.cases.reductions import CASES
from tilepipe import cuda


def instructions(name: str) -> Counter[str]:
    """How often each instruction is in the PTX of a case."""
    case = next(case for case in CASES if case.name == name)
    kernel = case.make(np.random.default_rng(0))[0].kernel
    text = cuda.compile(kernel, emit="ptx").data.decode()
    return Counter(re.findall(r"^\s+(?:@\S+ )?([a-z][\w.:]+)", text, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shuffles", "words"),
    [
        ("wide", 32 * 7 // 8, 2),  # of 32 columns a lane: 16, 8 and 4, of which it writes the last
        ("wgmma", 3 * 3, 3),  # of 6 columns: 3 for a half, and 3 for each of two steps of 3
        ("eight_threads_a_row", 16 * 3 // 4, 2),  # 8 and 4
        ("warp_a_row", 0, 4),
        ("four_warps_a_row", 0, 0),
    ],
)
def test_lanes_halve_the_columns_that_they_share(name: str, shuffles: int, words: int) -> None:
    found = instructions(f"column_sum_{name}_float32")
    assert found["shfl.sync.bfly.b32"] == shuffles
    stores = found["st.shared::cta.v2.f32"] + found["st.shared::cta.f32"]
    assert stores == words
    assert found["bar.sync"] + found["barrier.sync"] == (2 if words else 0)


@pytest.mark.slow
def test_integers_of_a_tile_are_reduced_by_redux() -> None:
    found = instructions("tile_max_wgmma_int32")
    assert found["redux.sync.max.s32"] == 1
    assert found["shfl.sync.bfly.b32"] == 0
    assert instructions("tile_max_wgmma_float32")["shfl.sync.bfly.b32"] == 5
