"""`tilepipe check` and `tilepipe replay` of PTX."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.copying import Call, report
from tools.docs.readme import ROOT

FILE = """from tests.support import handover

launch = handover.launch()
alone = handover.launch(ctas=1)


def made(without: str = ""):
    line = {"": "", "arrive": handover.ARRIVE, "wait": handover.WAIT}[without]
    return handover.launch(handover.PTX.replace(line, "") if line else handover.PTX)


def both():
    return [handover.launch(), handover.launch(ctas=3)]


def family(fails: bool = False):
    found = {f"{n} CTAs": handover.launch(ctas=n) for n in (1, 2)}
    return found | {"no arrival": made("arrive"), "no wait": made("wait")} if fails else found


def each(count: int = 2):
    for n in range(count):
        if n == 3:
            raise KeyError("no such shape")
        yield handover.launch(ctas=n + 1)


broken = {"one": launch, "other": 3}
"""

LONGER = """

def longer(text):
    return handover.launch(text.replace("    bar.sync", "    nanosleep.u32 20;\\n    bar.sync"))
"""

TYPES = {
    "string": str,
    "integer": int,
    "number": float,
    "object": dict,
    "array of string": list,
    "array of object": list,
}


def fields(heading: str) -> dict[str, type]:
    """The fields of an object of the JSON verdict, as the page has them."""
    page = (ROOT / "docs" / "reference" / "verdict.md").read_text(encoding="utf-8")
    table = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return {
        name: TYPES[type] for name, type in re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", table, re.M)
    }


def assert_described(given: dict[str, Any], heading: str, *absent: str) -> None:
    described = fields(heading)
    assert set(given) == set(described) - set(absent)
    for name, value in given.items():
        assert type(value) is described[name], (heading, name)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("handing.py").write_text(FILE, encoding="utf-8")
    return Path("handing.py")


@pytest.mark.slow
def test_a_launch_in_a_file_is_verified(file: Path, tilepipe: Call) -> None:
    code, out, err = tilepipe("check", f"{file}:launch")
    assert (code, err) == (0, "")
    words = " ".join(out.replace("│", " ").split())
    assert "handover of out (64,), grid 2, block 64" in words
    assert "single-execution" in words
    found = report(tilepipe("check", f"{file}:launch", "--from", "ptx", "--json"))
    assert (found["verdict"], found["from"]) == ("verified", "ptx")


def test_a_list_of_launches_and_processes(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:both", "--json"))
    assert [x["instance"] for x in found["instances"]] == [
        "1: handover of out (64,), grid 2, block 64",
        "2: handover of out (96,), grid 3, block 64",
    ]


def test_instances_of_a_dict_have_its_names(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:family", "--json"))
    assert [x["instance"] for x in found["instances"]] == ["1 CTAs", "2 CTAs"]
    assert found["verdict"] == "verified"


@pytest.mark.slow
def test_of_a_family_the_table_has_the_first_fault_of_each(file: Path, tilepipe: Call) -> None:
    code, out, _ = tilepipe("check", f"{file}:family", "-s", "fails=true")
    assert code == 1
    table = "".join(re.findall(r"│([^│]*)│$", out.split("Facts")[0], re.M))
    found = report(tilepipe("check", f"{file}:family", "-s", "fails=true", "--json"), 1)
    of = [(x["instance"], x["verdict"]) for x in found["instances"]]
    assert of == [
        ("1 CTAs", "verified"), ("2 CTAs", "verified"), ("no arrival", "fault"),
        ("no wait", "fault"),
    ]  # fmt: skip
    for instance in found["instances"][2:]:
        (fault,) = instance["faults"]
        assert f"fault:{fault['kind']}at" in "".join(table.split())
        assert f"{fault['kind']} of the instance '{instance['instance']}':" in out


@pytest.mark.slow
def test_launches_may_be_yielded(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:each", "--json"))
    assert [x["instance"][:2] for x in found["instances"]] == ["1:", "2:"]
    code, _, err = tilepipe("check", f"{file}:each", "-s", "count=4")
    assert code == 2
    assert "each(count=4) raised KeyError: 'no such shape'" in " ".join(err.split())
    code, _, err = tilepipe("check", f"{file}:each", "-s", "count=0")
    assert (code, "it is an empty list" in " ".join(err.split())) == (2, True)


def test_what_a_dict_has_besides_launches_is_refused(file: Path, tilepipe: Call) -> None:
    code, _, err = tilepipe("check", f"{file}:broken")
    assert (code, "it is an int in a dict" in " ".join(err.split())) == (2, True)


@pytest.mark.thorough
def test_processes_find_what_one_process_finds(file: Path, tilepipe: Call) -> None:
    """Two processes for one instance, and for two."""
    for what in ("launch", "both"):
        found = [
            report(tilepipe("check", f"{file}:{what}", "--json", "--explore", "--jobs", n))
            for n in (1, 2)
        ]
        assert found[0]["verdict"] == found[1]["verdict"] == "verified"
        assert found[0]["states"] == found[1]["states"]


@pytest.mark.slow
def test_a_fault_is_saved_and_replayed(file: Path, tilepipe: Call) -> None:
    code, out, _ = tilepipe("check", f"{file}:made", "-s", "without=arrive", "--save", "f.json")
    assert code == 1
    assert "32 of 32 arrivals" in out
    kept = json.loads(Path("f.json").read_text())
    assert kept["from"] == "program"
    (wait,) = [text for text in kept["lines"].values() if "try_wait" in text]
    assert wait == "mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0;"
    code, out, _ = tilepipe("replay", "f.json")
    assert code == 1
    assert "the same fault." in out
    # with a line more before it, it is the same fault
    longer = FILE.replace("return handover.launch(", "return longer(") + LONGER
    file.write_text(longer, encoding="utf-8")
    code, out, _ = tilepipe("replay", "f.json")
    assert code == 1, out
    assert "lines have moved: <ptx>:25 is <ptx>:26 now" in out


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--explore",)])
def test_a_launch_of_one_cta_is_verified_and_says_what_it_does_not_show(
    file: Path, tilepipe: Call, how: tuple[str, ...]
) -> None:
    """The grid is the user's: what is too small of programs is none of a launch of PTX."""
    code, out, err = tilepipe("check", f"{file}:alone", *how)
    assert (code, err) == (0, "")
    (line,) = [line for line in out.splitlines() if "no launch here has more than one CTA" in line]
    found = report(tilepipe("check", f"{file}:alone", *how, "--json"))
    assert (found["verdict"], found["advice"]) == ("verified", [line.strip()])
    assert "more than one CTA" not in tilepipe("check", f"{file}:alone", *how, "--small")[1]
    assert "more than one CTA" not in tilepipe("check", f"{file}:family", *how)[1]


def test_a_program_beside_launches_keeps_its_size(file: Path, tilepipe: Call) -> None:
    with_program = """
import numpy as np
import tilepipe as tp

@tp.kernel(grid=1)
def zero(ctx, out):
    @ctx.role("all", warps=1)
    def all():
        ctx.store(out[ctx.lane], 0)

mixed = [alone, zero.bind(np.zeros(32, np.int32))]
"""
    file.write_text(FILE + with_program, encoding="utf-8")
    code, _, err = tilepipe("check", f"{file}:mixed")
    assert (code, "there is one CTA" in err) == (2, True)


@pytest.mark.slow
def test_a_shipped_kernel_is_checked_from_its_ptx(tilepipe: Call) -> None:
    found = report(
        tilepipe("check", "gemm", "-s", "stages=2", "-s", "bn=64", "--from", "ptx", "--json")
    )
    assert (found["kernel"], found["verdict"], found["from"]) == ("gemm", "verified", "ptx")
    assert [x["instance"] for x in found["instances"]] == [
        f"2 tiles per CTA, {n} K step{'s' * (n > 1)}, 2 CTAs" for n in (1, 5)
    ]


@pytest.mark.slow
def test_what_each_instruction_is_for(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("check", f"{file}:made", "--sensitivity", "--json"))["sensitivity"]
    assert (found["kernel"], found["instance"]) == (
        "handover",
        "handover of out (64,), grid 2, block 64",
    )
    answers = {row["op"].split(" ")[0]: row["answer"] for row in found["lines"]}
    assert answers["mbarrier.arrive.shared.b64"] == answers["bar.sync"] == "load-bearing"
    assert found["stages"] == []


@pytest.mark.slow
def test_the_fields_of_the_json_verdict_are_those_that_the_page_describes(
    file: Path, tilepipe: Call
) -> None:
    fault = report(
        tilepipe("check", f"{file}:made", "-s", "without=arrive", "--save", "f.json", "--json"), 1
    )
    assert_described(fault, "The object", "sensitivity")
    assert_described(fault["faults"][0], "A fault")
    for step in fault["faults"][0]["steps"]:
        assert_described(step, "A step")
    named = list(fields("The object"))
    of_instance = named[named.index("instance") : named.index("instances")]
    assert [list(one) for one in fault["instances"]] == [of_instance]
    assert fault["unreached"] == []
    verified = report(
        tilepipe("check", f"{file}:made", "--rules", "strict", "--sensitivity", "--json")
    )
    assert_described(verified, "The object", "saved")
    assert verified["rules"] == "strict"
    assert_described(verified["sensitivity"], "Sensitivity")
    for line in verified["sensitivity"]["lines"]:
        assert_described(line, "A line")
    undecided = report(tilepipe("check", f"{file}:both", "--seconds", 0.001, "--json"), 2)
    assert_described(undecided, "The object", "saved", "sensitivity")
    assert undecided["verdict"] == "undecided"
    assert undecided["bound"].startswith("0.001 seconds (Bounds(seconds=), 600 by default)")


def test_a_file_of_ptx_has_no_arguments(tilepipe: Call) -> None:
    code, _, err = tilepipe("check", "out/kernel.ptx")
    assert code == 2
    assert "out/kernel.ptx has no arguments: a launch is checked" in err
