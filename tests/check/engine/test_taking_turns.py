"""Two groups of warps that take turns by named barriers, the first of which opens its own turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.check.corpus.bugs import FOLDER
from tilepipe import ptx
from tilepipe.check import check, replay
from tilepipe.cuda.nvrtc.compiler import nvrtc, options

SOURCE = Path(__file__).with_name("taking_turns.cu")
Floats = npt.NDArray[np.float32]


def launch(*macros: str) -> tuple[ptx.Launch, Floats, Floats]:
    """A launch, with the tiles that it loads and its output."""
    given = (*options("sm_90a", "ptx", lineinfo=True), f"--include-path={FOLDER}", *macros)
    text = nvrtc(SOURCE.read_text(encoding="utf-8"), str(SOURCE), "ptx", given)[1]
    tiles, out = np.arange(5 * 64, dtype=np.float32).reshape(5, 64), np.zeros(64, np.float32)
    return ptx.load(text)["kernel"].bind([tiles, out], grid=1), tiles, out


@pytest.mark.slow
def test_a_group_may_open_its_own_turn() -> None:
    made, tiles, out = launch()
    verdict = check(made)
    assert (verdict.verdict, verdict.method, verdict.faults) == ("verified", "single-execution", [])
    for seed in range(3):
        out[:] = 0
        made.run(seed)
        np.testing.assert_array_equal(out, 3 * tiles.sum(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opened", "kind", "says"),
    [
        ("false", "DeadlockError", "64 of 128 threads"),
        # it opens each turn, also those that the other group hands to it
        ("true", "BarrierError", "arrives at named barrier 'barrier 1' again before it was reset"),
        ("(tile==1)", "DeadlockError", "64 of 128 threads"),
        ("(tile!=3)", "BarrierError", "which arrivals count together depends on timing"),
    ],
)
def test_a_turn_is_opened_once(opened: str, kind: str, says: str) -> None:
    made, _, _ = launch(f"--define-macro=OPENED={opened}")
    (fault,) = check(made).faults
    assert fault.kind == kind
    assert says in fault.message
    assert str(replay(made, fault.schedule)) == fault.message
