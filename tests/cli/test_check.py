"""`tilepipe check`: verdicts, exit codes, JSON, sizes, files of one's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.copying import KERNEL, LOAD, READ, Call, at, report
from tilepipe.check import decide
from tilepipe.check.counterexamples import shortening
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.race_reversal import Explorer

# -- verdicts --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_shipped_kernel_is_verified(tilepipe: Call) -> None:
    code, out, err = tilepipe("check", "gemm", "-s", "stages=3")
    assert code == 0
    assert err == ""
    words = " ".join(out.replace("│", " ").split())
    for said in (
        "gemm: ",
        " bm=128 ",
        "stages=3",
        "2 tiles per CTA, 2 K steps, 2 CTAs",
        "2 tiles per CTA, 7 K steps",
        "single-execution",
        "verified",
    ):
        assert said in words
    assert "m=1024" not in out
    assert "Facts that hold in every interleaving" in out
    assert "Verified means: these instances of this configuration" in out
    assert "docs/verification-gaps.md describes; never other shapes." in out


@pytest.mark.slow
def test_json_of_a_verdict(tilepipe: Call) -> None:
    found = report(tilepipe("check", "gemm", "--json"))
    contract = {
        "kernel",
        "config",
        "instance",
        "verdict",
        "method",
        "states",
        "seconds",
        "faults",
        "advice",
        "instances",
        "facts",
        "bound",
    }
    assert contract <= set(found)
    assert (
        found["kernel"],
        found["verdict"],
        found["method"],
        found["faults"],
        found["bound"],
    ) == ("gemm", "verified", "single-execution", [], "")
    assert found["config"]["stages"] == 4
    assert [x["instance"] for x in found["instances"]] == [
        f"2 tiles per CTA, {n} K steps, 2 CTAs" for n in (3, 9)
    ]
    assert found["states"] == sum(x["states"] for x in found["instances"]) > 0
    assert found["facts"]


@pytest.mark.slow
def test_a_process_of_its_own_prints_the_same_but_for_the_seconds(
    file: Path, tilepipe: Call
) -> None:
    def without_seconds(text: str) -> Any:
        return json.loads(
            text, object_hook=lambda x: {n: v for n, v in x.items() if n != "seconds"}
        )

    args = ["check", f"{file}:both", "-s", "early=true", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tilepipe", *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert without_seconds(done.stdout) == without_seconds(tilepipe(*args)[1])


@pytest.mark.slow
def test_a_fault_is_told_with_its_story(file: Path, tilepipe: Call) -> None:
    code, out, err = tilepipe("check", f"{file}:wrong")
    assert code == 1
    for said in (
        "RaceError of the instance",
        "race on tiles[0] of CTA 0",
        "tma_load a -> tiles[",
        LOAD,
        "Counterexample",
    ):
        assert said in out
    assert "Verified" not in out
    assert f"tilepipe check {file}:wrong --save FILE.json" in err


def test_json_of_a_fault_has_its_steps(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:small", "-s", "early=yes", "--json"), 1)
    assert (found["verdict"], found["config"]) == (
        "fault",
        {"columns": 5, "rows": 2, "stages": 2, "early": True, "scale": 1.0},
    )
    (fault,) = found["faults"]
    assert (fault["kind"], fault["at"]) == ("RaceError", LOAD)
    assert {"agent", "op", "loc", "effect"} == set(fault["steps"][0])
    assert any("tma_load" in step["op"] for step in fault["steps"])


@pytest.mark.slow
def test_the_same_fault_of_two_instances_is_told_once(file: Path, tilepipe: Call) -> None:
    code, out, _ = tilepipe("check", f"{file}:both", "-s", "early=1")
    assert code == 1
    assert out.count("race on tiles[0]") == 1


@pytest.mark.slow
def test_exploring_comes_to_the_same_verdict(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:small", "--explore", "--json"))
    assert (found["verdict"], found["method"], found["facts"]) == ("verified", "explored", [])
    assert found["traces"] >= 1
    assert (
        report(tilepipe("check", f"{file}:wrong", "--explore", "--json"), 1)["faults"][0]["kind"]
        == "RaceError"
    )


@pytest.mark.slow
def test_a_bound_is_said(tilepipe: Call) -> None:
    settings = [x for s in ("stages=2", "m=384", "n=128", "k=320") for x in ("-s", s)]
    args = ["check", "gemm", "-s", "arch=sm100", *settings, "--traces", "2", "--small"]
    found = report(tilepipe(*args, "--json"), 2)
    assert (found["verdict"], found["bound"]) == ("undecided", "2 executions")
    code, out, _ = tilepipe(*args)
    assert code == 2
    assert "undecided: 2" in out
    assert "Raise --traces if it is a number of executions" in out


@pytest.mark.slow
def test_several_processes(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:both", "--jobs", 2, "--json"))
    assert found["verdict"] == "verified"
    assert [x["instance"].split(":")[0] for x in found["instances"]] == ["1", "2"]


@pytest.mark.slow
def test_processes_that_share_an_exploration(tilepipe: Call) -> None:
    one, three = (
        report(
            tilepipe("check", "gemm", "-s", "arch=sm100", "-s", "stages=2", "--jobs", n, "--json")
        )
        for n in (1, 3)
    )
    for told in (one, three):
        assert (told["verdict"], told["method"]) == ("verified", "explored")
        assert [x["traces"] > 1 for x in told["instances"]] == [True, True]


def test_an_interruption_says_what_was_being_checked(
    tilepipe: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilepipe.check.parallel.recipes.decide", interrupted)
    code, out, err = tilepipe("check", "gemm", "--json")
    assert code == 130
    told = json.loads(out)["error"]
    assert (told["type"], told["message"]) == ("KeyboardInterrupt", "interrupted")
    assert [x for x in told["notes"] if x.startswith("interrupted: 0 of 2 instances")]
    assert (
        "interrupted: 0 of 2 instances have been checked, not yet '2 tiles per CTA, 3 K steps, 2"
        " CTAs'" in err
    )


@pytest.mark.slow
def test_sensitivity_is_reported(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:small", "--sensitivity", "--json"))["sensitivity"]
    without = {
        line["at"]: line
        for line in found["lines"]
        if line["kind"] == "wait" and "store_wait" in line["op"]
    }
    assert without[READ]["answer"] == "load-bearing"
    assert "RaceError" in without[READ]["without"]
    assert {"name": "stages", "now": 2, "fewest": 1, "below": ""} in found["stages"]
    code, out, _ = tilepipe("check", f"{file}:small", "--sensitivity")
    assert code == 0
    assert "load-bearing" in out


@pytest.mark.slow
def test_tiles_that_are_fetched_by_a_counter(file: Path, tilepipe: Call) -> None:
    """Who gets which tile is open, so that it is explored; the counter must be 0 as for a run."""
    found = report(tilepipe("check", f"{file}:counted", "--small", "--json"))
    assert (found["verdict"], found["method"]) == ("verified", "explored")
    assert found["traces"] > 1
    code, _, err = tilepipe("check", f"{file}:counted", "-s", "start=1", "--small")
    assert code == 2
    assert "counter" in err


# -- sizes -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["gemm", "-s", "m=256", "-s", "n=256", "-s", "k=64"],
            ["ring 'inputs.full' has 4 stages", "completes 2 phases", "2 · 4 + 1 = 9"],
        ),
        (["gemm", "-s", "m=64", "-s", "n=64"], ["there is one CTA"]),
        (
            ["copying.py:small", "-s", "columns=4"],
            ["ring 'ring.full' has 2 stages", "completes 4 phases", "2 · 2 + 1 = 5"],
        ),
        (["copying.py:small", "-s", "rows=1"], ["there is one CTA"]),
        (
            ["copying.py:small", "-s", "columns=1", "--explore"],
            ["ring 'ring.empty' has 2 stages", "completes 1 phase in"],
        ),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_what_is_too_small_is_refused_unless_it_is_meant(
    args: list[str], words: list[str], file: Path, tilepipe: Call
) -> None:
    code, out, err = tilepipe("check", *args)
    assert code == 2
    assert out == ""
    for said in (*words, "too small to say much", "--small"):
        assert said in err
    assert report(tilepipe("check", *args, "--small", "--json"))["verdict"] == "verified"


DRAWN = """import numpy as np
import tilepipe as tp

@tp.kernel(grid=lambda out: out.shape[0])
def drawn(ctx, count, out):
    @ctx.role("one", warps=1)
    def one():
        with ctx.elect_one():
            ctx.store(out[ctx.atomic_add(count[0], 1)], ctx.block_id)

def program(ctas: int = 2):
    return drawn.bind(np.zeros(1, np.int32), np.zeros(ctas, np.int32))
"""


def test_what_is_too_small_is_refused_before_it_is_explored(
    tmp_path: Path, tilepipe: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "drawn.py"
    file.write_text(DRAWN)
    explored: list[object] = []
    explore = decide._explore

    def noted(explorer: Explorer, first: Execution) -> None:
        explored.append(first)
        explore(explorer, first)

    monkeypatch.setattr(decide, "_explore", noted)
    for more in ([], ["--explore"]):
        code, _, err = tilepipe("check", f"{file}:program", "-s", "ctas=1", *more)
        assert (code, explored) == (2, [])
        assert "too small to say much of the kernel:\nthere is one CTA" in err
    assert report(tilepipe("check", f"{file}:program", "--json"))["method"] == "explored"
    assert explored


@pytest.mark.parametrize(
    "args",
    [
        ["copying.py:small"],
        ["copying.py:small", "--explore"],
        ["copying.py:small", "-s", "early=true"],
        ["copying.py:small", "-s", "early=true", "--explore"],
        ["copying.py:both", "--explore"],  # the first is too small alone
        ["copying.py:both", "-s", "early=true"],
        ["drawn.py:program"],
    ],
    ids=" ".join,
)
def test_that_instances_are_large_enough_takes_no_execution(
    args: list[str], file: Path, tilepipe: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("drawn.py").write_text(DRAWN)
    counts: list[tuple[int, int]] = []
    for more in ([], ["--small"]):
        begun: list[Execution] = []
        faults: list[object] = []

        def noted(
            *given: Any, perform: Any = Explorer.begin, begun: list[Execution] = begun
        ) -> Execution:
            begun.append(perform(*given))
            return begun[-1]

        def shortened(
            *given: Any, perform: Any = shortening.shortened, faults: list[object] = faults
        ) -> Any:
            faults.append(perform(*given))
            return faults[-1]

        with monkeypatch.context() as patched:
            patched.setattr(Explorer, "begin", noted)
            patched.setattr(decide, "shortened", shortened)
            found = report(tilepipe("check", *args, *more, "--json"), int("early=true" in args))
        assert len(faults) == len(found["faults"])
        counts.append((len(begun), len(faults)))
    assert counts[0] == counts[1]


@pytest.mark.slow
def test_a_fault_of_a_small_instance_is_still_a_fault(file: Path, tilepipe: Call) -> None:
    args = ["check", f"{file}:small", "-s", "rows=1", "-s", "early=true"]
    assert tilepipe(*args)[0] == tilepipe(*args, "--explore")[0] == 1


# -- files of one's own ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "instances"),
    [
        ("right", ["a (32, 80), out (32, 80), 2 CTAs"]),
        ("several", ["1: a (32, 16), out (32, 16), 2 CTAs", "2: a (32, 80), out (32, 80), 2 CTAs"]),
        ("both", ["1: a (32, 16), out (32, 16), 2 CTAs", "2: a (32, 80), out (32, 80), 2 CTAs"]),
        ("talks", ["a (32, 80), out (32, 80), 2 CTAs"]),
    ],
)
def test_programs_and_what_makes_them(
    name: str, instances: list[str], file: Path, tilepipe: Call
) -> None:
    assert [
        x["instance"] for x in report(tilepipe("check", f"{file}:{name}", "--json"))["instances"]
    ] == instances


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        (["columns=7", "rows=3"], {"columns": 7, "rows": 3}),
        (["stages=3", "columns=7"], {"stages": 3}),
        (["early=no"], {"early": False}),
        (["note=none"], {}),
        (["note=three"], {"note": "three"}),
        (["scale=0.5"], {"scale": 0.5}),
    ],
    ids=str,
)
def test_settings_become_arguments(
    settings: list[str], config: dict[str, Any], file: Path, tilepipe: Call
) -> None:
    found = report(
        tilepipe("check", f"{file}:small", *(x for s in settings for x in ("-s", s)), "--json")
    )
    assert {name: found["config"].get(name) for name in config} == config


@pytest.mark.slow
def test_an_annotation_that_cannot_be_evaluated_is_the_default_s_type_and_the_others_stay(
    file: Path, tilepipe: Call
) -> None:
    given = [x for s in ("columns=5", "like=3", "note=7", "scale=2") for x in ("-s", s)]
    found = report(tilepipe("check", f"{file}:hinted", *given, "--json"))
    assert found["config"] == {"columns": 5, "like": 3, "note": "7", "scale": 2.0}
    assert [type(found["config"][name]) for name in ("like", "note", "scale")] == [int, str, float]
    assert found["instance"] == "a (48, 80), out (48, 80), 3 CTAs"
    found = report(
        tilepipe("check", f"{file}:hinted", "-s", "columns=5", "-s", "scale=none", "--json")
    )
    assert "scale" not in found["config"], "None is no setting to be shown"


@pytest.mark.parametrize(("given", "said"), [("nan", "nan"), ("inf", "inf"), ("-1e999", "-inf")])
def test_json_of_what_is_no_number_of_json(
    given: str, said: str, file: Path, tilepipe: Call
) -> None:
    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    code, out, _ = tilepipe("check", f"{file}:small", "-s", f"scale={given}", "--json")
    assert code == 0
    assert json.loads(out, parse_constant=refused)["config"]["scale"] == said


@pytest.mark.slow
def test_what_a_function_makes_is_made_once_and_is_what_is_checked(
    file: Path, tilepipe: Call
) -> None:
    code, _, err = tilepipe("check", f"{file}:talks", "--explore")
    assert code == 0
    assert err.count("building") == 1
    Path("turns.py").write_text(
        KERNEL
        + (
            "\n"
            "\n"
            "made = []\n"
            "\n"
            "\n"
            "def turns():\n"
            "    made.append(small(early=not made))\n"
            "    return made[-1]\n"
        )
    )
    assert report(tilepipe("check", "turns.py:turns", "--json"), 1)["verdict"] == "fault", (
        "the first one is wrong, and the second right"
    )


def test_an_argument_without_a_type_is_guessed(file: Path, tilepipe: Call) -> None:
    assert report(
        tilepipe("check", f"{file}:needs", "-s", "stages=2", "-s", "columns=5", "--json")
    )["config"] == {
        "stages": 2,
        "columns": 5,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["gem"], ["no kernel 'gem'", "gemm", "A kernel of your own is FILE.py:NAME"]),
        (["gemm", "-s", "depth=3"], ["no setting 'depth'"]),
        (["gemm", "-s", "m=64", "-s", "m=128"], ["setting m is given twice: m=64 and m=128"]),
        (["gemm", "--jobs", "0"], ["--jobs"]),
        (["gemm", "--seconds", "0"], ["--seconds"]),
        (["gemm", "--save", "no/such/folder.json"], ["cannot write no/such/folder.json"]),
        (["missing.py:small"], ["cannot read missing.py: No such file"]),
        (["copying.py"], ["which program of copying.py is meant: copying.py:NAME"]),
        (["copying.py:"], ["copying.py:NAME"]),
        (["copying.py:smal"], ["copying.py has no 'smal'", "small, both, right, wrong, several"]),
        (
            ["copying.py:copy"],
            [
                "is a kernel, which needs its arguments",
                "def small(stages, early): a, out = ...; return copy.bind(a, out, stages=stages,",
            ],
        ),
        (["copying.py:number"], ["neither a program", "it is an int"]),
        (
            ["copying.py:unbound"],
            [
                "makes the kernel 'copy', which needs its arguments",
                "copy.bind(a, out, stages=stages, early=early)",
            ],
        ),
        (["copying.py:later"], ["is an async function", "Write `def later` without async"]),
        (["copying.py:passed_on"], ["neither a program", "it is a coroutine"]),
        (
            ["copying.py:hinted", "-s", "columns=5", "-s", "kind=3"],
            ["setting kind of copying.py:hinted is a tuple; -s gives"],
        ),
        (
            ["copying.py:hinted", "-s", "columns=5", "-s", "like=few"],
            ["setting like: 'few' is not an integer"],
        ),
        (["copying.py:empty"], ["it is an empty list"]),
        (["copying.py:nothing"], ["it is an int in a list"]),
        (["copying.py:right", "-s", "rows=1"], ["has no settings: it is no function"]),
        (
            ["copying.py:small", "-s", "depth=1"],
            ["has no setting 'depth'; it has columns, rows, stages"],
        ),
        (["copying.py:small", "-s", "columns"], ["a setting is name=value"]),
        (["copying.py:small", "-s", "columns=few"], ["setting columns: 'few' is not an integer"]),
        (["copying.py:small", "-s", "scale=few"], ["setting scale: 'few' is not a number"]),
        (["copying.py:small", "-s", "early=perhaps"], ["neither true nor false"]),
        (["copying.py:small", "-s", "rows=1", "-s", "rows=2"], ["setting rows is given twice"]),
        (["copying.py:needs", "-s", "columns=5"], ["needs stages: give -s stages=VALUE"]),
        (["copying.py:shaped"], ["needs like"]),
        (
            ["copying.py:shaped", "-s", "like=3"],
            ["setting like of copying.py:shaped is a ndarray; -s gives int, float, bool and str"],
        ),
        (["copying.py:raises"], [at("1 // count") + ": raises(count=0) raised ZeroDivisionError"]),
        (["broken.py:x"], ["broken.py:1: importing it raised SyntaxError: invalid syntax"]),
        (
            ["failing.py:x"],
            ["failing.py:2: importing it raised NameError: name 'absent' is not defined"],
        ),
        (["leaving.py:x"], ["leaving.py:1: importing it raised SystemExit: 3"]),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_bad_usage_is_one_message_and_exit_2(
    args: list[str], words: list[str], file: Path, tilepipe: Call
) -> None:
    file.with_name("broken.py").write_text("def x(:\n")
    file.with_name("failing.py").write_text("\nabsent\n")
    file.with_name("leaving.py").write_text("raise SystemExit(3)\n")
    code, out, err = tilepipe("check", *args)
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert "never awaited" not in err
    for word in words:
        assert word in " ".join(err.split())
