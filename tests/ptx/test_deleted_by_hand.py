"""One instruction is deleted by hand from the PTX of the GEMM, on the instance that `tilepipe check
gemm` takes by default: the message says which accesses or waits the instruction was for, and what
to put where.
"""

from __future__ import annotations

import re

import pytest

from tests.support.printed_ptx import Printed, printed
from tilepipe.cli.programs import target
from tilepipe.program import Program
from tilepipe.ptx import Launch


@pytest.fixture(scope="module")
def gemm() -> Printed:
    """The PTX of the default instance for sm_90a."""
    instance, *_ = target("gemm", []).instances
    program = instance.make()
    assert isinstance(program, Program)
    return printed(program, "sm_90a")


class Deleted:
    """The GEMM without one instruction: the only one that a pattern finds, or the one of a number.

    Attributes:
        line: where it stood. launch: without it. said: the message of its check, with white space
            folded.
    """

    def __init__(self, gemm: Printed, pattern: str, number: int = 0) -> None:
        self.lines = gemm.text.split("\n")
        self.line = self.find(pattern)[number]
        left = [*self.lines]
        left[self.line - 1] = ""
        self.launch: Launch = Printed(gemm.program, "\n".join(left), gemm.smem_bytes).launch()
        verdict = self.launch.check()
        assert verdict.verdict == "fault"
        (fault,) = verdict.faults
        self.kind, self.loc = fault.kind, fault.loc
        self.said = " ".join(fault.message.split())

    def find(self, pattern: str) -> list[int]:
        """The lines with an instruction, from 1 on."""
        return [i for i, line in enumerate(self.lines, 1) if re.search(pattern, line)]


@pytest.mark.slow
def test_the_gemm_is_verified_before(gemm: Printed) -> None:
    assert gemm.launch().check().ok


@pytest.mark.slow
def test_the_arrive_that_frees_a_slot(gemm: Printed) -> None:
    found = Deleted(gemm, r"mbarrier\.arrive\.shared")
    copies = found.find(r"cp\.async\.bulk\.tensor\.2d\.shared")
    assert found.kind == "DeadlockError"
    assert "deadlock: 9 of 12 agents of CTA 0 wait" in found.said
    hint = found.said.split("what to look at: ")[1]
    name, line = re.match(
        r"nothing has ever arrived on (the mbarrier at 'smem' \+ [\d,]+ of CTA 0), which warp 8 of"
        r" CTA 0 waits for at <ptx>:(\d+): an arrive, a commit or a copy is missing",
        hint,
    ).groups()  # type: ignore[union-attr]
    assert "mbarrier.try_wait" in found.lines[int(line) - 1]
    assert int(line) < copies[0]  # the copies into the slot come after the wait
    assert re.search(
        rf"warp 8 of CTA 0 <ptx>:{line} {re.escape(name)} 0 none 2 of 2 arrivals", found.said
    )
    assert "cycle: warp 0 of CTA 0 -> warp 8 of CTA 0 -> warp 0 of CTA 0" in found.said


@pytest.mark.slow
def test_the_fence_between_stores_and_the_copy_of_the_result(gemm: Printed) -> None:
    found = Deleted(gemm, r"fence\.proxy\.async")
    stores = [line for line in found.find(r"stmatrix") if line < found.line]
    copy = next(
        line for line in found.find(r"cp\.async\.bulk\.tensor\.2d\.global") if line > found.line
    )
    assert found.kind == "RaceError"
    assert "the accesses are ordered, but no fence.proxy.async of that memory" in found.said
    first, second = re.findall(r"at <ptx>:(\d+)", found.said)[:2]
    assert int(first) in stores
    assert int(second) == copy
    assert "Every writing thread must execute fence.proxy.async.shared::cta" in found.said


@pytest.mark.slow
def test_the_wait_before_a_slot_is_freed(gemm: Printed) -> None:
    found = Deleted(gemm, r"wgmma\.wait_group\.sync\.aligned 1;")
    assert found.kind == "RaceError"
    first, second = re.findall(r"at <ptx>:(\d+)", found.said)[:2]
    assert "wgmma.mma_async" in found.lines[int(first) - 1]
    assert int(second) in found.find(r"cp\.async\.bulk\.tensor\.2d\.shared")
    assert "A wgmma reads its tiles until its group has been waited for" in found.said


@pytest.mark.slow
def test_the_wait_before_the_epilogue(gemm: Printed) -> None:
    found = Deleted(gemm, r"wgmma\.wait_group\.sync\.aligned 0;")
    assert found.kind == "RaceError"
    assert "is used while a wgmma that writes it is in flight" in found.said
    first, second = (int(line) for line in re.findall(r"at <ptx>:(\d+)", found.said)[:2])
    assert "wgmma.mma_async" in found.lines[first - 1]
    assert first < found.line < second
    assert "put wgmma.wait_group.sync.aligned 0 between the two" in found.said
