"""Launches of PTX are checked, replayed and asserted as programs are."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilepipe as tp
from tests.ptx.foreign import launching, problems
from tests.ptx.isa.programs import kernel
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
    assert verdict.verdict == "undecided"
    first = endless[: endless.index("MORE:")].count("\n") + 2
    assert verdict.bound.startswith("0.2 seconds (Bounds(seconds=), 600 by default). Still going: ")
    assert f"in the loop of PTX lines {first}-{first + 1}, at PTX line " in verdict.bound


# A loop of line 7 inside one of line 5; what the inner one does stands in line 8.
NESTED = """
.version 8.7
.target sm_90a
.address_size 64
.file 1 "spin.cu"
.visible .entry spin(.param .u64 flag) {
    .reg .b64 %flag; .reg .b32 %n, %seen; .reg .pred %p;
    ld.param.u64 %flag, [flag];
OUTER:
    .loc 1 6 0
    mov.u32 %n, 0;
INNER:
    .loc 1 8 0
    {inner}
    .loc 1 7 0
    setp.ne.u32 %p, %n, 0x7fffffff;
    @%p bra INNER;
    .loc 1 5 0
    bra OUTER;
}
"""
COUNTS = {
    "arithmetic": "add.u32 %n, %n, 1;",
    "an atomic addition": "atom.global.add.u32 %n, [%flag], 2;",
    "a poll that counts": "ld.volatile.global.u32 %seen, [%flag]; add.u32 %n, %n, 1;",
}


@pytest.mark.slow
@pytest.mark.parametrize("inner", COUNTS.values(), ids=COUNTS.keys())
def test_an_undecided_verdict_names_the_loop_that_kept_going(inner: str) -> None:
    made = ptx.load(NESTED.replace("{inner}", inner)).only()
    flag = [np.zeros(1, np.int32)]
    verdict = made.bind(flag, grid=1, block=32).check(bounds=Bounds(seconds=0.2))
    assert verdict.verdict == "undecided"
    assert (
        "Still going: warp 0 in the loop at spin.cu:7 (PTX lines 14-17), inside the one at"
        " spin.cu:5 (PTX lines 11-19), at spin.cu:"
    ) in verdict.bound


@pytest.mark.slow
def test_steps_that_run_out_name_the_argument_and_the_loop() -> None:
    made = ptx.load(NESTED.replace("{inner}", COUNTS["an atomic addition"])).only()
    launch = made.bind([np.zeros(1, np.int32)], grid=1, block=32)
    bound = launch.check(bounds=Bounds(steps=100)).bound
    assert bound.startswith("100 steps of one execution (Bounds(steps=)). Still going: warp 0 in")
    assert bound.endswith("at spin.cu:8 (PTX line 14): atom.global.add.u32 %n, [%flag], 2")


def test_what_is_not_modelled_on_the_way_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(self: Warp, answer: object) -> None:
        raise tp.PtxError("PTX line 7: a value that is not modelled")

    monkeypatch.setattr(Warp, "send", send)
    verdict = launch().check()
    assert verdict.verdict == "undecided"
    assert verdict.bound == "not modelled: PTX line 7: a value that is not modelled"


@pytest.mark.slow
def test_advice_about_the_same_lines_is_one_entry() -> None:
    """Each of the registers that Triton uses before the wait is in a line of the source."""
    name = "triton_attention_sm100"
    verdict = launching.launch(name, problems.problem(name)).check()
    assert verdict.ok
    loaded = [text for text in verdict.advice if text.startswith("loaded registers")]
    assert [re.findall(r"\((\d+) more like this at the same line\)$", text) for text in loaded] == [
        ["65"], ["1"], [],
    ]  # fmt: skip
    assert len(verdict.advice) < 10
    assert verdict.report()["advice"] == verdict.advice


FIRST = "no op of the kernel depends on which agent comes first: no "
_BAR = """
    .shared .align 8 .b64 bar; setp.eq.u32 %p1, %t, 0;
    @%p1 mbarrier.init.shared.b64 [bar], 32;
    bar.sync 0;
    mbarrier.arrive.shared.b64 _, [bar];
    W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
    @!%p2 bra W;
    """


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", [f"{FIRST}atomic add or request for work"]),
        (
            "red.global.add.u32 [%b0], 1;",
            [f"{FIRST}request for work, or atomic add whose result is used"],
        ),
        (
            "bar.sync 0;",
            [
                f"{FIRST}atomic add or request for work",
                "the one arrival, expected transaction or copy is made by a thread that knows the"
                " phase before to be complete",
            ],
        ),
        (
            _BAR,
            [
                f"{FIRST}atomic add or request for work, and each try_wait is repeated until its"
                " phase is complete: it is a wait",
                "each of 2 arrivals, expected transactions and copies is made by a thread that"
                " knows the phase before to be complete",
            ],
        ),
    ],
)
def test_facts_are_about_what_the_kernel_does(text: str, facts: list[str]) -> None:
    verdict = kernel(text, 1).bind([np.zeros(4, np.uint32)], grid=1, block=32).check()
    assert (verdict.verdict, verdict.method) == ("verified", "single-execution")
    assert verdict.facts == facts
