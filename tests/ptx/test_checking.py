"""Launches of PTX are checked, replayed and asserted as programs are."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.support.handover import ARRIVE, PTX, launch
from tilepipe import ptx, testing
from tilepipe.check import Bounds
from tilepipe.ptx.execution.warp import Warp


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
    text = PTX.replace("handover(.param .u64 out)", "_Z8handoverPi(.param .align 8 .b8 o[16])")
    given = ptx.Struct(16, {0: np.zeros((2, 32), np.int32), 8: np.int32(3)})
    made = ptx.load(text.replace("[out]", "[o]"))["handover"].bind([given], grid=(1, 2))
    assert str(made) == "handover of o (2, 32), 3, grid 1×2, block 64"


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


def test_what_is_not_modelled_on_the_way_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(self: Warp, answer: object) -> None:
        raise tp.PtxError("PTX line 7: a value that is not modelled")

    monkeypatch.setattr(Warp, "send", send)
    verdict = launch().check()
    assert verdict.verdict == "undecided"
    assert verdict.bound == "not modelled: PTX line 7: a value that is not modelled"
