"""Launches of PTX are decided as traced kernels are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support.printed_ptx import Printed, printed
from tilepipe.check import check, replay
from tilepipe.registry.catalog import find


def gemm() -> Printed:
    """The shipped GEMM for an H200, on an instance in which every ring goes round."""
    spec = find("gemm")
    config, _ = spec.configure({"arch": "sm90", "m": 256, "n": 256, "k": 320, "bn": 128}, None)
    return printed(spec.make(config, 0).program, "sm_90a")


@pytest.fixture(scope="module")
def text() -> Printed:
    return gemm()


def without(text: Printed, pattern: str, number: int = 0) -> Printed:
    """The same kernel without the `number`-th line that has a pattern."""
    lines = text.text.split("\n")
    found = [i for i, line in enumerate(lines) if re.search(pattern, line)]
    del lines[found[number]]
    return Printed(text.program, "\n".join(lines), text.smem_bytes)


def test_a_kernel_is_verified_and_its_arrays_keep_their_values(text: Printed) -> None:
    launch = text.launch()
    before = [a.array.tobytes() for a in launch.memory.tensors]
    verdict = check(launch)
    assert (verdict.verdict, verdict.method) == ("verified", "single-execution")
    assert any("single" in fact or "arrivals" in fact for fact in verdict.facts)
    assert [a.array.tobytes() for a in launch.memory.tensors] == before


@pytest.mark.parametrize(
    ("pattern", "kind", "says"),
    [
        (r"mbarrier\.arrive\.shared", "DeadlockError", "1 of 1 arrivals|2 of 2 arrivals"),
        (r"fence\.proxy\.async", "RaceError", r"no fence\.proxy\.async of that memory"),
        (r"wgmma\.wait_group", "RaceError", r"until its group has been waited for"),
    ],
)
def test_a_deleted_line_is_a_fault_that_replays(
    text: Printed, pattern: str, kind: str, says: str
) -> None:
    launch = without(text, pattern).launch()
    verdict = check(launch)
    assert verdict.verdict == "fault"
    (fault,) = verdict.faults
    assert fault.kind == kind
    assert re.search(says, fault.message)
    assert "<ptx>:" in fault.loc
    again = replay(launch, fault.schedule)
    assert type(again).__name__ == kind
    assert str(again) == fault.message


def test_what_is_no_launch_is_refused() -> None:
    from tilepipe.errors import BindError

    with pytest.raises(BindError, match=r"of a kernel of PTX, check\(kernel\.bind"):
        check(np.zeros(3))  # type: ignore[arg-type]
