"""`tilepipe timeline`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tilepipe as tp
from tests.cli.copying import Call, report
from tilepipe.cli import common

SMALL = ["-s", "m=256", "-s", "n=256", "-s", "k=256"]


def test_a_shipped_kernel(tilepipe: Call, tmp_path: Path) -> None:
    file = tmp_path / "gemm.json"
    found = report(tilepipe("timeline", "gemm", *SMALL, "-o", file, "--ctas", "2", "--json"))
    assert (found["kernel"], found["ctas"], found["output"]) == ("gemm", 2, str(file))
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    begun = {e["id"]: e for e in events if e["ph"] == "b"}
    ended = {e["id"]: e for e in events if e["ph"] == "e"}
    waits = [e for e in events if e["ph"] == "X"]
    assert begun.keys() == ended.keys()
    assert len(begun) == sum(x["count"] for x in found["units"])
    assert len(waits) == sum(w["count"] for x in found["roles"] for w in x["waits"])
    assert len(begun) + len(waits) == found["events"]
    assert {e["pid"] for e in begun.values()} == {0, 1}
    assert all(begun[i]["ts"] <= ended[i]["ts"] <= found["simulated_us"] for i in begun)
    assert {x["kind"] for x in found["units"]} >= {"tma_load", "tma_store", "wgmma"}
    assert all(0 < x["busy"] <= 1 for x in found["units"])
    assert all(re.fullmatch(r"\w+\.py:\d+", e["args"]["at"]) for e in begun.values())
    mma = next(x for x in found["roles"] if x["role"] == "mma")
    assert mma["agents"] == 4
    assert mma["waits"][0]["on"] == "inputs.full"
    assert [w["us"] for w in mma["waits"]] == sorted((w["us"] for w in mma["waits"]), reverse=True)


def test_a_file(file: Path, tilepipe: Call) -> None:
    code, out, err = tilepipe("timeline", f"{file}:small", "-s", "columns=3", "-o", "t.json")
    assert code == 0
    assert re.search(r"load × 2.*ring\.empty \d+%", out)
    assert "tma_load" in out
    assert "arithmetic in registers" in out
    assert "ui.perfetto.dev opens it" in err
    names = [
        e["args"]["name"]
        for e in json.loads(Path("t.json").read_text(encoding="utf-8"))["traceEvents"]
        if e["ph"] == "M"
    ]
    assert names == ["CTA 0", "CTA 1", "load", "store", "load", "store"]


def test_a_page_of_two_runs(file: Path, tilepipe: Call) -> None:
    first = ["-s", "columns=3", "-s", "stages=2"]
    code, out, err = tilepipe(
        "timeline", f"{file}:small", *first, "--beside-set", "stages=1", "-o", "t.html"
    )
    assert code == 0
    assert f"{file}:small columns=3 stages=2, 2 of 2 CTAs" in out.replace("\n", " ")
    assert f"{file}:small columns=3 stages=1, 2 of 2 CTAs" in out.replace("\n", " ")
    assert "any browser opens it" in err
    page = Path("t.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.count('"grid":2') == 2


@pytest.mark.slow
def test_what_cannot_be_written_or_is_no_program(file: Path, tilepipe: Call) -> None:
    for args, message in [
        ((f"{file}:small", "-o", "no/such/t.json"), "cannot write no/such/t.json"),
        ((f"{file}:both", "-o", "t.json"), "makes 2 programs"),
        ((f"{file}:small", "-o", "t.txt"), "a timeline is a page, -o t.html, or trace events"),
        ((f"{file}:small", "--beside", "gemm", "-o", "t.json"), "two timelines are a page"),
        (
            (f"{file}:small", "--beside", "stages=1", "-o", "t.html"),
            "with other settings beside it, give --beside-set stages=1",
        ),
    ]:
        code, _, err = tilepipe("timeline", *args)
        assert code == 2
        assert message in " ".join(err.split())


@pytest.mark.slow
def test_the_ptx_of_a_program(file: Path, tilepipe: Call) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    found = report(tilepipe("timeline", f"{file}:small", "--from", "ptx", "-o", "t.html", "--json"))
    (warps,) = found["roles"]
    assert (warps["role"], warps["agents"]) == ("warp", 4)
    assert {x["kind"].split("::")[0] for x in found["units"]} == {
        "cp.async.bulk.tensor.2d.shared",
        "cp.async.bulk.tensor.2d.global.shared",
    }
    assert found["device"] is None
    assert found["simulated_us"] > 2


def test_one_kernel_beside_itself(file: Path, tilepipe: Call) -> None:
    code, out, _ = tilepipe("timeline", f"{file}:small", "--beside-device", "sim", "-o", "t.html")
    assert code == 0
    assert out.count(f"{file}:small, 2 of 2 CTAs") == 2


def test_ptx_is_simulated(file: Path, tilepipe: Call) -> None:
    asked = ["--device", "cuda", "--from", "ptx"]
    code, _, err = tilepipe("timeline", f"{file}:small", *asked, "-o", "t.html")
    assert code == 2
    assert "--from ptx simulates: it goes with --device sim" in " ".join(err.split())


def test_room_is_for_a_gpu(file: Path, tilepipe: Call) -> None:
    code, _, err = tilepipe("timeline", f"{file}:small", "--room", "3", "-o", "t.html")
    assert code == 2
    assert "--room is for what is measured: give --device cuda" in " ".join(err.split())
    assert not Path("t.html").exists()


def test_nothing_to_show_is_said(tilepipe: Call) -> None:
    code, out, _ = tilepipe("timeline", "rms_norm", "-s", "m=8", "-s", "n=512", "-o", "t.html")
    assert code == 0
    assert "nothing to show: a timeline has copies, MMAs and waits that block" in out
    assert "in flight" not in out


def test_more_room_than_there_can_be(file: Path, tilepipe: Call) -> None:
    asked = ["--device", "cuda", "--room", "4294967296"]
    code, _, err = tilepipe("timeline", f"{file}:small", *asked, "-o", "t.html")
    assert code == 2
    assert re.search(r"room=4,294,967,296 for each of \d warps of 2 CTAs .* bytes of GPU memory",
                     " ".join(err.split()))  # fmt: skip


@pytest.mark.slow
def test_one_stage_more(file: Path, tilepipe: Call) -> None:
    def args(stages: int) -> list[str]:
        return [
            "timeline",
            f"{file}:small",
            "-s",
            f"stages={stages}",
            "-s",
            "columns=4",
            "--more-stages",
            "-o",
            "t.html",
        ]

    _, out, _ = tilepipe(*args(1))
    said = re.search(
        r"one stage more, stages=2, would save (\d\.\d\d) µs of \d\.\d \(\d+%\), modelled",
        " ".join(out.split()),
    )
    assert said is not None
    one, two = (report(tilepipe(*args(stages), "--json")) for stages in (1, 2))
    first, second = one["simulated_us"], two["simulated_us"]
    assert one["more_stages"] == [{"setting": "stages", "value": 2, "simulated_us": second}]
    assert float(said[1]) == pytest.approx(first - second, abs=0.006)
    assert re.search(r"critical path of CTA 0, \d\.\d\d µs: tma_load: latency \d+%", out)
    launch = 2.0  # µs, of which no CTA knows
    assert sum(x["us"] for x in one["critical_path"]) == pytest.approx(first - launch)


def test_what_a_stage_would_save_is_said_of_the_first_kernel(file: Path, tilepipe: Call) -> None:
    asked = ["-s", "stages=1", "--beside-set", "stages=2", "--more-stages", "-o", "t.html"]
    _, out, _ = tilepipe("timeline", f"{file}:small", *asked)
    said = " ".join(out.split())
    places = [said.index(x) for x in (":small stages=1, ", "one stage more, ", ":small stages=2, ")]
    assert places == sorted(places)


@pytest.mark.slow
def test_one_stage_more_that_does_not_fit(tilepipe: Call) -> None:
    settings = ["-s", "bm=128", "-s", "bn=256", "-s", "stages=4", *SMALL]
    _, out, _ = tilepipe("timeline", "gemm", *settings, "--more-stages", "-o", "t.html")
    said = " ".join(out.split())
    assert "one stage more, stages=5, is refused: " in said
    assert "shared memory" in said
    assert "raster=" not in said, "all settings"


@pytest.mark.slow
def test_one_stage_more_that_breaks_a_rule(tilepipe: Call) -> None:
    """The rule alone is said, not the configuration that it is about."""
    settings = ["-s", "batch=1", "-s", "s_q=128", "-s", "s_kv=128", "-s", "d=64"]
    _, out, _ = tilepipe("timeline", "attention", *settings, "--more-stages", "-o", "t.html")
    said = " ".join(out.split())
    assert "q_stages=3, is refused: q_stages must be 1 or 2" in said
    assert "AttentionConfig" not in said


@pytest.mark.slow
def test_a_kernel_is_simulated_once_unless_more_stages_are_asked_for(
    file: Path, tilepipe: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[bool] = []  # whether progress is shown
    run = tp.Program.run

    def counted(program: tp.Program, *args: Any, **options: Any) -> Any:
        runs.append(options.get("progress") is not None)
        return run(program, *args, **options)

    monkeypatch.setattr(tp.Program, "run", counted)
    args = ("timeline", f"{file}:small", "-s", "stages=1", "-o", "t.html")
    assert report(tilepipe(*args, "--json"))["more_stages"] == []
    _, out, _ = tilepipe(*args)
    assert "one stage more" not in out
    assert len(runs) == 2

    monkeypatch.setattr(type(common.err), "is_terminal", True)
    code, out, _ = tilepipe(*args, "--more-stages")
    assert code == 0
    assert "one stage more" in out
    assert runs[2:] == [True, True]


def test_more_stages_are_of_what_is_simulated(file: Path, tilepipe: Call) -> None:
    for other in (["--device", "cuda"], ["--from", "ptx"]):
        code, _, err = tilepipe(
            "timeline", f"{file}:small", *other, "--more-stages", "-o", "t.html"
        )
        assert code == 2
        assert "--more-stages simulates the program itself: leave out" in " ".join(err.split())


def test_a_kernel_without_stages(tilepipe: Call) -> None:
    settings = ["-s", "m=4", "-s", "n=512"]
    code, _, err = tilepipe("timeline", "rms_norm", *settings, "--more-stages", "-o", "t.html")
    assert code == 0
    assert "no setting of rms_norm says how many stages there are" in " ".join(err.split())


def test_what_leads_to_a_deadlock(file: Path, tilepipe: Call) -> None:
    first, last = file.read_text().rsplit("ctx.range(columns)", 1)
    file.write_text(f"{first}ctx.range(columns + 1){last}")  # the store warp waits once more
    code, _, err = tilepipe("timeline", f"{file}:small", "-o", "t.html")
    assert code == 1
    assert "deadlock: 1 of 2 agents" in err
    assert "t.html: what happened before the fault" in err
    page = Path("t.html").read_text(encoding="utf-8")
    assert "deadlock: 1 of 2 agents" in page


def test_one_of_two_ends_in_a_deadlock(file: Path, tilepipe: Call) -> None:
    good, dead = f"{file}:small", "dead.py:small"
    first, last = file.read_text().rsplit("ctx.range(columns)", 1)
    Path("dead.py").write_text(f"{first}ctx.range(columns + 1){last}")
    code, _, err = tilepipe("timeline", good, "--beside", dead, "-o", "t.html")
    assert code == 1
    assert f"t.html: {good}, " in err
    assert f" events, beside it what happened before the fault of {dead}, " in err
    page = Path("t.html").read_text(encoding="utf-8")
    assert f"<title>{good} beside " in page
    assert "deadlock: 1 of 2 agents" in page
    code, _, err = tilepipe("timeline", good, "--beside", "dead.py:none", "-o", "t3.html")
    assert code == 2
    assert f"t3.html: {good}, " in err
    assert "dead.py:none cannot be run" in err
    assert f"<title>{good}" in Path("t3.html").read_text(encoding="utf-8")
    code, _, err = tilepipe("timeline", dead, "--beside", good, "-o", "t2.html")
    assert code == 1
    assert f"t2.html: what happened before the fault of {dead}, " in err
    assert f" events, beside it {good}, " in err
    assert f"{dead} ends in a fault" in err
    page = Path("t2.html").read_text(encoding="utf-8")
    assert "deadlock: 1 of 2 agents" in page
    assert f" beside {good}</title>" in page
    code, _, err = tilepipe("timeline", dead, "--beside", dead, "-o", "t4.html")
    assert code == 1
    assert err.count(f"{dead} ends in a fault") == 2


def test_another_kernel_has_the_settings_that_it_takes(file: Path, tilepipe: Call) -> None:
    """A program that is no function has none; of a function, its parameters."""
    one = "\ndef other(stages: int):\n    return small(columns=2, stages=stages)\n"
    Path("other.py").write_text(f"{file.read_text()}{one}program = other(2)\n")
    first = "timeline", f"{file}:small", "-s", "columns=3", "-s", "stages=1"
    code, out, _ = tilepipe(*first, "--beside", "other.py:program", "-o", "t.html")
    assert code == 0
    assert "other.py:program, 2 of 2 CTAs" in out.replace("\n", " ")
    code, out, _ = tilepipe(*first, "--beside", "other.py:other", "-o", "t.html")
    assert code == 0
    assert "other.py:other stages=1, 2 of 2 CTAs" in out.replace("\n", " ")


def test_the_ending_of_a_name_may_have_capitals(file: Path, tilepipe: Call) -> None:
    for name, opens in ("t.HTML", "any browser opens it"), ("t.JSON", "ui.perfetto.dev opens it"):
        code, _, err = tilepipe("timeline", f"{file}:small", "-o", name)
        assert code == 0
        assert opens in " ".join(err.split())
        assert Path(name).stat().st_size
