"""What a program calls on the host × each of its parameters × the same bad values."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path

import pytest

import tilepipe as tp
from tests.support.arguments.host_calls import CALLS
from tests.support.arguments.trying import Outcome
from tests.support.arguments.values import AS_GOOD_AS, VALUES
from tilepipe import check, testing

SKIPPED = {("testing.run", "seeds", "huge tuple")}  # ten thousand runs, as asked for


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some values are good names of files and folders, which are then written."""
    monkeypatch.chdir(tmp_path)


def attempt(name: str, parameter: str, value: str) -> Outcome:
    """Makes the call with a bad value for one parameter."""
    function, arguments = CALLS[name].make()
    try:
        function(**arguments | {parameter: VALUES[value]()})
    except tp.UnavailableError:
        return Outcome("accepted", "as far as a machine without a GPU can tell")
    except tp.TilepipeError as error:
        return Outcome("refused", str(error))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        if "tests/support/arguments" in last.filename:
            return Outcome("kernel", "the kernel that is bound cannot use it")
        if isinstance(error, TypeError) and str(error).startswith(("a_function()", "object()")):
            return Outcome("accepted", "a function, called with arguments that it does not take")
        return Outcome("wrong", f"{type(error).__name__}: {error} at {last.filename}:{last.lineno}")
    return Outcome("accepted")


@pytest.mark.sampled(12, suite=12)
@pytest.mark.parametrize("name", CALLS)
def test_each_bad_value_is_refused_and_each_good_one_taken(name: str) -> None:
    call, wrong = CALLS[name], []
    for parameter in call.make()[1]:
        good = call.good.get(parameter, call.good.get("*", set()))
        values = [value for value in VALUES if (name, parameter, value) not in SKIPPED]
        found = {value: attempt(name, parameter, value) for value in values}
        for value, outcome in found.items():
            if outcome.kind == "wrong" or (outcome.kind == "accepted" and value not in good):
                wrong.append(f"{parameter}={value}: {outcome.kind} {outcome.message}")
        wrong += [
            f"{parameter}={a}: {found[a]}, but {b}: {found[b]}"
            for a, b in AS_GOOD_AS.items()
            if found[a].kind != found[b].kind
        ]
    assert wrong == []


@pytest.mark.slow
def test_the_valid_calls_are_valid() -> None:
    for name, call in CALLS.items():
        function, arguments = call.make()
        try:
            function(**arguments)
        except tp.UnavailableError:
            assert name in ("Program.launch", "Program.record")


def test_every_public_function_is_called() -> None:
    """A new one, or a new parameter of one, wants an entry in
    `tests.support.arguments.host_calls`.
    """
    names = {"ops": tp.ops, "testing": testing, "check": check}
    public = {
        f"{home}.{name}": getattr(module, name)
        for home, module in names.items()
        for name in getattr(module, "__all__", dir(module))
    }
    functions = {
        name
        for name, x in public.items()
        if inspect.isfunction(x) and x.__module__.startswith("tilepipe")
    }
    functions |= {
        f"Program.{name}"
        for name, x in vars(tp.Program).items()
        if inspect.isfunction(x)
        and not name.startswith("_")
        and len(inspect.signature(x).parameters) > 1
    }
    # of a launch: `Program` has them, with the same checks
    same_elsewhere = {"check.check", "check.replay", "check.replay_with_steps"}
    on_a_gpu = {"testing.perturb", "Program.launcher"}
    computed = {"testing.compare_matmul"}  # `testing.compare`, with a tolerance that it works out
    assert (
        functions - set(CALLS) - same_elsewhere - on_a_gpu - computed - {"check.combine"} == set()
    )
    for name in ("run", "check", "compile", "launch", "source", "replay"):
        assert set(inspect.signature(getattr(tp.Program, name)).parameters) - {"self"} == set(
            CALLS[f"Program.{name}"].make()[1]
        )
    refused = {"settings", "unknown", "unnamed"}  # named as the caller names them, or not at all
    for name in (
        "matmul",
        "append_kv",
        "attention",
        "attention_backward",
        "attention_decode",
        "gated_matmul",
        "grouped_matmul",
        "prepare_weights",
        "quantised_matmul",
        "rms_norm",
        "layer_norm",
        "softmax",
        "cross_entropy",
        "scaled_matmul",
    ):
        assert set(inspect.signature(getattr(tp.ops, name)).parameters) - refused <= set(
            CALLS[f"ops.{name}"].make()[1]
        )
