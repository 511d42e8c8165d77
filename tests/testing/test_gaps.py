"""docs/verification-gaps.md: its kernels are run by tests/test_docs.py; here, that they slip
through an exploration, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.machine.happens_before import global_history as global_order
from tilepipe.testing import CheckFailed, check
from tools.docs.readme import ROOT, blocks, run

PAGE = ROOT / "docs" / "verification-gaps.md"
CHECK = "from tilepipe.testing import CheckFailed, check, run\n"


def code() -> str:
    return "\n".join(blocks(PAGE, "python"))


def test_each_gap_has_a_kernel_that_slips_through() -> None:
    gaps = PAGE.read_text(encoding="utf-8").split("\n### ")[1:]
    assert len(gaps) >= 12
    assert [
        gap.splitlines()[0]
        for gap in gaps
        if "```python" not in gap or ("check(" not in gap and "fault(" not in gap)
    ] == []


@pytest.mark.slow
def test_they_slip_through_an_exploration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a block writes files
    text = code()
    assert text.count(CHECK) == 1
    explored = f"{CHECK}import functools\n\ncheck = functools.partial(check, explore=True)\n"
    run(text.replace(CHECK, explored), tmp_path / "gaps_page.py")


@pytest.mark.slow
def test_old_accesses_that_are_let_go_leave_it_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gap, therefore: what a run lets go with an advice, a check does not call verified."""

    @tp.kernel()
    def long(ctx: tp.Context, out: Any) -> None:
        tick = tp.SharedMemBarrier.allocate(ctx, 32, "tick")

        @ctx.role("first", warps=1)
        def first() -> None:
            for i in ctx.range(out.shape[0]):
                ctx.store(out[i, ctx.lane], i)
                tick.arrive()

        @ctx.role("second", warps=1)
        def second() -> None:
            ctx.syncwarp()

    assert check(long.bind(np.zeros((120, 32), np.int32))).ok
    monkeypatch.setattr(global_order, "LIMIT", 100)
    with pytest.raises(CheckFailed, match="undecided") as caught:
        check(long.bind(np.zeros((120, 32), np.int32)))
    assert "100 live accesses of a cluster to tensor 'out'" in str(caught.value)
