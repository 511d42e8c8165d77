"""The campaign of generated kernels, a sample of it: no verdict is wrong. `python -m
tests.check.campaign` is all of it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

import tilepipe as tp
from tests.check.campaign import __main__ as command
from tests.check.campaign.drawing import PAIRS, drawn
from tests.check.campaign.features import FEATURES
from tests.check.campaign.judge import judge
from tests.check.campaign.lines import Kernel
from tests.check.campaign.mistakes import MISTAKES, plant
from tests.check.campaign.report import pairs
from tests.check.campaign.skeletons import skeleton
from tilepipe.check import Verdict

# campaigns; other files of this folder have a quick test for each of their rules
pytestmark = pytest.mark.slow

SEEDS = 40  # of `run`; the campaign has 300
SIGNS = {  # what the text of a kernel with a feature has
    "peek": ".try_wait(",
    "poll": "ctx.loop_while(",
    "counter": "tries",
    "fragment": "warpgroups=1",
    "global": "ctx.store(",
    "tma": "ctx.tma_",
    "atomic": "ctx.atomic_add(",
    "cluster": "cluster=2",
    "again": ".inval()",
    "elected": "== 5)",
    "four": "warps=4",
}


SETS = [
    frozenset(s.split())
    for s in ("peek poll counter tma", "cluster tma elected", "atomic global", "again global tma")
]


@pytest.mark.sampled(suite=12)
@pytest.mark.parametrize("number", range(12))
def test_no_verdict_is_wrong(number: int) -> None:
    """Five kernels in `make test`; `make test-all` adds 55."""
    for one in range(5 * number, 5 * number + 5):
        kernel, made = drawn(1, one)
        outcome = judge(kernel, range(SEEDS), made)
        assert not outcome.violation, f"{outcome.mistake}: {outcome.violation}\n{kernel.script()}"


@pytest.mark.sampled(suite=6)
@pytest.mark.parametrize("number", range(6))
def test_reductions_change_no_verdict(number: int) -> None:
    """One kernel in `make test`; `make test-all` adds five."""
    kernel, made = drawn(2, number, frozenset({"peek"} if number else {"tma"}), "")
    assert not judge(kernel, range(2), made, compare=True).violation


def test_a_kernel_has_the_features_that_are_asked_for() -> None:
    for number, required in enumerate(PAIRS):
        kernel = skeleton(Random(number), required)
        assert required <= kernel.features <= FEATURES.keys()
        for feature in kernel.features - {"global"}:
            assert SIGNS[feature] in kernel.text(), f"{feature}\n{kernel.text()}"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_has_a_place(mistake: str) -> None:
    for number in range(60):
        right = skeleton(Random(number), SETS[number % len(SETS)])
        wrong = plant(Random(number), right, mistake)
        if wrong is not None:
            assert wrong.text() != right.text()
            assert wrong.mistake.startswith(mistake)
            assert not right.mistake, "the right kernel is left as it is"
            return
    pytest.fail(f"no kernel has a place for {mistake!r}")


def test_the_same_number_is_the_same_kernel() -> None:
    (first, _), (again, _) = drawn(3, 7), drawn(3, 7)
    assert first == again
    assert first != drawn(3, 8)[0]


def decided(mistake: str, wanted: str) -> tuple[Kernel, tp.Program, Verdict]:
    """A generated kernel on which the verdict is `wanted`."""
    for number in range(20):
        kernel, made = drawn(4, number, frozenset({"elected"}), mistake)
        assert isinstance(made, tp.Program)
        verdict = made.check()
        if verdict.verdict == wanted:
            return kernel, made, verdict
    pytest.fail(f"no kernel is {wanted}")


def test_a_wrong_verdict_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge beside a check that says the opposite of what is true."""
    right, clean, verified = decided("", "verified")
    wrong, faulty, fault = decided("a meeting left out", "fault")
    monkeypatch.setattr(
        tp.Program, "check", lambda self, **options: verified if self is faulty else fault
    )
    assert judge(wrong, range(SEEDS), faulty).violation.startswith("verified, and seed")
    assert judge(right, range(2), clean).violation.startswith(
        f"the replay of {fault.faults[0].kind} ends in no fault"
    )
    error = faulty.replay(fault)
    monkeypatch.setattr(tp.Program, "replay", lambda self, fault: error)
    assert judge(right, range(2), clean).violation.startswith("a right kernel is called faulty")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    options = [
        "--seeds",
        "2",
        "--compare",
        "0",
        "--require",
        "elected",
        "--mistake",
        "",
        "--log",
        str(log),
    ]
    assert command.main(["--kernels", "1", *options]) == 0
    first = log.read_text(encoding="utf-8")
    assert json.loads(first)["verdict"] == "verified"
    assert command.main(["--kernels", "2", *options]) == 0  # goes on behind the first
    assert log.read_text(encoding="utf-8").startswith(first)
    said = capsys.readouterr().out
    assert "2 kernels: 2 verified, 0 faulty" in said
    assert "Wrong verdicts: 0." in said
    outcomes = command.logged(log)
    assert pairs(outcomes)["elected", "elected"] == 2
    assert Counter(o.seeds for o in outcomes) == {2: 2}
