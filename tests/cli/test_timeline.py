"""`tilepipe timeline`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.copying import Call, report
from tilepipe.cli.timeline import Event, units

SMALL = ["-s", "m=256", "-s", "n=256", "-s", "k=256"]


def test_a_shipped_kernel(tilepipe: Call, tmp_path: Path) -> None:
    file = tmp_path / "gemm.json"
    found = report(tilepipe("timeline", "gemm", *SMALL, "-o", file, "--ctas", "2", "--json"))
    assert (found["kernel"], found["ctas"], found["output"]) == ("gemm", 2, str(file))
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    begun = {e["id"]: e for e in events if e["ph"] == "b"}
    ended = {e["id"]: e for e in events if e["ph"] == "e"}
    assert begun.keys() == ended.keys()
    assert len(begun) == found["events"] == sum(x["count"] for x in found["units"])
    assert {e["pid"] for e in begun.values()} == {0, 1}
    assert all(begun[i]["ts"] <= ended[i]["ts"] <= found["simulated_us"] for i in begun)
    assert {x["kind"] for x in found["units"]} >= {"tma_load", "tma_store", "wgmma"}
    assert all(0 < x["busy"] <= 1 for x in found["units"])
    assert all(re.fullmatch(r"\w+\.py:\d+", e["args"]["at"]) for e in begun.values())


def test_a_file(file: Path, tilepipe: Call) -> None:
    code, out, err = tilepipe("timeline", f"{file}:small", "-s", "columns=3", "-o", "t.json")
    assert code == 0
    assert "tma_load" in out
    assert "ui.perfetto.dev opens it" in err
    names = [
        e["args"]["name"]
        for e in json.loads(Path("t.json").read_text(encoding="utf-8"))["traceEvents"]
        if e["ph"] == "M"
    ]
    assert names == ["CTA 0", "CTA 1", "load", "store", "load", "store"]


def test_what_cannot_be_written_or_is_no_program(file: Path, tilepipe: Call) -> None:
    code, _, err = tilepipe("timeline", f"{file}:small", "-o", "no/such/t.json")
    assert code == 2
    assert "cannot write no/such/t.json" in err
    code, _, err = tilepipe("timeline", f"{file}:both", "-o", "t.json")
    assert code == 2
    assert "makes 2 programs" in err


def test_busy_counts_what_overlaps_once() -> None:
    def event(cta: int, kind: str, start: float, end: float) -> Event:
        return Event(cta, "load", kind, "", "", start, end)

    events = [event(0, "x", 0, 4), event(0, "x", 2, 6), event(0, "x", 8, 10), event(1, "y", 0, 10)]
    x, y = units(events)
    assert (x["count"], x["busy"]) == (3, pytest.approx(8 / 20))
    assert x["mean_us"] == pytest.approx(10 / 3)
    assert y["busy"] == pytest.approx(0.5)
