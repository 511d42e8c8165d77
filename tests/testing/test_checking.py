"""`tilepipe.testing.check` passes what is right, and fails with the story of what is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at
from tests.testing import kernels
from tests.testing.kernels import bind_doubled, bind_drawn
from tilepipe.check import Bounds, Fault, Step, Verdict
from tilepipe.check.counterexamples.relevant_steps import as_text
from tilepipe.testing import CheckFailed, check
from tilepipe.testing.checking import instance

FILE = str(Path(kernels.__file__))


@pytest.mark.parametrize("explore", [False, True])
def test_what_is_right_is_verified(explore: bool) -> None:
    program, _, out = bind_doubled()
    verdict = check(program, explore=explore)
    assert verdict.ok
    assert not out.any(), "a check writes nothing"
    assert verdict.instance == "doubled of a 5×32, out 5×32, 1 CTA"


def test_several_programs_are_one_verdict() -> None:
    verdict = check(*(bind_doubled(rows)[0] for rows in (1, 3, 7)))
    assert [text.split(",")[0] for text in verdict.instance.split("; ")] == [
        f"doubled of a {rows}×32" for rows in (1, 3, 7)
    ]
    assert verdict.traces >= 3


def test_a_fault_is_an_assertion_with_its_message() -> None:
    program, _, _ = bind_doubled(early=True)
    with pytest.raises(AssertionError) as caught:
        check(program)
    assert isinstance(caught.value, tp.TilepipeError)
    text = str(caught.value)
    for words in (
        "fault: doubled of a 5×32",
        "RaceError",
        "role 'use'",
        "role 'fill'",
        at(FILE, "fills"),
        at(FILE, "uses"),
    ):
        assert words in text, text


def test_a_fault_that_needs_no_particular_order() -> None:
    with pytest.raises(CheckFailed) as caught:
        check(kernels.stuck.bind(np.zeros(32, np.int32)))
    (fault,) = caught.value.verdict.faults
    assert (fault.kind, fault.loc) == ("DeadlockError", at(FILE, "stuck"))
    assert "nothing in the kernel arrives on it" in str(caught.value)


def test_the_first_program_that_fails_is_the_last_that_is_looked_at() -> None:
    program, _, _ = bind_doubled(3, early=True)
    with pytest.raises(CheckFailed) as caught:
        check(bind_doubled(2)[0], program, kernels.stuck.bind(np.zeros(32, np.int32)))
    assert caught.value.verdict.instance.startswith("doubled of a 3×32")
    assert "DeadlockError" not in str(caught.value)


def test_a_bound_that_was_hit_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(*_: object, instance: str, bounds: Bounds, **__: object) -> Verdict:
        return Verdict(
            "undecided",
            "explored",
            instance,
            7,
            bounds.traces,
            1.0,
            bound=f"{bounds.traces} executions",
        )

    monkeypatch.setattr("tilepipe.check.check", gives_up)
    with pytest.raises(CheckFailed, match="undecided: doubled of a 5×32") as caught:
        check(bind_doubled()[0], bounds=Bounds(traces=3))
    for words in (
        "3 executions",
        "no proof",
        "smaller instance",
        "bounds=tilepipe.check.Bounds(...)",
    ):
        assert words in str(caught.value)


def test_what_is_no_program() -> None:
    with pytest.raises(tp.BindError, match=r"check takes programs, which kernel\.bind"):
        check(kernels.doubled)  # type: ignore[arg-type]


def test_an_instance_in_words() -> None:
    assert instance(bind_drawn(4)[0]) == "drawn of a 4, out 4, counter 1, 4 CTAs"


def test_a_story_is_a_table_of_what_matters() -> None:
    steps = (
        Step("role 'load' of CTA 0", "tma_load a -> tile", "gemm.py:9"),
        Step("unit", "the copy lands", "gemm.py:9", "full[0]: phase 0 complete"),
    )
    assert as_text(Fault("RaceError", "race", "gemm.py:9", steps=steps, left_out=1_240)) == [
        "counterexample (the 2 of 1,242 steps that matter):",
        "  1  role 'load' of CTA 0  gemm.py:9  tma_load a -> tile",
        "  2  unit                  gemm.py:9  the copy lands",
        "                                      → full[0]: phase 0 complete",
    ]
    assert (
        as_text(Fault("RaceError", "race", "", steps=steps[:1]))[0] == "counterexample (all steps):"
    )
    assert as_text(Fault("RaceError", "race", "")) == []
