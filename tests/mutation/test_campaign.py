"""A small part of the campaign, and the page that the whole of it wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutation.cases import (
    FAMILIES,
    MORE,
    NOT_ON_THE_PAGE,
    NOTHING_TO_MUTATE,
    STEEP,
    cases,
)
from tests.mutation.page import page
from tests.mutation.results import Result
from tests.mutation.run import campaign, loaded, main
from tilepipe.check.mutation.mutants import mutants
from tilepipe.registry.catalog import KERNELS

PAGE = Path(__file__).parents[2] / "docs" / "generated" / "mutants.md"


def test_every_kernel_and_example_has_a_case() -> None:
    assert {case.kernel for case in cases()} == {*KERNELS, "examples"} - NOTHING_TO_MUTATE


@pytest.mark.parametrize("name", sorted(NOTHING_TO_MUTATE))
def test_a_kernel_without_a_case_has_no_mutant(name: str) -> None:
    _, instances = KERNELS[name].instances({"page": 8})
    assert [list(mutants(x.make().launch_args.kernel)) for x in instances] == [[], []]


def test_every_family_with_more_instances_exists() -> None:
    known = {(kernel, name) for kernel, families in FAMILIES.items() for name in families}
    assert known >= {*MORE, *STEEP}


@pytest.mark.parametrize(
    "family",
    [
        "02_ring",
        "cluster along M",
        "sm_100, static",
        pytest.param("one consumer", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.slow
def test_every_survivor_is_explained(family: str) -> None:
    found = campaign([family], sample=7)
    assert len(found) > 7
    assert [
        r for r in found if r.fate == "undecided" or (r.fate == "redundant" and not r.reason)
    ] == []
    assert sum(r.fate == "fault" for r in found) > len(found) / 2


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.md"
    name = "01_two_warps_one_barrier"
    assert main(["--kernels", name, "--jobs", "1", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"\d+ mutants: \d+ caught, \d+ redundant, 0 of them unexplained", said)
    assert "is not written: it is about all mutants, these are some" in said.replace("\n", " ")
    assert not out.exists()  # these are some of the mutants


@pytest.mark.slow
def test_a_page_of_results_that_were_kept(tmp_path: Path) -> None:
    out, kept = tmp_path / "page.md", tmp_path / "results.gz"
    name = "01_two_warps_one_barrier"
    assert main(["--kernels", name, "--jobs", "1", "--save", str(kept)]) == 0
    assert main(["--load", str(kept), "--out", str(out)]) == 0
    text = out.read_text(encoding="utf-8")
    assert "| drop wait |" in text
    assert text == page(loaded([kept]))
    assert " mutants** of 1 configuration of the examples: " in text


def test_the_page_shows_what_is_unexplained() -> None:
    lost = Result(
        "gemm", "one", "drop wait", "dropped: it", "gemm.py:1", "redundant", "", "", "", 1, 1, 0.1
    )
    text = page([lost, lost])
    assert (
        "### Unexplained\n\n```text\ngemm, gemm.py:1: drop wait: dropped: it, in 2"
        " configurations\n```" in text
    )
    assert "**2 mutants** of 1 configuration of 1 kernel: " in text
    assert "2 of them without an explanation" in text


def test_nothing_on_the_page_is_unexplained() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "unexplained" not in text.lower()
    assert re.search(
        r"[\d,]+ mutants\*\* of \d+ configurations .* 0 of them without an explanation, 0"
        r" undecided",
        text,
    )
    absent = {(x.kernel, x.name) for x in cases() if f"| {x.kernel}: {x.name} |" not in text}
    assert absent == NOT_ON_THE_PAGE
