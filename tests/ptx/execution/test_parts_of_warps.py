"""Instructions for a whole warp (.aligned) of which some lanes have left: undefined, but for
barriers, which take the other threads in practice.
"""

from __future__ import annotations

import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import Verdict, check
from tilepipe.machine.rules import Rules

SKIP = "setp.lt.u32 %p1, %t, {n}; @!%p1 bra OTHERS; {op} bra END; OTHERS: mov.u32 %r9, 1; END:"
LEAVE = "setp.ge.u32 %p1, %t, {n}; @%p1 ret; {op}"
RULES: list[Rules] = ["practice", "strict"]


def checked(text: str, rules: Rules, block: int = 32, cluster: int = 1) -> Verdict:
    before = ".shared .align 16 .b32 words[64]; mov.u32 %r1, words; "
    launch = kernel(before + text, 0).bind([], grid=cluster, block=block, cluster=cluster)
    return check(launch, rules=rules)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("way", [SKIP, LEAVE], ids=["skip", "leave"])
@pytest.mark.parametrize(
    "op",
    [
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%t};",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r2, %t;",
        "wgmma.fence.sync.aligned;",
        "setmaxnreg.dec.sync.aligned.u32 24;",
    ],
)
def test_half_a_warp_executes_what_is_for_all_of_it(op: str, way: str, rules: Rules) -> None:
    verdict = checked(way.format(n=16, op=op), rules, block=128)
    (fault,) = verdict.faults
    name = op.split(" ")[0].rstrip(";")
    for words in (name, "the lanes 0xffff of warp 0 execute it, and 0xffff0000 have left without"):
        assert words in fault.message


@pytest.mark.parametrize("way", [SKIP, LEAVE], ids=["skip", "leave"])
@pytest.mark.parametrize("op", ["bar.sync 0;", "barrier.sync.aligned 0;", "bar.arrive 1, 64;"])
def test_a_barrier_takes_the_other_threads_in_practice(op: str, way: str) -> None:
    text = way.format(n=48, op=op)
    verdict = checked(text, "practice", block=64)
    assert verdict.ok
    assert any("exited lanes" in line and "0xffff0000 have left" in line for line in verdict.advice)
    (fault,) = checked(text, "strict", block=64).faults
    assert "strict rules, exited lanes" in fault.message


def test_the_same_of_the_barrier_of_a_cluster() -> None:
    text = LEAVE.format(n=16, op="barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;")
    assert any("exited lanes" in line for line in checked(text, "practice", cluster=2).advice)
    assert checked(text, "strict", cluster=2).verdict == "fault"


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(
    "op", ["barrier.sync 0;", "shfl.sync.bfly.b32 %r2, %t, 1, 31, -1;", "bar.warp.sync -1;"]
)
def test_what_is_not_aligned_needs_no_whole_warp(op: str, rules: Rules) -> None:
    verdict = checked(LEAVE.format(n=16, op=op), rules)
    assert verdict.ok
    assert verdict.advice == []


@pytest.mark.parametrize("rules", RULES)
def test_the_last_warp_of_a_block_may_have_fewer_lanes(rules: Rules) -> None:
    verdict = checked("bar.sync 0;", rules, block=48)
    assert verdict.ok
    assert verdict.advice == []
