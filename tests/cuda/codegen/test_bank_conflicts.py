"""Reductions among warps reach shared memory without bank conflicts: as few wavefronts as so many
words take.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.fragments import Case
from tests.cases.reductions import CASES
from tests.support.cuda.banks import Access, accesses, fewest, wavefronts
from tests.support.tracing import role_from_text


def conflicts(found: list[Access]) -> list[str]:
    """The accesses that take more wavefronts than they must, each with both numbers."""
    return [
        f"{x.line}: {wavefronts(lanes)}, not {fewest(lanes)}"
        for x in found
        for lanes in x.groups
        if wavefronts(lanes) > fewest(lanes)
    ]


@pytest.mark.parametrize(
    ("stride", "width", "want", "least"),
    [
        (1, 1, 1, 1),
        (2, 2, 2, 2),
        (8, 2, 8, 2),  # lanes whose columns are vectors of 8
        (32, 1, 32, 1),
        (33, 1, 1, 1),
        (0, 2, 1, 1),  # all lanes read the same
    ],
)
def test_wavefronts(stride: int, width: int, want: int, least: int) -> None:
    lanes = [[stride * lane + i for i in range(width)] for lane in range(32)]
    assert (wavefronts(lanes), fewest(lanes)) == (want, least)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_cases_have_no_conflicts(case: Case) -> None:
    source = case.make(np.random.default_rng(0))[0].source()
    found = accesses(source)
    assert bool(found) == ("_partials()" in source)
    assert conflicts(found) == []


@pytest.mark.sampled(suite=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "rows", "step", "most"),
    [("wgmma", 64, 8, 256), ("tmem", 128, 8, 128)]
    + [(f"rows:{t}", 256 // t, 8 * t, 64 * min(t, 32)) for t in (1, 2, 4, 8, 16, 32, 64)],
)
def test_no_number_of_columns_has_conflicts(layout: str, rows: int, step: int, most: int) -> None:
    for cols in range(step, most + 1, step):
        text = (
            f"f = ctx.fragment(shape=({rows}, {cols}), dtype='float32', layout='{layout}')\n"
            "f.fill(1)\ng = ctx.fragment(f.sum(axis=0))"
        )
        found = accesses(role_from_text(text, "warpgroups=1").source())
        assert found
        assert conflicts(found) == [], cols


def test_each_word_is_written_once_and_read() -> None:
    text = "f = ctx.fragment(shape=(64, 96))\nf.fill(1)\ng = ctx.fragment(f.sum(axis=0))"
    found = accesses(role_from_text(text, "warpgroups=1").source())
    written = [w for x in found if "store" in x.line for lane in x.lanes for w in lane]
    read = {w for x in found if "load" in x.line for lane in x.lanes for w in lane}
    assert sorted(written) == sorted(read) == list(range(4 * 96))
