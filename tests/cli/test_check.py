"""`tilepipe check` and `tilepipe replay`: verdicts, exit codes, JSON, files of one's own, counterexamples kept and replayed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.readme import ROOT, blocks
from tilepipe import check, cli
from tilepipe.check.counterexamples import saved

Call = Callable[..., tuple[int, str, str]]

KERNEL = '''"""Copies a matrix in tiles, through a ring."""

from typing import Optional

import numpy as np

import tilepipe as tp

TILE = 16


@tp.kernel(grid=lambda a: a.shape[0] // TILE)
def copy(ctx, a, out, *, stages, early):
    """out = a"""
    ring = tp.ProducerConsumerPipeline.allocate(ctx, stages, name="ring")
    tiles = ctx.smem((TILE, TILE), a.dtype, count=stages, name="tiles")
    columns = ctx.ceil_div(a.shape[1], TILE)
    row = ctx.block_id * TILE

    @ctx.role("load", warps=1)
    def load():
        for j in ctx.range(columns):
            with ring.produce() as stage, ctx.elect_one():
                stage.mbar().expect_bytes(tiles.tile_bytes)
                ctx.tma_load(a, (row, j * TILE), tiles[stage.index()], stage.mbar())

    @ctx.role("store", warps=1)
    def store():
        for j in ctx.range(columns):
            with ring.consume_explicit() as stage, ctx.elect_one():
                ctx.tma_store(out, (row, j * TILE), tiles[stage.index()])
                ctx.tma_store_commit()
                if not early:
                    ctx.tma_store_wait(0, read=True)
                stage.mbar().arrive()
        with ctx.elect_one():
            ctx.tma_store_wait(0)


def small(columns: int = 5, rows=2, *, stages: int = 2, early: bool = False, note: Optional[str] = None, scale: float = 1.0):
    a = (scale * np.ones((rows * TILE, columns * TILE))).astype(np.float16)
    boxed = [tp.tensor_map(x, box=(TILE, TILE)) for x in (a, np.zeros_like(a))]
    return copy.bind(*boxed, stages=stages, early=early)


def both(early: bool = False):
    return [small(1, early=early), small(5, early=early)]


right, wrong = small(), small(early=True)
several = [small(1), right]
empty, number = [], 3


def needs(stages, columns: int):
    return small(columns, stages=stages)


def shaped(like: np.ndarray):
    return small()


def raises(count: int = 0):
    return small()[1 // count]


def talks():
    print("building")
    return small()


def nothing():
    return [small(), 3]


@tp.kernel(grid=2)
def count(ctx, out, counter):
    work = tp.AtomicScheduler(ctx, counter, tiles=(5, 1))

    @ctx.role("schedule", warps=1)
    def schedule():
        work.schedule()

    @ctx.role("write", warps=1)
    def write():
        for tile in work:
            work.throttle_signal()
            ctx.store(out[tile.m * 32 + ctx.lane], 1)


def counted(start: int = 0):
    return count.bind(np.zeros(160, np.int32), np.full(1, start, np.int32))
'''


def at(text: str, moved: int = 0) -> str:
    """Where that text is in the file."""
    (found,) = [i for i, line in enumerate(KERNEL.splitlines(), 1) if text in line]
    return f"copying.py:{found + moved}"


LOAD, READ = at("ctx.tma_load("), at("tma_store_wait(0, read=True)")


@pytest.fixture
def tilepipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command, in this process: (exit code, stdout, stderr)."""

    def call(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tilepipe", *map(str, args)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        done = capsys.readouterr()
        return int(left.value.code or 0), done.out, done.err

    return call


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a kernel in the present folder, named as one types it."""
    monkeypatch.chdir(tmp_path)
    Path("copying.py").write_text(KERNEL, encoding="utf-8")
    return Path("copying.py")


def report(told: tuple[int, str, str], code: int = 0) -> dict[str, Any]:
    assert told[0] == code, told[2]
    assert told[1].count("\n") == 1
    found: dict[str, Any] = json.loads(told[1])
    return found


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_a_shipped_kernel_is_verified(tilepipe: Call) -> None:
    code, out, err = tilepipe("check", "gemm", "-s", "stages=3")
    assert code == 0
    assert err == ""
    words = " ".join(out.replace("│", " ").split())
    for said in ("gemm: bm=128", "stages=3", "2 tiles per CTA, 2 K steps, 2 CTAs", "2 tiles per CTA, 7 K steps", "greedy", "verified"):
        assert said in words
    assert "m=1024" not in out
    assert "establishes for all" in out
    assert "Verified means: these instances of this configuration" in out
    assert "docs/verification-gaps.md describes; never other shapes." in out


def test_json_of_a_verdict(tilepipe: Call) -> None:
    found = report(tilepipe("check", "gemm", "--json"))
    contract = {"kernel", "config", "instance", "verdict", "method", "states", "seconds", "faults", "advice", "instances", "facts", "bound"}
    assert contract <= set(found)
    assert (found["kernel"], found["verdict"], found["method"], found["faults"], found["bound"]) == ("gemm", "verified", "greedy", [], "")
    assert found["config"]["stages"] == 4
    assert [x["instance"] for x in found["instances"]] == [f"2 tiles per CTA, {n} K steps, 2 CTAs" for n in (3, 9)]
    assert found["states"] == sum(x["states"] for x in found["instances"]) > 0
    assert found["facts"]


def test_a_process_of_its_own_prints_the_same_but_for_the_seconds(file: Path, tilepipe: Call) -> None:
    def without_seconds(text: str) -> Any:
        return json.loads(text, object_hook=lambda x: {n: v for n, v in x.items() if n != "seconds"})

    args = ["check", f"{file}:both", "-s", "early=true", "--json"]
    done = subprocess.run([sys.executable, "-m", "tilepipe", *args], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert without_seconds(done.stdout) == without_seconds(tilepipe(*args)[1])


def test_a_fault_is_told_with_its_story(file: Path, tilepipe: Call) -> None:
    code, out, err = tilepipe("check", f"{file}:wrong")
    assert code == 1
    for said in ("RaceError of the instance", "race on tiles[0] of CTA 0", "tma_load a -> tiles[", LOAD, "How it comes about"):
        assert said in out
    assert "Verified" not in out
    assert f"tilepipe check {file}:wrong --save FILE.json" in err


def test_json_of_a_fault_has_its_steps(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:small", "-s", "early=yes", "--json"), 1)
    assert (found["verdict"], found["config"]) == ("fault", {"columns": 5, "rows": 2, "stages": 2, "early": True, "scale": 1.0})
    (fault,) = found["faults"]
    assert (fault["kind"], fault["at"]) == ("RaceError", LOAD)
    assert {"agent", "op", "loc", "effect"} == set(fault["steps"][0])
    assert any("tma_load" in step["op"] for step in fault["steps"])


def test_the_same_fault_of_two_instances_is_told_once(file: Path, tilepipe: Call) -> None:
    code, out, _ = tilepipe("check", f"{file}:both", "-s", "early=1")
    assert code == 1
    assert out.count("race on tiles[0]") == 1


def test_exploring_comes_to_the_same_verdict(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:small", "--explore", "--json"))
    assert (found["verdict"], found["method"], found["facts"]) == ("verified", "explored", [])
    assert found["traces"] >= 1
    assert report(tilepipe("check", f"{file}:wrong", "--explore", "--json"), 1)["faults"][0]["kind"] == "RaceError"


def test_a_bound_is_said(tilepipe: Call) -> None:
    settings = [x for s in ("stages=2", "m=384", "n=128", "k=320") for x in ("-s", s)]
    args = ["check", "blackwell_gemm", *settings, "--traces", "2"]
    found = report(tilepipe(*args, "--json"), 2)
    assert (found["verdict"], found["bound"]) == ("undecided", "2 executions")
    code, out, _ = tilepipe(*args)
    assert code == 2
    assert "undecided: 2" in out
    assert "Raise --seconds or --traces" in out


def test_several_processes(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:both", "--jobs", 2, "--json"))
    assert found["verdict"] == "verified"
    assert [x["instance"].split(":")[0] for x in found["instances"]] == ["1", "2"]
    assert report(tilepipe("check", "gemm", "--jobs", 2, "--json"))["verdict"] == "verified"


@pytest.mark.slow
def test_processes_that_share_an_exploration(tilepipe: Call) -> None:
    one, three = (report(tilepipe("check", "blackwell_gemm", "-s", "stages=2", "--jobs", n, "--json")) for n in (1, 3))
    for told in (one, three):
        assert (told["verdict"], told["method"]) == ("verified", "explored")
        assert [x["traces"] > 1 for x in told["instances"]] == [True, True]


def test_an_interruption_says_what_was_being_checked(tilepipe: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilepipe.check.campaign.instances.check", interrupted)
    code, out, err = tilepipe("check", "gemm", "--json")
    assert (code, out) == (130, "")
    assert "interrupted: 0 of 2 instances have been checked, not yet '2 tiles per CTA, 3 K steps, 2 CTAs'" in err


def test_sensitivity_is_reported(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:small", "--sensitivity", "--json"))["sensitivity"]
    without = {line["at"]: line for line in found["lines"] if line["kind"] == "wait" and "store_wait" in line["op"]}
    assert without[READ]["answer"] == "load-bearing"
    assert "RaceError" in without[READ]["without"]
    assert {"name": "stages", "now": 2, "fewest": 1, "below": ""} in found["stages"]
    code, out, _ = tilepipe("check", f"{file}:small", "--sensitivity")
    assert code == 0
    assert "load-bearing" in out


def test_tiles_that_are_fetched_by_a_counter(file: Path, tilepipe: Call) -> None:
    """Who gets which tile is open, so that it is explored; the counter must be 0 as for a run."""
    found = report(tilepipe("check", f"{file}:counted", "--small", "--json"))
    assert (found["verdict"], found["method"]) == ("verified", "explored")
    assert found["traces"] > 1
    code, _, err = tilepipe("check", f"{file}:counted", "-s", "start=1", "--small")
    assert code == 2
    assert "counter" in err


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["gemm", "-s", "m=256", "-s", "n=256", "-s", "k=64"], ["ring 'inputs.full' has 4 stages", "completes 2 phases", "2 · 4 + 1 = 9"]),
        (["gemm", "-s", "m=64", "-s", "n=64"], ["there is one CTA"]),
        (["copying.py:small", "-s", "columns=4"], ["ring 'ring.full' has 2 stages", "completes 4 phases", "2 · 2 + 1 = 5"]),
        (["copying.py:small", "-s", "rows=1"], ["there is one CTA"]),
        (["copying.py:small", "-s", "columns=1", "--explore"], ["ring 'ring.empty' has 2 stages", "completes 1 phase in"]),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_what_is_too_small_is_refused_unless_it_is_meant(args: list[str], words: list[str], file: Path, tilepipe: Call) -> None:
    code, out, err = tilepipe("check", *args)
    assert code == 2
    assert out == ""
    for said in (*words, "too small to say much", "--small"):
        assert said in err
    assert report(tilepipe("check", *args, "--small", "--json"))["verdict"] == "verified"


def test_a_fault_of_a_small_instance_is_still_a_fault(file: Path, tilepipe: Call) -> None:
    args = ["check", f"{file}:small", "-s", "rows=1", "-s", "early=true"]
    assert tilepipe(*args)[0] == tilepipe(*args, "--explore")[0] == 1


# -- files of one's own ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "instances"),
    [
        ("right", ["a (32, 80), out (32, 80), 2 CTAs"]),
        ("several", ["1: a (32, 16), out (32, 16), 2 CTAs", "2: a (32, 80), out (32, 80), 2 CTAs"]),
        ("both", ["1: a (32, 16), out (32, 16), 2 CTAs", "2: a (32, 80), out (32, 80), 2 CTAs"]),
        ("talks", ["a (32, 80), out (32, 80), 2 CTAs"]),
    ],
)
def test_programs_and_what_makes_them(name: str, instances: list[str], file: Path, tilepipe: Call) -> None:
    assert [x["instance"] for x in report(tilepipe("check", f"{file}:{name}", "--json"))["instances"]] == instances


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
def test_settings_become_arguments(settings: list[str], config: dict[str, Any], file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:small", *(x for s in settings for x in ("-s", s)), "--json"))
    assert {name: found["config"].get(name) for name in config} == config


def test_an_argument_without_a_type_is_guessed(file: Path, tilepipe: Call) -> None:
    assert report(tilepipe("check", f"{file}:needs", "-s", "stages=2", "-s", "columns=5", "--json"))["config"] == {
        "stages": 2,
        "columns": 5,
    }


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
        (["copying.py:copy"], ["is a kernel, which is checked with arguments", "copy.bind(a, b, c, stages=stages)"]),
        (["copying.py:number"], ["neither a program", "it is a int"]),
        (["copying.py:empty"], ["it is an empty list"]),
        (["copying.py:nothing"], ["it is a int in a list"]),
        (["copying.py:right", "-s", "rows=1"], ["has no settings: it is no function"]),
        (["copying.py:small", "-s", "depth=1"], ["has no setting 'depth'; it has columns, rows, stages"]),
        (["copying.py:small", "-s", "columns"], ["a setting is name=value"]),
        (["copying.py:small", "-s", "columns=few"], ["setting columns: 'few' is not an integer"]),
        (["copying.py:small", "-s", "scale=few"], ["setting scale: 'few' is not a number"]),
        (["copying.py:small", "-s", "early=perhaps"], ["neither true nor false"]),
        (["copying.py:small", "-s", "rows=1", "-s", "rows=2"], ["setting rows is given twice"]),
        (["copying.py:needs", "-s", "columns=5"], ["needs stages: give -s stages=VALUE"]),
        (["copying.py:shaped"], ["needs like"]),
        (["copying.py:shaped", "-s", "like=3"], ["setting like of copying.py:shaped is a ndarray; -s gives int, float, bool and str"]),
        (["copying.py:raises"], [at("1 // count") + ": raises(count=0) raised ZeroDivisionError"]),
        (["broken.py:x"], ["broken.py:1: importing it raised SyntaxError: invalid syntax"]),
        (["failing.py:x"], ["failing.py:2: importing it raised NameError: name 'absent' is not defined"]),
        (["leaving.py:x"], ["leaving.py:1: importing it raised SystemExit: 3"]),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_bad_usage_is_one_message_and_exit_2(args: list[str], words: list[str], file: Path, tilepipe: Call) -> None:
    file.with_name("broken.py").write_text("def x(:\n")
    file.with_name("failing.py").write_text("\nabsent\n")
    file.with_name("leaving.py").write_text("raise SystemExit(3)\n")
    code, out, err = tilepipe("check", *args)
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    for word in words:
        assert word in " ".join(err.split())


# -- counterexamples ---------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(file: Path, tilepipe: Call) -> Path:
    """A counterexample of the second of two instances."""
    path = Path("race.json")
    code, out, err = tilepipe("check", f"{file}:both", "-s", "early=true", "--save", path)
    assert code == 1
    assert f"Saved in {path}; `tilepipe replay {path}` shows it again" in out
    assert err == ""
    return path


def test_a_counterexample_is_replayed(kept: Path, tilepipe: Call) -> None:
    code, out, _ = tilepipe("replay", kept)
    assert code == 1
    for said in ("the same fault", "race on tiles[0] of CTA 0", "How it comes about", LOAD):
        assert said in out
    found = report(tilepipe("replay", kept, "--json"), 1)
    assert (found["replayed"], found["changed"], found["differs"]) == ("same", False, [])
    assert found["fault"]["message"] == found["saved"]["message"]
    assert found["instance"] == "2: a (32, 80), out (32, 80), 2 CTAs"


def test_it_is_replayed_from_any_folder(kept: Path, tilepipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert tilepipe("replay", tmp_path / kept)[0] == 1


def test_the_same_counterexample_is_found_again(kept: Path, file: Path, tilepipe: Call) -> None:
    first = kept.read_text()
    assert tilepipe("check", f"{file}:both", "-s", "early=true", "--save", kept)[0] == 1
    assert kept.read_text() == first


def test_what_is_kept_is_what_was_found(kept: Path) -> None:
    found = saved.read(kept)
    assert (found.what, found.settings, found.number, found.strict_proxy) == ("copying.py:both", ("early=true",), 1, False)
    assert (found.fault.kind, found.fault.loc) == ("RaceError", LOAD)
    assert found.fault.schedule
    saved.write(Path("again.json"), found)
    assert saved.read(Path("again.json")) == found


def test_a_fault_of_another_order_is_replayed(tilepipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of docs/checker.md asks whether a slot is filled, and goes on: right in the simulator's own order."""
    monkeypatch.chdir(tmp_path)
    Path("ring.py").write_text(blocks(ROOT / "docs" / "checker.md", "python")[0], encoding="utf-8")
    found = report(tilepipe("check", "ring.py:program", "--save", "ring.json", "--json"), 1)
    assert (found["method"], found["saved"], found["faults"][0]["kind"]) == ("explored", "ring.json", "RaceError")
    assert len(saved.read(Path("ring.json")).fault.schedule) >= 1
    again = report(tilepipe("replay", "ring.json", "--json"), 1)
    assert again["fault"]["message"] == found["faults"][0]["message"]
    assert report(tilepipe("check", "ring.py:program", "-s", "waits=true", "--json"))["verdict"] == "verified"


def test_a_kernel_that_has_been_mended(kept: Path, file: Path, tilepipe: Call) -> None:
    file.write_text(KERNEL.replace("if not early:", "if True:"))
    code, out, _ = tilepipe("replay", kept)
    assert code == 2
    for said in ("no fault", f"saved: RaceError at {LOAD}", "ends without a fault", "The kernel has changed since"):
        assert said in out
    found = report(tilepipe("replay", kept, "--json"), 2)
    assert (found["replayed"], found["changed"], found["fault"]) == ("none", True, None)


def test_a_kernel_that_fails_in_another_way(kept: Path, file: Path, tilepipe: Call) -> None:
    file.write_text(KERNEL.replace("expect_bytes(tiles.tile_bytes)", "expect_bytes(tiles.tile_bytes + 16)"))
    code, out, _ = tilepipe("replay", kept)
    assert code == 2
    for said in ("another fault", "kind saved: RaceError", "kind now: DeadlockError", "has changed since"):
        assert said in out
    assert report(tilepipe("replay", kept, "--json"), 2)["replayed"] == "other"


def test_a_kernel_that_has_moved_by_a_line_is_another(kept: Path, file: Path, tilepipe: Call) -> None:
    file.write_text("\n" + KERNEL)
    code, out, _ = tilepipe("replay", kept)
    assert code == 2
    assert f"line now: {at('ctx.tma_load(', 1)}" in out


def test_a_shipped_kernel_is_replayed(tmp_path: Path, tilepipe: Call) -> None:
    """There is no fault of one to keep: one is made up, and does not come."""
    fault = check.Fault("RaceError", "made up", "gemm.py:1")
    path = tmp_path / "gemm.json"
    saved.write(path, saved.Saved("gemm", ("stages=2",), 0, "2 tiles per CTA", False, "", fault))
    found = report(tilepipe("replay", path, "--json"), 2)
    assert (found["kernel"], found["config"]["stages"], found["replayed"]) == ("gemm", 2, "none")
    saved.write(path, saved.Saved("gemm", ("stages=2",), 5, "2 tiles per CTA", False, "", fault))
    code, _, err = tilepipe("replay", path)
    assert code == 2
    assert "is of instance 6 of gemm, which makes 2 now" in err


def damaged(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        found = json.loads(text)
        change(found)
        return json.dumps(found)

    return changed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 2], ["is no saved counterexample, or cut short"]),
        (lambda text: "", ["is no saved counterexample, or cut short"]),
        (lambda text: "[" * 100_000, ["is no saved counterexample, or cut short"]),
        (lambda text: '{"kernel": "gemm"}', ["is no saved counterexample: `tilepipe check KERNEL --save FILE.json` writes them"]),
        (lambda text: "[1, 2]", ["is no saved counterexample"]),
        (damaged(lambda x: x.update(version=0)), ["is of version 0; this tilepipe reads version 1", "tilepipe check copying.py:both"]),
        (damaged(lambda x: x.update(picks=["agent"])), ["this tilepipe reads version 1"]),
        (damaged(lambda x: x.pop("schedule")), ["damaged: 'schedule' is missing"]),
        (damaged(lambda x: x["schedule"].append([1, 2])), ["an entry of the schedule has 5 numbers, not 2"]),
        (damaged(lambda x: x["schedule"].append(["0"] * 5)), ["an entry of the schedule is a str, not a int"]),
        (damaged(lambda x: x.update(number="1")), ["'number' is a str, not a int"]),
        (damaged(lambda x: x.update(number=True)), ["'number' is a bool, not a int"]),
        (damaged(lambda x: x["fault"].pop("kind")), ["'kind' is missing"]),
        (damaged(lambda x: x["fault"].update(steps=[3])), ["a step is a int, not a dict"]),
        (damaged(lambda x: x.update(settings=[1])), ["a setting is a int, not a str"]),
        (damaged(lambda x: x.update(what="gone.py:both")), ["cannot read gone.py"]),
        (damaged(lambda x: x.update(what="gem")), ["there is no kernel 'gem'"]),
        (damaged(lambda x: x.update(number=2)), ["is of instance 3 of copying.py:both, which makes 2 now"]),
    ],
)
def test_a_file_that_cannot_be_replayed_is_one_message(
    change: Callable[[str], str], words: list[str], kept: Path, tilepipe: Call
) -> None:  # fmt: skip
    kept.write_text(change(kept.read_text()))
    code, _, err = tilepipe("replay", kept)
    assert code == 2
    assert "Traceback" not in err
    for word in words:
        assert word in " ".join(err.split())


def test_a_schedule_of_something_else(kept: Path, tilepipe: Call) -> None:
    kept.write_text(damaged(lambda x: x.update(schedule=[[9, 99, 1, -1, -1]]))(kept.read_text()))
    assert report(tilepipe("replay", kept, "--json"), 2)["replayed"] in ("none", "other")


def test_a_file_that_is_not_there(tilepipe: Call) -> None:
    code, out, err = tilepipe("replay", "no.json")
    assert (code, out) == (2, "")
    assert "cannot read no.json: No such file or directory" in err
