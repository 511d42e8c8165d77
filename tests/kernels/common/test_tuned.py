"""The file of tuned configurations: kept, merged, read once for each change, and never fatal."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import tilepipe as tp
from tilepipe.kernels.common import tuned
from tilepipe.kernels.gemm import heuristics as gemm_choice
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import TUNABLE, Problem

PROBLEM = Problem(4096, 2048, 512)
CONFIG = GemmConfig(bn=256, cluster=2)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "below" / "tuned.json"
    monkeypatch.setenv("TILEPIPE_TUNED", str(path))
    return path


def warned(*problems: Problem) -> tuple[list[GemmConfig | None], str]:
    """What lookups give, and the one warning of them all."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [tuned.lookup(TUNABLE, problem, tp.H200) for problem in problems]
    assert [w.category for w in caught] == [tuned.TunedFileWarning]
    return found, str(caught[0].message)


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_what_is_remembered_is_found(file: Path) -> None:
    assert tuned.lookup(TUNABLE, PROBLEM, tp.H200) is None
    assert tuned.remember(TUNABLE, PROBLEM, tp.H200, CONFIG, {"us": 12.5}) == file
    assert tuned.lookup(TUNABLE, PROBLEM, tp.H200) == CONFIG
    assert tuned.lookup(TUNABLE, Problem(4096, 2048, 520), tp.H200) is None
    assert tuned.lookup(TUNABLE, PROBLEM, tp.Chip(name="H100")) is None
    assert tuned.entries([TUNABLE]) == ({"H200: m=4096 n=2048 k=512": (CONFIG, {"us": 12.5})}, [])


def test_the_last_entry_for_a_problem_counts_and_names_are_sorted(file: Path) -> None:
    for n, stages in ((64, 3), (8, 4), (64, 5)):
        tuned.remember(TUNABLE, Problem(8, n, 8), tp.H200, GemmConfig(stages=stages), {})
    assert list(json.loads(file.read_text())) == ["H200: m=8 n=64 k=8", "H200: m=8 n=8 k=8"]
    found = tuned.lookup(TUNABLE, Problem(8, 64, 8), tp.H200)
    assert found is not None
    assert found.stages == 5


def test_another_machine_s_entries_are_taken_over(file: Path, tmp_path: Path) -> None:
    tuned.remember(TUNABLE, PROBLEM, tp.H200, CONFIG, {"us": 12.5})
    good = {"config": {"stages": 3}}
    theirs = {
        "H200: m=4096 n=2048 k=512": {"config": {"stages": 5}},
        "H200: m=8 n=8 k=8": good,
        "H100: m=8 n=8 k=8": good,
        "H200: m=8 n=8 k=16": {"config": {"stages": 1}},
    }
    other = tmp_path / "theirs.json"
    other.write_text(json.dumps(theirs, indent=1))
    taken, known, problems = tuned.merge(other, [TUNABLE])
    assert (taken, known) == (2, 1)
    (problem,) = problems
    assert problem.startswith(
        f"{other}:17: 'H200: m=8 n=8 k=16' is ignored: stages must be at least 2"
    )
    assert tuned.lookup(TUNABLE, PROBLEM, tp.H200) == CONFIG, "what was here stays"
    for chip in (tp.H200, tp.Chip(name="H100")):
        assert tuned.lookup(TUNABLE, Problem(8, 8, 8), chip) == GemmConfig(stages=3)
    assert tuned.merge(other, [TUNABLE])[:2] == (0, 3)
    other.write_text("no JSON")
    with pytest.raises(tp.BindError, match=r"theirs\.json:1: it is not JSON"):
        tuned.merge(other, [TUNABLE])


def test_an_entry_here_that_cannot_be_used_gives_way(file: Path, tmp_path: Path) -> None:
    name, smem = "H200: m=8 n=8 k=8", "H200: m=8 n=8 k=16"
    written(file, json.dumps({name: {"config": {"bn": 7}}, smem: {"config": {"stages": 90}}}))
    other = tmp_path / "theirs.json"
    good = {"config": {"stages": 3}}
    other.write_text(json.dumps({name: good, smem: good}))
    taken, known, problems = tuned.merge(other, [TUNABLE])
    assert (taken, known) == (2, 0)
    assert json.loads(file.read_text()) == {name: good, smem: good}
    rule, room = sorted(problems, key=len)
    assert f"{file}:1: {name!r} is ignored: bn must be" in rule + room
    assert f"{smem!r} is ignored: it needs" in rule + room
    assert rule.endswith(f"; the entry of {other} takes its place")
    assert room.endswith(f"; the entry of {other} takes its place")


@pytest.mark.parametrize(
    "name",
    [
        "H200: m=-1 n=64 k=64",
        "H200: k=64 m=66 n=64",
        "H200: m=66 n=64",
        "H200: m=66 n=64 k=64 depth=2",
        "m=66 n=64 k=64",
        "\x1b[31mH200: m=66 n=64 k=64",
    ],
)
def test_an_entry_of_another_name_is_ignored(name: str, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "theirs.json"
    other.write_text(json.dumps({name: {"config": {"stages": 3}}}))
    taken, _, (problem,) = tuned.merge(other, [TUNABLE])
    assert taken == 0
    assert "is ignored: an entry is named as 'H200: m=4096 n=4096 k=4096'" in problem
    assert problem.isprintable()


def test_a_chip_in_small_letters_is_none(file: Path) -> None:
    written(file, json.dumps({"h200: m=66 n=64 k=64": {"config": {"stages": 3}}}))
    found, (problem,) = tuned.entries([TUNABLE])
    assert found == {}
    assert problem.endswith("is ignored: no chip is called 'h200'; 'H200' may be meant")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("m=66 n=64 k=64 dtype=bfloat16", "but for 'H200: m=66 n=64 k=64', without what is the"),
        ("m=66 n=64 k=64 batch=01", "but for 'H200: m=66 n=64 k=64', without what is the default"),
        ("m=66 n=64 k=64 dtype=fp16", "but for 'H200: m=66 n=64 k=64 dtype=float16'"),
        ("m=66 n=64 k=64 dtype=bfloat17", "unknown dtype 'bfloat17'; known: "),
        ("m=66 n=64 k=64 source=maybe", "source is True or False, got 'maybe'"),
        ("m=66 n=64 k=64 a_order=diag", "a_order is row or col, got 'diag'"),
        ("m=66 n=64 k=64 scales=all", "scales is none, tensor, row or block, got 'all'"),
        ("m=66 n=64 k=64 depth=2 width=3", "extents first; there is no 'depth', 'width'"),
        ("m=66 k=64", "extents first; n is missing"),
    ],
)
def test_an_entry_that_no_launch_asks_for_is_ignored_with_its_line(
    name: str, why: str, file: Path
) -> None:
    written(file, json.dumps({f"H200: {name}": {"config": {"stages": 3}}}, indent=1))
    found, message = warned(Problem(66, 64, 64))
    assert found == [None]
    assert f"{file}:2: 'H200: {name}' is ignored: " in message
    assert why in message
    assert tuned.entries([TUNABLE]) == ({}, [message])


def test_an_entry_that_does_not_fit_is_not_listed_as_good(file: Path) -> None:
    tuned.remember(TUNABLE, PROBLEM, tp.H200, GemmConfig(stages=90), {})
    found, (problem,) = tuned.entries([TUNABLE])
    assert found == {}
    assert problem.startswith(f"{file}:2: 'H200: m=4096 n=2048 k=512' is ignored: it needs ")


def test_an_entry_that_stands_there_twice_is_ignored(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "theirs.json"
    one = '"H200: m=8 n=8 k=8": {"config": {"stages": %d}}'
    other.write_text(f"{{{one % 3},\n{one % 4}}}")
    taken, _, (problem,) = tuned.merge(other, [TUNABLE])
    assert taken == 0
    assert problem.endswith("'H200: m=8 n=8 k=8' is ignored: it stands there more than once")


def test_an_entry_says_what_is_not_the_default() -> None:
    problem = Problem(8, 16, 24, batch=2, dtype=tp.float16, b_order="col")
    assert (
        TUNABLE.entry(problem, tp.H200) == "H200: m=8 n=16 k=24 batch=2 dtype=float16 b_order=col"
    )


@pytest.mark.slow
def test_choose_asks_it_first(file: Path) -> None:
    problem = 4096, 2048, 512, tp.bfloat16, tp.bfloat16
    unheard_of = GemmConfig(bn=48, stages=3)
    assert gemm_choice.choose(*problem) == gemm_choice.best(PROBLEM) != unheard_of
    tuned.remember(TUNABLE, PROBLEM, tp.H200, unheard_of, {})
    assert gemm_choice.choose(*problem) == unheard_of
    assert gemm_choice.best(PROBLEM) != unheard_of


def test_forget_takes_one_or_all_of_a_chip(file: Path) -> None:
    other = tp.Chip(name="H100")
    for n in (8, 16, 24):
        tuned.remember(TUNABLE, Problem(8, n, 8), tp.H200, CONFIG, {})
    tuned.remember(TUNABLE, PROBLEM, other, CONFIG, {})
    name = TUNABLE.entry(Problem(8, 16, 8), tp.H200)
    assert tuned.forget(tp.H200, name=name) == 1
    assert tuned.forget(tp.H200, name=name) == 0
    assert tuned.forget(tp.H200) == 2
    assert tuned.lookup(TUNABLE, PROBLEM, other) == CONFIG


def test_the_file_is_read_once_for_each_change(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned.remember(TUNABLE, PROBLEM, tp.H200, CONFIG, {})
    reads: list[Path] = []
    read = tuned._read

    def counted(path: Path) -> tuned.File:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(tuned, "_read", counted)
    for _ in range(5):
        tuned.lookup(TUNABLE, PROBLEM, tp.H200)
    assert len(reads) == 1
    tuned.remember(TUNABLE, PROBLEM, tp.H200, GemmConfig(stages=3), {})
    reads.clear()
    for _ in range(5):
        assert tuned.lookup(TUNABLE, PROBLEM, tp.H200) == GemmConfig(stages=3)
    assert len(reads) == 1


def test_a_lookup_is_one_stat_and_no_search(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: it is part of a launch."""
    config = {"config": {"bn": 256}}
    written(
        file,
        json.dumps({TUNABLE.entry(Problem(8, n, 8), tp.H200): config for n in range(8, 4008, 8)}),
    )
    assert tuned.lookup(TUNABLE, Problem(8, 4000, 8), tp.H200) == GemmConfig(bn=256)
    stats, calls = itertools.count(), itertools.count()
    stat = os.stat

    def counted_stat(path: Any) -> os.stat_result:
        next(stats)
        return stat(path)

    def called(_frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            next(calls)

    monkeypatch.setattr(os, "stat", counted_stat)
    sys.setprofile(called)
    try:
        assert tuned.lookup(TUNABLE, PROBLEM, tp.H200) is None
    finally:
        sys.setprofile(None)
    assert next(stats) == 1
    assert next(calls) < 50  # of 500 entries


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{\n\n oops", [":3:", "not JSON"]),
        ("", [":1:", "not JSON"]),
        ("[1, 2]", [":1:", "must be an object"]),
        ('{"a": ' * 100_000, ["ignored"]),
    ],
)
def test_a_malformed_file_is_one_warning_and_left_alone(
    file: Path, text: str, words: list[str]
) -> None:
    written(file, text)
    found, message = warned(PROBLEM, PROBLEM)
    assert found == [None, None]
    for word in (str(file), *words):
        assert word in message
    with pytest.raises(tp.BindError, match="left as it is"):
        tuned.remember(TUNABLE, PROBLEM, tp.H200, CONFIG, {})
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1, ['no object "config"']),
        ({"us": 3}, ['no object "config"']),
        ({"config": {"bm": 128, "depth": 3}}, ["unknown setting depth", "stages"]),
        ({"config": {"bm": "128"}}, ["bm must be an integer"]),
        ({"config": {"stages": 1}}, ["stages must be at least 2"]),
    ],
)
def test_a_bad_entry_is_named_with_its_line_and_the_others_hold(
    file: Path, value: Any, words: list[str]
) -> None:
    good = {"config": {"bn": 256, "cluster": 2}}
    written(
        file,
        json.dumps({TUNABLE.entry(PROBLEM, tp.H200): good, "H200: m=1 n=8 k=8": value}, indent=1),
    )
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if "m=1 n=8" in text)
    found, message = warned(PROBLEM, Problem(1, 8, 8))
    assert found == [CONFIG, None]
    for word in (f"{file}:{line}:", "'H200: m=1 n=8 k=8' is ignored", *words):
        assert word in message
    tuned.remember(TUNABLE, Problem(16, 16, 16), tp.H200, CONFIG, {})
    # what is not understood is kept
    assert json.loads(file.read_text())["H200: m=1 n=8 k=8"] == value


def test_not_utf8_and_unreadable(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"\xff\xfe")
    with pytest.warns(tuned.TunedFileWarning, match="not UTF-8"):
        assert tuned.lookup(TUNABLE, PROBLEM, tp.H200) is None
    file.unlink()
    file.mkdir()
    with pytest.warns(tuned.TunedFileWarning, match="directory"):
        assert tuned.lookup(TUNABLE, PROBLEM, tp.H200) is None


def test_a_place_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEPIPE_TUNED", "/dev/null/tuned.json")
    assert tuned.lookup(TUNABLE, PROBLEM, tp.H200) is None
    with pytest.raises(tp.BindError, match=r"cannot write /dev/null/tuned\.json"):
        tuned.remember(TUNABLE, PROBLEM, tp.H200, CONFIG, {})
    monkeypatch.setenv("TILEPIPE_TUNED", "off")
    assert tuned.lookup(TUNABLE, PROBLEM, tp.H200) is None
    with pytest.raises(tp.BindError, match="TILEPIPE_TUNED is off"):
        tuned.remember(TUNABLE, PROBLEM, tp.H200, CONFIG, {})


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEPIPE_TUNED", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/xdg")
    assert tuned.location() == Path("/xdg/tilepipe/tuned.json")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert tuned.location() == Path("/home/somebody/.config/tilepipe/tuned.json")


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.json"
    file.parent.mkdir()
    file.symlink_to(target)
    tuned.remember(TUNABLE, PROBLEM, tp.H200, CONFIG, {})
    assert file.is_symlink()
    assert "m=4096" in target.read_text()


@pytest.mark.slow
def test_writers_in_many_processes_lose_nothing(file: Path) -> None:
    code = (
        "import sys, tilepipe as tp\n"
        "from tilepipe.kernels.common import tuned\n"
        "from tilepipe.kernels.gemm.heuristics import TUNABLE, Problem\n"
        "from tilepipe.kernels.gemm.config import GemmConfig\n"
        "for n in range(10):\n"
        "    problem = Problem(int(sys.argv[1]), 8 * n + 8, 8)\n"
        "    tuned.remember(TUNABLE, problem, tp.H200, GemmConfig(), {})\n"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(i)], env=os.environ) for i in (1, 2, 3, 4)
    ]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0, 0, 0]
    assert len(json.loads(file.read_text())) == 40
    assert sorted(p.name for p in file.parent.iterdir()) == [".tuned.json.lock", "tuned.json"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ('{"bm": ' + "9" * 6000 + "}", "integer string conversion"),
        ('{"activation": "relu"}', "activation says what is computed"),
        ('{"schedule": "pingpong", "bm": 64, "split_k": 2}', "split_k"),
    ],
)
def test_what_cannot_be_a_tuned_configuration_is_ignored(
    file: Path, config: str, words: str
) -> None:
    written(file, f'{{"{TUNABLE.entry(PROBLEM, tp.H200)}": {{"config": {config}}}}}')
    found, warning = warned(PROBLEM, PROBLEM)
    assert found == [None, None]
    assert str(file) in warning
    assert words in warning


def test_what_does_not_fit_the_chip_is_ignored(file: Path) -> None:
    tuned.remember(TUNABLE, PROBLEM, tp.H200, GemmConfig(stages=100), {})
    found, warning = warned(PROBLEM, PROBLEM)
    assert found == [None, None]
    assert "'H200: m=4096 n=2048 k=512' is ignored: it needs 3,3" in warning
    assert "H200 has 232,448" in warning
