"""What the ways to check refuse: an argument that is not of its type is named, with what to write
instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.check import recipes
from tests.testing import kernels
from tests.testing.kernels import bind_doubled
from tilepipe.check import Bounds, Fault, Reductions, check, combine, replay
from tilepipe.check.parallel import InstanceError, check_all

BOUNDS = "bounds= takes tilepipe.check.Bounds, such as Bounds(traces=1000, seconds=60); got "
RULES = (
    'rules= is "practice" (what shipped compilers rely on) or "strict" (the PTX ISA to the letter);'
    " got "
)
REDUCTIONS = "reductions= takes tilepipe.check.Reductions, such as Reductions(hashing=False); got "
REPLAY = "replay takes a fault that check found, verdict.faults[0], or the verdict; got "
PAIR = (
    "an instance is (name, recipe), such as ('two steps', make), where make() gives the program;"
    " got "
)
Call = Callable[[Any], object]


def refused(call: Call, given: object, words: str) -> None:
    with pytest.raises(tp.BindError, match=f"^{re.escape(words)}"):
        call(given)


@pytest.mark.parametrize("name", ["traces", "steps"])
@pytest.mark.parametrize("given", ["x", 0, -5, None, 1.5, True])
def test_bounds_that_are_counts(name: str, given: object) -> None:
    with pytest.raises(
        tp.BindError,
        match=rf"^Bounds\({name}=\) is how many .*, an integer of at least 1; got {given!r}$",
    ):
        Bounds(**{name: given})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["3", None, -1, math.nan, False])
def test_a_bound_that_is_a_time(given: object) -> None:
    with pytest.raises(
        tp.BindError,
        match=rf"^Bounds\(seconds=\) is a number of seconds, 0 or more, .* got {given!r}$",
    ):
        Bounds(seconds=given)  # type: ignore[arg-type]


def test_bounds_that_are_allowed() -> None:
    assert [Bounds(seconds=given).seconds for given in (0, 0.5, math.inf)] == [0, 0.5, math.inf]


def test_reductions_are_on_or_off() -> None:
    with pytest.raises(tp.BindError, match=r"^Reductions\(hashing=\) is True or False; got 'no'$"):
        Reductions(hashing="no")  # type: ignore[arg-type]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        *(
            ("bounds", given, f"{BOUNDS}{given!r}")
            for given in (5, 0, "x", {"traces": 1}, dict[str, int](), Bounds)
        ),
        *(
            ("reductions", given, f"{REDUCTIONS}{given!r}")
            for given in (5, dict[str, int](), False, Reductions)
        ),
        ("explore", "no", "explore= is True or False; got 'no'"),
        ("explore", None, "explore= is True or False; got None"),
        *(
            ("rules", given, f"{RULES}{given!r}")
            for given in (1, True, None, "Strict", "strict_proxy", ["strict"])
        ),
    ],
)
def test_options_of_a_check(name: str, given: object, words: str) -> None:
    program = bind_doubled()[0]
    asks: list[Call] = [
        lambda x: program.check(**{name: x}),
        lambda x: tp.testing.check(program, **{name: x}),
    ]
    asks.append(lambda x: check_all([("doubled", lambda: program)], **{name: x}))
    if name in ("bounds", "rules"):
        asks.append(lambda x: program.sensitivity(**{name: x}))
    for ask in asks:
        refused(ask, given, words)


def test_a_check_of_no_launch() -> None:
    refused(
        check,
        bind_doubled()[0],
        "check.check takes a launch: call program.check(), check(program.launch_args), or, of a"
        " kernel of PTX, check(kernel.bind(...)); got",
    )
    refused(
        tp.check.sensitivity.report,
        None,
        "sensitivity.report takes a program, which kernel.bind(...) gives, or a launch; got None",
    )
    refused(
        lambda given: bind_doubled()[0].sensitivity(rebind=given),
        3,
        "rebind= is a function (name, n)",
    )


def test_a_fault_or_its_verdict_is_replayed() -> None:
    program = bind_doubled(early=True)[0]
    verdict = program.check()
    (fault,) = verdict.faults
    again = [
        program.replay(fault),
        program.replay(verdict),
        replay(program.launch_args, fault.schedule),
    ]
    assert [type(error).__name__ for error in again] == [fault.kind] * 3


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        (None, ""),
        ({}, ""),
        (
            "ring.json",
            (
                ". A file that `tilepipe check --save` wrote is replayed with `tilepipe replay"
                " FILE.json`"
            ),
        ),
        (Path("ring.json"), ". A file that `tilepipe check --save`"),
        (
            (),
            (
                ". A schedule alone is replayed with tilepipe.check.replay(program.launch_args,"
                " schedule)"
            ),
        ),
        ([Fault("RaceError", "race", "")], ". A schedule alone"),
    ],
)
def test_what_is_no_fault(given: object, cure: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        bind_doubled()[0].replay(given)  # type: ignore[arg-type]
    text = str(caught.value)
    assert text.startswith(REPLAY + f"{given!r:.80}")
    assert cure in text


def test_a_verdict_without_one_fault() -> None:
    right, wrong = bind_doubled()[0], bind_doubled(early=True)[0]
    refused(
        right.replay,
        right.check(),
        "replay takes a fault, and this verdict has none: it is 'verified'",
    )
    two = combine([wrong.check(), wrong.check()])
    refused(
        wrong.replay,
        two,
        "replay takes one fault, and this verdict has 2: give the one that belongs to this program,"
        " from verdict.faults",
    )


@pytest.mark.parametrize(
    ("instance", "words"),
    [
        (recipes.poison, PAIR + "<function poison"),
        (("a", recipes.poison, 3), PAIR),
        ((1, recipes.poison), PAIR + "(1, "),
        (
            ("a", None),
            (
                "instance 'a' needs a recipe, a function without arguments that makes the program;"
                " got None"
            ),
        ),
        (
            ("a", bind_doubled()[0]),
            (
                "instance 'a' needs a recipe, a function without arguments that makes the program;"
                " got <Program '"
            ),
        ),
    ],
)
@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_no_instance(instance: object, words: str, jobs: int) -> None:
    refused(lambda given: check_all(given, jobs=jobs), [*recipes.good(1), instance], words)


def test_instances_that_are_none() -> None:
    refused(check_all, None, "check_all takes a list of instances, each (name, recipe); got None")
    refused(
        check_all,
        recipes.poison,
        "check_all takes a list of instances, each (name, recipe); got <function poison",
    )


def test_a_recipe_that_makes_something_else() -> None:
    with pytest.raises(
        InstanceError,
        match=(
            r"instance 'list': BindError: a recipe gives a program, as kernel\.bind.* this one gave"
            r" \[\]"
        ),
    ):
        check_all([("list", list)])  # type: ignore[list-item]


def test_numpy_values_stay_out_of_a_refusal() -> None:
    """A program's text holds its arrays: a message cuts it."""
    with pytest.raises(tp.BindError) as caught:
        check_all(
            [
                kernels.doubled.bind(  # type: ignore[list-item]
                    np.zeros((4096, 32), np.float32), np.zeros((4096, 32), np.float32)
                )
            ]
        )
    assert len(str(caught.value)) < 250
