"""docs/verification-gaps.md: its kernels are run by tests/test_docs.py; here, that they slip through an exploration, too."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.readme import ROOT, blocks, run
from tilepipe.sim import global_order
from tilepipe.testing import check

PAGE = ROOT / "docs" / "verification-gaps.md"
CHECK = "from tilepipe.testing import CheckFailed, check, run\n"


def code() -> str:
    return "\n".join(blocks(PAGE, "python"))


def test_each_gap_has_a_kernel_that_slips_through() -> None:
    gaps = PAGE.read_text(encoding="utf-8").split("\n### ")[1:]
    assert len(gaps) >= 13
    assert [gap.splitlines()[0] for gap in gaps if "```python" not in gap or ("check(" not in gap and "fault(" not in gap)] == []


def test_they_slip_through_an_exploration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = code()
    assert text.count(CHECK) == 1
    explored = f"{CHECK}import functools\n\ncheck = functools.partial(check, explore=True)\n"
    run(text.replace(CHECK, explored), tmp_path / "gaps_page.py")


def test_old_accesses_are_let_go_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page says of five thousand rows, with room for a hundred accesses where the simulator has it for 4,096."""
    (block,) = [text for text in blocks(PAGE, "python") if "def long(" in text]
    head = blocks(PAGE, "python")[0]
    long = run(f"{head}\n{block}", tmp_path / "long.py")["long"]
    assert re.search(r"until there are 4,096;", PAGE.read_text(encoding="utf-8"))
    assert global_order.LIMIT == 4096
    monkeypatch.setattr(global_order, "LIMIT", 100)
    verdict = check(long.bind(np.zeros((120, 32), np.int32)))
    assert any("the oldest are no longer compared" in text for text in verdict.advice)
