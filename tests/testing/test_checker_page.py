"""docs/concepts/checker.md: the test that it shows passes, its table tells the truth, its example
is right in one order and wrong in another.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.testing import CheckFailed, check
from tools.docs import shown
from tools.docs.readme import ROOT, blocks, run

PAGE = ROOT / "docs" / "concepts" / "checker.md"


def test_the_test_that_it_shows_passes(tmp_path: Path) -> None:
    (block,) = [text for text in blocks(PAGE, "python") if "def test_doubled" in text]
    run(block, tmp_path / "test_doubled.py")["test_doubled"]()


@pytest.mark.slow
def test_its_ring_is_right_in_one_order_and_wrong_in_another(tmp_path: Path) -> None:
    program = run(shown.files(PAGE.read_text(encoding="utf-8"))["ring.py"], tmp_path / "ring.py")[
        "program"
    ]
    wrong = program()
    fine = 0
    for seed in range(30):
        try:
            wrong.run(seed=seed)
        except tp.SimFault:
            continue
        out = wrong.launch_args.args["out"].array
        assert np.all(out == 2)
        fine += 1
    assert 10 <= fine <= 20, "the page says that every second seed is right"
    with pytest.raises(CheckFailed, match="RaceError: race on slots"):
        check(wrong)
    verdict = check(program(waits=True))
    assert (verdict.method, verdict.traces) == ("single-execution", 2)
    assert check(program(waits=True), explore=True).traces > 1


def test_its_table_names_errors_and_tests_that_there_are() -> None:
    rows = re.findall(
        r"^\| .+ \| (`.+) \| .+ \| ([\w/]+/test_\w+\.py) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) >= 15
    for errors, file in rows:
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        named = re.findall(r"`(\w+)`", errors)
        assert all(issubclass(getattr(tp, name), tp.SimFault) for name in named)
        assert any(name in text for name in named), f"{file} names none of {named}"
