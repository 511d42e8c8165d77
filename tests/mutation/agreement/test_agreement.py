"""A sample of the comparison, its stored results, and the page that the whole of it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.agreement.judging import Pair, Side
from tests.mutation.agreement.page import classed, page
from tests.mutation.agreement.reasons import reason
from tests.mutation.agreement.run import judge, main, stored
from tests.mutation.agreement.subjects import mutated

PAGE = Path(__file__).parents[3] / "docs" / "generated" / "ptx-agreement.md"


@pytest.mark.slow
def test_both_front_ends_agree_on_mutants_of_an_example() -> None:
    found = [judge(subject) for subject in mutated(8, "02_ring")]
    assert [p for p in found if not p.agrees] == []
    assert {classed(p) for p in found} == {"both verified", "both fault"}


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", ["gemm: one", "gemm: sm_100, static", "attention: free"])
def test_each_disagreement_on_mutants_of_a_kernel_is_explained(kernel: str) -> None:
    found = [judge(subject) for subject in mutated(12, kernel)]
    assert found
    assert [p for p in found if not p.agrees and not reason(p)] == []


@pytest.mark.slow
def test_stored_results_are_not_found_again(tmp_path: Path) -> None:
    results, out = tmp_path / "results.jsonl", tmp_path / "page.md"
    arguments = ["--groups", "mutants", "--only", "01_two", "--rounds", "2"]
    arguments += ["--results", str(results), "--out", str(out)]
    assert main(arguments) == 0
    before, text = results.read_text(encoding="utf-8"), out.read_text(encoding="utf-8")
    assert len(stored(results)) == 2
    assert main(arguments) == 0
    assert results.read_text(encoding="utf-8") == before
    assert out.read_text(encoding="utf-8") == text


def test_the_page_names_what_has_not_been_compared(tmp_path: Path) -> None:
    out = tmp_path / "page.md"
    arguments = ["--groups", "examples", "--only", "0", "--stored", "--out", str(out)]
    assert main([*arguments, "--results", str(tmp_path / "none.jsonl")]) == 0
    text = out.read_text(encoding="utf-8")
    assert "- 01_two_warps_one_barrier: its instance" in text
    assert "Of **0 launches of kernels**" in text


def test_what_is_not_explained_stands_on_the_page() -> None:
    lost = Pair("mutants", "k", "0", Side("fault"), Side("verified"), "drop wait", "w", "k.py:1", 3)
    assert "**Unexplained.** 1:" in page([lost])
    assert "Unexplained" not in PAGE.read_text(encoding="utf-8")
