"""What each synchronising instruction of a kernel of PTX is for."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

import tilepipe as tp
from tests.support.handover import ARRIVE, PTX, launch
from tilepipe.check import sensitivity
from tilepipe.check.sensitivity import Sensitivity

# Two instructions of one line of source, a fence that nothing needs, code that no warp reaches,
# and instructions of which the model has no effect or a result.
CHANGED = (
    PTX.replace("[bar], 32;", "[bar], 64;")
    .replace(ARRIVE, f"    .loc 1 7 3\n{ARRIVE}{ARRIVE}    .loc 1 8 3\n    fence.proxy.async;\n")
    .replace("    bar.sync 0;", "    griddepcontrol.launch_dependents;\n    bar.sync 0;")
    .replace("    @%p2 bra USE;", "    @%p2 bra USE;\n    @!%p2 bra GO;\n    fence.sc.gpu;\nGO:")
    .replace("    ret;\nUSE", "    mbarrier.arrive.shared.b64 %rd3, [other];\n    ret;\nUSE")
    .replace("    bar.sync", "    @%p1 mbarrier.init.shared.b64 [other], 32;\n    bar.sync")
    .replace("    .shared .align 8 .b64 bar;", "    .shared .align 8 .b64 bar, other;")
    + '.file 1 "handing.cu"\n'
)


@pytest.fixture(scope="module")
def report() -> Sensitivity:
    return launch(CHANGED).sensitivity()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "count", "kind", "answer", "without"),
    [
        ("bar.sync 0", 1, "sync", "load-bearing", "BarrierError at handing.cu:8"),
        ("mbarrier.arrive.shared.b64 _", 2, "arrive", "load-bearing", "DeadlockError at handing"),
        ("mbarrier.arrive.shared.b64 %rd3", 1, "arrive", "redundant", "verified without it"),
        ("fence.proxy.async", 1, "fence", "redundant", "verified without it"),
        ("mbarrier.try_wait", 1, "wait", "load-bearing", "RaceError at <ptx>:"),
        ("fence.sc.gpu", 1, "fence", "redundant", "not reached"),
        ("griddepcontrol.launch", 1, "hint", "undecided", "not modelled: it changes nothing"),
    ],
)
def test_an_instruction(
    report: Sensitivity, op: str, count: int, kind: str, answer: str, without: str
) -> None:
    (line,) = [x for x in report.lines if x.what.startswith(op)]
    assert (line.count, line.kind, line.answer) == (count, kind, answer)
    assert without in line.says


def test_the_report(report: Sensitivity) -> None:
    assert (report.kernel, report.instance) == ("handover", str(launch()))
    (row,) = [x for x in report.report()["lines"] if x["count"] == 2]
    # the file cannot be read: the line is that of the PTX
    assert (row["at"], row["source"]) == ("handing.cu:7", ARRIVE.strip())
    assert row["roles"] == []
    console = Console(width=200, file=StringIO())
    with console.capture() as captured:
        console.print(report.table())
    assert "mbarrier.arrive.shared.b64 _, [bar] ×2 " in captured.get()


def test_an_unchanged_kernel_with_a_fault_is_refused() -> None:
    with pytest.raises(tp.DeadlockError):
        sensitivity.report(launch(PTX.replace(ARRIVE, "")))
