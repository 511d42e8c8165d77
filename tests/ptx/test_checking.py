"""Launches of PTX are checked, replayed and asserted as programs are."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.support.handover import ARRIVE, PTX, launch
from tilepipe import testing
from tilepipe.check import Bounds


def test_a_launch_checks_itself_and_replays_its_fault() -> None:
    good = launch()
    (out,) = good.args
    assert isinstance(out, np.ndarray)
    out[:] = 7
    verdict = good.check(instance="two CTAs")
    assert (verdict.verdict, verdict.instance) == ("verified", "two CTAs")
    assert (out == 7).all()
    bad = launch(PTX.replace(ARRIVE, ""))
    found = bad.check(explore=True, bounds=Bounds(traces=10), rules="strict")
    assert found.method == "explored"
    again = bad.replay(found, rules="strict")
    assert isinstance(again, tp.DeadlockError)
    assert str(again) == found.faults[0].message
    with pytest.raises(tp.BindError, match="this verdict has none"):
        bad.replay(verdict)


def test_the_name_of_a_launch() -> None:
    assert str(launch()) == "handover of out (64,), grid 2, block 64"


def test_an_assertion() -> None:
    verdict = testing.check(launch(), launch(ctas=1))
    assert verdict.instance == (
        "handover of out (64,), grid 2, block 64; handover of out (32,), grid 1, block 64"
    )
    with pytest.raises(testing.CheckFailed, match=r"handover of out \(64,\)") as failed:
        testing.check(launch(PTX.replace(ARRIVE, "")))
    assert "try_wait" in str(failed.value)
    with pytest.raises(tp.BindError, match="check takes programs"):
        testing.check(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(tp.BindError, match="run takes programs"):
        testing.run(launch())  # type: ignore[arg-type]


@pytest.mark.parametrize("explore", [False, True])
def test_an_endless_loop_of_arithmetic_ends_with_the_time(explore: bool) -> None:
    endless = PTX.replace(ARRIVE, "MORE:\n    add.u32 %r4, %r4, 1;\n    bra MORE;\n")
    verdict = launch(endless).check(explore=explore, bounds=Bounds(seconds=0.2))
    assert (verdict.verdict, verdict.bound) == ("undecided", "0.2 seconds")
    assert verdict.seconds < 2


def test_what_is_not_modelled_on_the_way_is_undecided() -> None:
    """It is found when the kernel comes to it."""
    index = PTX.replace(
        "    st.shared.u32",
        "    TABLE: .branchtargets ONE;\n    brx.idx %r1, TABLE;\nONE:\n    st.shared.u32",
    )
    verdict = launch(index).check()
    assert verdict.verdict == "undecided"
    assert verdict.bound.startswith("not modelled: brx.idx: index 31 of 1 labels")
