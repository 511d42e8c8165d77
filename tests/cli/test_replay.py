"""Counterexamples: `tilepipe check --save` writes them, and over nothing else; `tilepipe replay`
shows them on the kernel as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.copying import KERNEL, LOAD, Call, at, report
from tilepipe import check
from tilepipe.check.counterexamples import saved
from tools.docs.readme import ROOT, blocks


@pytest.fixture
def kept(file: Path, tilepipe: Call) -> Path:
    """A counterexample of the second of two instances."""
    path = Path("a race.json")
    code, out, err = tilepipe("check", f"{file}:both", "-s", "early=true", "--save", path)
    assert code == 1
    assert f"Saved in {path}; `tilepipe replay '{path}'` shows it again" in out
    assert err == ""
    return path


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "copying.py",
            [
                "copying.py is there already, and no counterexample: it is not overwritten",
                "Name another file",
            ],
        ),
        ("other.json", ["other.json is there already, and no counterexample"]),
        ("", ["it is a folder; name a file"]),
        (".", ["cannot write .: it is a folder"]),
        ("no/such/folder.json", ["cannot write no/such/folder.json: there is no such folder"]),
        ("copying.py/race.json", ["cannot write copying.py/race.json: there is no such folder"]),
        ("/dev/null", ["cannot write /dev/null: it is no ordinary file"]),
        ("/proc/race.json", ["cannot write /proc/race.json: "]),
        ("circle.json", ["cannot write circle.json: "]),
        ("a" * 300, ["cannot write aaa", "File name too long"]),
    ],
)
def test_where_a_counterexample_cannot_go_is_said_before_anything_is_checked(
    path: str, words: list[str], file: Path, tilepipe: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[object] = []
    monkeypatch.setattr(
        "tilepipe.check.parallel.check_all", lambda *args, **_: checked.append(args)
    )
    Path("other.json").write_text('{"format": "another"}')
    Path("circle.json").symlink_to("circle.json")
    before = sorted(x.name for x in Path().iterdir())
    code, out, err = tilepipe("check", f"{file}:wrong", "--save", path)
    assert (code, out, checked) == (2, "", [])
    for word in words:
        assert word in " ".join(err.split())
    assert (file.read_text(), Path("other.json").read_text()) == (KERNEL, '{"format": "another"}')
    assert sorted(x.name for x in Path().iterdir()) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [None, "", '{"format": "tilepipe counterexample", "versi'],
    ids=["new", "empty", "damaged"],
)
def test_where_a_counterexample_can_go(text: str | None, file: Path, tilepipe: Call) -> None:
    path = Path("race.json")
    if text is not None:
        path.write_text(text)
    assert tilepipe("check", f"{file}:right", "--save", path)[0] == 0
    assert (path.read_text() if path.exists() else None) == text, "there is nothing to keep"
    assert tilepipe("check", f"{file}:wrong", "--save", path)[0] == 1
    assert saved.read(path).fault.loc == LOAD


@pytest.mark.slow
def test_a_fault_is_told_where_it_cannot_be_saved_after_all(
    file: Path, tilepipe: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    code, out, err = tilepipe("check", f"{file}:wrong", "--save", "race.json")
    assert code == 1
    assert "race on tiles[0] of CTA 0" in out
    assert "Saved in" not in out
    assert "the counterexample is not saved: cannot write race.json: No space left on device" in err
    told = tilepipe("check", f"{file}:wrong", "--save", "race.json", "--json")
    assert "saved" not in report(told, 1)
    assert "No space left on device" in told[2]


@pytest.mark.slow
def test_settings_that_are_no_text_are_kept(file: Path, tilepipe: Call) -> None:
    """A byte that is no UTF-8 reaches Python as half of a surrogate pair."""
    assert (
        tilepipe(
            "check", f"{file}:small", "-s", "early=true", "-s", "note=\udcff", "--save", "race.json"
        )[0]
        == 1
    )
    assert saved.read(Path("race.json")).settings == ("early=true", "note=\udcff")
    assert tilepipe("replay", "race.json")[0] == 1


@pytest.mark.slow
def test_a_counterexample_is_replayed(kept: Path, tilepipe: Call) -> None:
    code, out, _ = tilepipe("replay", kept)
    assert code == 1
    for said in ("the same fault", "race on tiles[0] of CTA 0", "Counterexample", LOAD):
        assert said in out
    found = report(tilepipe("replay", kept, "--json"), 1)
    assert (found["replayed"], found["changed"], found["differs"]) == ("same", False, [])
    assert found["fault"]["message"] == found["saved"]["message"]
    assert found["instance"] == "2: a (32, 80), out (32, 80), 2 CTAs"


@pytest.mark.slow
def test_it_is_replayed_from_any_folder(
    kept: Path, tilepipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert tilepipe("replay", tmp_path / kept)[0] == 1


@pytest.mark.slow
def test_the_same_counterexample_is_found_again(kept: Path, file: Path, tilepipe: Call) -> None:
    first = kept.read_text()
    assert tilepipe("check", f"{file}:both", "-s", "early=true", "--save", kept)[0] == 1
    assert kept.read_text() == first


@pytest.mark.slow
def test_what_is_kept_is_what_was_found(kept: Path) -> None:
    found = saved.read(kept)
    assert (found.what, found.settings, found.number, found.rules) == (
        "copying.py:both",
        ("early=true",),
        1,
        "practice",
    )
    assert (found.fault.kind, found.fault.loc) == ("RaceError", LOAD)
    assert found.fault.schedule
    saved.write(Path("again.json"), found)
    assert saved.read(Path("again.json")) == found


@pytest.mark.slow
def test_a_fault_of_another_order_is_replayed(
    tilepipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of docs/concepts/checker.md asks whether a slot is filled, and goes on: right in
    the simulator's own order.
    """
    monkeypatch.chdir(tmp_path)
    Path("ring.py").write_text(
        blocks(ROOT / "docs" / "concepts" / "checker.md", "python")[0], encoding="utf-8"
    )
    found = report(tilepipe("check", "ring.py:program", "--save", "ring.json", "--json"), 1)
    assert (found["method"], found["saved"], found["faults"][0]["kind"]) == (
        "explored",
        "ring.json",
        "RaceError",
    )
    assert len(saved.read(Path("ring.json")).fault.schedule) >= 1
    again = report(tilepipe("replay", "ring.json", "--json"), 1)
    assert again["fault"]["message"] == found["faults"][0]["message"]
    assert (
        report(tilepipe("check", "ring.py:program", "-s", "waits=true", "--json"))["verdict"]
        == "verified"
    )


@pytest.mark.slow
def test_a_kernel_that_has_been_mended(kept: Path, file: Path, tilepipe: Call) -> None:
    file.write_text(KERNEL.replace("if not early:", "if True:"))
    code, out, _ = tilepipe("replay", kept)
    assert code == 2
    for said in (
        "no fault",
        f"saved: RaceError at {LOAD}",
        "ends without a fault",
        "The kernel has changed since",
    ):
        assert said in out
    found = report(tilepipe("replay", kept, "--json"), 2)
    assert (found["replayed"], found["changed"], found["fault"]) == ("none", True, None)


@pytest.mark.slow
def test_a_kernel_that_fails_in_another_way(kept: Path, file: Path, tilepipe: Call) -> None:
    file.write_text(
        KERNEL.replace("expect_bytes(tiles.tile_bytes)", "expect_bytes(tiles.tile_bytes + 16)")
    )
    code, out, _ = tilepipe("replay", kept)
    assert code == 2
    for said in (
        "another fault",
        "kind saved: RaceError",
        "kind now: DeadlockError",
        "has changed since",
    ):
        assert said in out
    assert report(tilepipe("replay", kept, "--json"), 2)["replayed"] == "other"


@pytest.mark.slow
def test_a_kernel_whose_lines_have_moved_is_the_same(
    kept: Path, file: Path, tilepipe: Call
) -> None:
    file.write_text("# copies\n\n" + KERNEL)
    code, out, _ = tilepipe("replay", kept)
    moved = at("ctx.tma_load(", 2)
    assert code == 1
    assert "the same fault." in out
    assert f"{LOAD} is {moved} now" in next(
        line for line in out.splitlines() if line.startswith("lines have moved: ")
    )
    assert f"at {moved}: " in out.replace(str(Path.cwd()) + "/", ""), (
        "the story is of the file as it is"
    )
    found = report(tilepipe("replay", kept, "--json"), 1)
    assert (found["replayed"], found["changed"], found["differs"], found["moved"][LOAD]) == (
        "same",
        True,
        [],
        moved,
    )


@pytest.mark.slow
def test_a_comment_on_its_line_makes_no_other_fault(kept: Path, file: Path, tilepipe: Call) -> None:
    file.write_text(KERNEL.replace("stage.mbar())\n", "stage.mbar())  # a copy\n"))
    found = report(tilepipe("replay", kept, "--json"), 1)
    assert (found["replayed"], found["changed"], found["moved"]) == ("same", False, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "a, (row, j * TILE)",
            "a, (row, (columns - 1 - j) * TILE)",
            [f"line saved: {LOAD}: ctx.tma_load(a, (row, j *", "- 1 - j"],
        ),
        (
            'name="tiles")',
            'name="panes")',
            ["step 1 saved: role 'store' of CTA 0, ", "tiles[stage", "step 1 now: ", "panes[stage"],
        ),
    ],
)
def test_another_line_or_another_step_is_another_fault(
    old: str, new: str, words: list[str], kept: Path, file: Path, tilepipe: Call
) -> None:
    assert KERNEL.count(old) == 1
    file.write_text(KERNEL.replace(old, new))
    code, out, _ = tilepipe("replay", kept)
    assert code == 2
    for said in (*words, "another fault", "The kernel has changed since"):
        assert said in out


@pytest.mark.slow
def test_the_story_is_told_anew_and_not_read_from_the_file(kept: Path, tilepipe: Call) -> None:
    def edited(x: dict[str, Any]) -> None:
        x["fault"].update(message="nothing to see", left_out=7)
        x["fault"]["steps"][0].update(effect="never happened")

    _, before, _ = tilepipe("replay", kept)
    told = report(tilepipe("replay", kept, "--json"), 1)["fault"]
    assert told["steps"] == json.loads(kept.read_text())["fault"]["steps"]
    kept.write_text(damaged(edited)(kept.read_text()))
    assert tilepipe("replay", kept)[:2] == (1, before)
    assert report(tilepipe("replay", kept, "--json"), 1)["fault"] == told
    kept.write_text(damaged(lambda x: x["fault"]["steps"].pop())(kept.read_text()))
    code, out, _ = tilepipe("replay", kept)
    assert code == 2
    assert "saved: none" in out


@pytest.mark.slow
def test_a_shipped_kernel_is_replayed(tmp_path: Path, tilepipe: Call) -> None:
    """There is no fault of one to keep: one is made up, and does not come."""
    fault = check.Fault("RaceError", "made up", "gemm.py:1")
    path = tmp_path / "gemm.json"
    saved.write(
        path, saved.Saved("gemm", ("stages=2",), 0, "2 tiles per CTA", "practice", "", fault)
    )
    found = report(tilepipe("replay", path, "--json"), 2)
    assert (found["kernel"], found["config"]["stages"], found["replayed"]) == ("gemm", 2, "none")
    saved.write(
        path, saved.Saved("gemm", ("stages=2",), 5, "2 tiles per CTA", "practice", "", fault)
    )
    code, _, err = tilepipe("replay", path)
    assert code == 2
    assert "is of instance 6 of gemm, which makes 2 now" in err


KEYS = (
    "what",
    "settings",
    "number",
    "instance",
    "rules",
    "program",
    "fault",
    "lines",
    "picks",
    "schedule",
)


def damaged(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        found = json.loads(text)
        change(found)
        return json.dumps(found)

    return changed


def without(name: str) -> Callable[[str], str]:
    return damaged(lambda x: x.pop(name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 2], ["is no saved counterexample, or cut short"]),
        (lambda text: "", ["is no saved counterexample, or cut short"]),
        (lambda text: "[" * 100_000, ["or cut short: it is nested too deeply"]),
        (
            lambda text: '{"kernel": "gemm"}',
            ["is no saved counterexample: `tilepipe check KERNEL --save FILE.json` writes them"],
        ),
        (lambda text: "[1, 2]", ["is no saved counterexample"]),
        (
            damaged(lambda x: x.update(version=0)),
            ["is of version 0; this tilepipe reads version 1", "tilepipe check copying.py:both"],
        ),
        (damaged(lambda x: x.pop("version")), ["damaged: 'version' is missing"]),
        (damaged(lambda x: x.update(version="1")), ["damaged: 'version' is a str, not an int"]),
        (
            damaged(lambda x: x.update(picks=["agent"])),
            ["damaged: 'picks' is ['agent'], not ['cluster', 'agent', 'until',"],
        ),
        *(
            (without(name), [f"race.json is damaged: '{name}' is missing. Have it found again"])
            for name in KEYS
        ),
        (
            damaged(lambda x: x.update(rules="lax")),
            ['damaged: rules= is "practice"', 'or "strict"', "got 'lax'"],
        ),
        (damaged(lambda x: x.update(number=-1)), ["damaged: 'number' is -1, which is negative"]),
        (
            damaged(lambda x: x["fault"].update(left_out=-3)),
            ["damaged: 'left_out' is -3, which is negative"],
        ),
        (damaged(lambda x: x["fault"].update(left_out=1.5)), ["'left_out' is a float, not an int"]),
        (damaged(lambda x: x["fault"].update(steps={})), ["'steps' is a dict, not a list"]),
        (
            damaged(lambda x: x["fault"]["steps"][0].update(effect=None)),
            ["'effect' is a NoneType, not a str"],
        ),
        (damaged(lambda x: x["fault"]["steps"][0].pop("agent")), ["'agent' is missing"]),
        (
            damaged(lambda x: x.update(lines={"copying.py:1": 3})),
            ["line copying.py:1 is an int, not a str"],
        ),
        (
            damaged(lambda x: x["schedule"].append([1, 2])),
            ["an entry of the schedule has 5 numbers, not 2"],
        ),
        (
            damaged(lambda x: x["schedule"].append(["0"] * 5)),
            ["an entry of the schedule is a str, not an int"],
        ),
        (damaged(lambda x: x.update(number="1")), ["'number' is a str, not an int"]),
        (damaged(lambda x: x.update(number=True)), ["'number' is a bool, not an int"]),
        (damaged(lambda x: x["fault"].pop("kind")), ["'kind' is missing"]),
        (damaged(lambda x: x["fault"].update(steps=[3])), ["a step is an int, not a dict"]),
        (damaged(lambda x: x.update(settings=[1])), ["a setting is an int, not a str"]),
        (damaged(lambda x: x.update(what="gone.py:both")), ["cannot read gone.py"]),
        (damaged(lambda x: x.update(what="gem")), ["there is no kernel 'gem'"]),
        (
            damaged(lambda x: x.update(number=2)),
            ["is of instance 3 of copying.py:both, which makes 2 now"],
        ),
    ],
)
def test_a_file_that_cannot_be_replayed_is_one_message(
    change: Callable[[str], str], words: list[str], kept: Path, tilepipe: Call
) -> None:
    kept.write_text(change(kept.read_text()))
    code, _, err = tilepipe("replay", kept)
    assert code == 2
    assert "Traceback" not in err
    for word in words:
        assert word in " ".join(err.split())


@pytest.mark.slow
def test_a_schedule_of_something_else(kept: Path, tilepipe: Call) -> None:
    """What it cannot perform is left out; in this kernel every order ends in the fault."""
    kept.write_text(damaged(lambda x: x.update(schedule=[[9, 99, 1, -1, -1]]))(kept.read_text()))
    assert report(tilepipe("replay", kept, "--json"), 1)["replayed"] == "same"


def test_a_file_that_is_not_there(tilepipe: Call) -> None:
    code, out, err = tilepipe("replay", "no.json")
    assert (code, out) == (2, "")
    assert "cannot read no.json: No such file or directory" in err


@pytest.mark.slow
def test_a_page_of_what_leads_to_the_fault(kept: Path, tilepipe: Call) -> None:
    code, _, err = tilepipe("replay", kept, "-o", "race.html")
    assert code == 1
    assert "race.html: " in err
    page = Path("race.html").read_text(encoding="utf-8")
    text = page[page.index('type="application/json">') + 24 :]
    data = json.loads(text[: text.index("</script>")])
    (run,), texts = data["runs"], data["texts"]
    fault = json.loads(tilepipe("replay", kept, "--json")[1])["fault"]
    assert texts[run["fault"]["message"]] == fault["message"]
    steps = [[texts[x] for x in step] for step in run["fault"]["steps"]]
    assert steps == [[x["agent"], x["op"], x["loc"], x["effect"]] for x in fault["steps"]]
    assert {texts[x] for x in run["events"]["op"]} >= {"tma_load", "mbar_wait"}


@pytest.mark.slow
def test_a_page_needs_a_name(kept: Path, tilepipe: Call) -> None:
    code, _, err = tilepipe("replay", kept, "-o", "race.txt")
    assert code == 2
    assert "a timeline is a page, -o race.html" in " ".join(err.split())
