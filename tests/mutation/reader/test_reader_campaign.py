"""A small part of the campaign on the reader, and the page that the whole of it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.reader.mistakes import MISTAKES, PAIRS, Mistake
from tests.mutation.reader.planting import Edit, planted
from tests.mutation.reader.run import judge
from tilepipe.ptx.numerics import carry, logic

PAGE = Path(__file__).parents[3] / "docs" / "generated" / "ptx-planted.md"


@pytest.mark.slow
def test_a_planted_mistake_is_there_within_the_block_alone() -> None:
    table = dict(logic._PERMUTATIONS)
    edits = (
        Edit(logic.__name__, '"ecl": (0x3210, 0x3211', '"ecl": (0x1111, 0x3211'),
        Edit(carry.__name__, "with_carry = total + carry.astype(a.dtype)", "with_carry = total"),
    )
    code = carry._add_carry.__code__
    with planted(edits):
        assert logic._PERMUTATIONS["ecl"][0] == 0x1111
        assert carry._add_carry.__code__ is not code
    assert table == logic._PERMUTATIONS
    assert carry._add_carry.__code__ is code


def test_what_does_not_stand_there_cannot_be_planted() -> None:
    with (
        pytest.raises(ValueError, match="stands there 0 times"),
        planted((Edit(logic.__name__, "no such text", ""),)),
    ):
        raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("mistake", PAIRS[5:7] + PAIRS[2:4], ids=lambda m: m.name)
def test_errors_that_could_cancel_are_noticed(mistake: Mistake) -> None:
    assert judge(mistake).witness


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)
def test_every_mistake_is_noticed_or_has_a_reason(mistake: Mistake) -> None:
    assert bool(judge(mistake).witness) != bool(mistake.reason)


def test_the_page_has_every_mistake() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "not explained" not in text
    assert [m.name for m in MISTAKES if f"| {m.name} |" not in text] == []
    assert len(MISTAKES) >= 60
