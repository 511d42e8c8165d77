"""`tilepipe check` of what is explored: why, and that it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.copying import Call
from tilepipe.cli import common

LOWERED = """import numpy as np
import tilepipe as tp


@tp.kernel(grid=2)
def lowered(ctx, flags):
    @ctx.role("one", warps=1)
    def one():
        with ctx.elect_one():
            with ctx.when(ctx.block_id == 0):
                ctx.store(flags[0], 1, order="release")
            with ctx.otherwise():
                ctx.wait_until(flags[0], lambda flag: flag == 1)
                ctx.store(flags[0], 0)


def program():
    return lowered.bind(np.zeros(1, np.int32))
"""
WHY = "the loop at lowered.py:13 waits for 'flags', which an ordinary store at lowered.py:14 writes"


@pytest.fixture
def kept(tmp_path: Path) -> str:
    (tmp_path / "lowered.py").write_text(LOWERED, encoding="utf-8")
    return f"{tmp_path / 'lowered.py'}:program"


@pytest.mark.slow
def test_the_reason_is_shown(tilepipe: Call, kept: str) -> None:
    code, out, err = tilepipe("check", kept, "--small")
    assert (code, err) == (0, "")
    assert f"Explored, since one execution does not stand for all:\n  {WHY}" in out
    code, out, _ = tilepipe("check", kept, "--small", "--traces", "1")
    assert code == 2
    assert "check a smaller instance. Why it is explored stands above." in out
    _, out, _ = tilepipe("check", kept, "--small", "--json")
    assert json.loads(out)["explored_because"].startswith(WHY)


def test_a_long_check_says_that_it_goes_on(
    tilepipe: Call, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stderr, where no progress bar does."""
    monkeypatch.setattr(common, "HEARTBEAT", 0.0)
    _, _, err = tilepipe("check", kept, "--small", "--json")
    assert "still checking 'flags (1,), 2 CTAs': 0 executions done, " in err
    assert "known to be left, 0 of at most 600 seconds (--seconds)" in err
