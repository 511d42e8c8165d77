"""Strong accesses to memory, and the orders of them that a check explores."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import Verdict, check

SPACES = {"global": ("%b0", "gpu.global"), "shared": ("%r1", "cta.shared")}


def checked(first: str, second: str) -> Verdict:
    """What one thread of each of two warps does, where `%b0` and `%b1` are arrays of four words,
    and `%r1` is one in shared memory; all hold zeros.
    """
    text = f"""
        .shared .align 16 .b32 shared[4];
        mov.u32 %r1, shared;
        setp.ne.u32 %p1, %l, 0;
        @%p1 ret;
        setp.eq.u32 %p1, %t, 0;
        @%p1 st.shared.v4.u32 [%r1], {{0, 0, 0, 0}};
        bar.sync 1, 64;
        @!%p1 bra SECOND;
        {first}
        bar.warp.sync 1;
        ret;
        SECOND:
        {second}
        bar.warp.sync 1;
    """
    arrays = [np.zeros(4, np.int32), np.zeros(4, np.int32)]
    return check(kernel(text, 2).bind(arrays, grid=1, block=64))


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("wrong", ["eq", "ne"])
def test_a_vector_finds_what_another_writes_to_its_second_element(space: str, wrong: str) -> None:
    base, at = SPACES[space]
    writes = f"st.relaxed.{at}.u32 [{base}+4], 1;"
    reads = f"""
        ld.relaxed.{at}.v2.u32 {{%r2, %r3}}, [{base}];
        setp.{wrong}.u32 %p2, %r3, 1;
        @%p2 trap;
    """
    for first, second in ((writes, reads), (reads, writes)):
        assert [fault.kind for fault in checked(first, second).faults] == ["SimFault"]


@pytest.mark.parametrize("space", SPACES)
def test_a_loop_polls_the_second_element_of_a_vector(space: str) -> None:
    base, at = SPACES[space]
    writes = f"st.relaxed.{at}.v2.u32 [{base}], {{0, 1}};"
    polls = f"""
        AGAIN:
        ld.relaxed.{at}.v2.u32 {{%r2, %r3}}, [{base}];
        setp.eq.u32 %p2, %r3, 0;
        @%p2 bra AGAIN;
    """
    assert checked(polls, writes).verdict == checked(writes, polls).verdict == "verified"
    alone = polls.replace("v2.u32 {%r2, %r3}, [" + base, f"u32 %r3, [{base}+4")
    assert checked(writes, alone).verdict == "verified"


def test_an_atomic_operation_on_a_vector_writes_each_element() -> None:
    adds = "atom.global.gpu.relaxed.add.v2.f32 {%r4, %r5}, [%b0], {%r6, %r7};"
    adds = f"mov.b32 %r6, 0f00000000; mov.b32 %r7, 0f3F800000; {adds} xor.b32 %r4, %r4, %r5;"
    polls = """
        AGAIN:
        ld.relaxed.gpu.global.u32 %r3, [%b0+4];
        setp.eq.u32 %p2, %r3, 0;
        @%p2 bra AGAIN;
    """
    assert checked(adds, polls).verdict == "verified"


POLL = """
    AGAIN:
    ld.acquire.gpu.global.u32 %r3, [%b0];
    setp.ne.u32 %p2, %r3, {value};
    @%p2 bra AGAIN;
"""


@pytest.mark.parametrize("adds", ["atom.global.gpu.relaxed.add.u32 %r9,", "red.global.gpu.add.u32"])
def test_an_addition_that_nothing_looks_at_acquires_nothing_for_a_fence(adds: str) -> None:
    writes = f"st.global.u32 [%b1], 1; fence.acq_rel.gpu; {adds} [%b0], 1;"
    reads = f"{adds} [%b0], 1; fence.acq_rel.gpu; ld.global.u32 %r4, [%b1];"
    for first, second in ((writes, reads), (reads, writes)):
        assert [fault.kind for fault in checked(first, second).faults] == ["RaceError"]


def test_a_reduction_acquires_nothing_though_it_is_no_addition() -> None:
    writes = "st.global.u32 [%b1], 1; st.release.gpu.global.u32 [%b0], 2;"
    reads = """
        mov.u32 %r9, 2;
        {op} [%b0], 4;
        fence.acq_rel.gpu;
        setp.eq.u32 %p2, %r9, 2;
        @%p2 ld.global.u32 %r4, [%b1];
    """
    looks, adds = "atom.global.gpu.or.b32 %r9,", "red.global.gpu.or.b32"
    assert checked(writes, reads.format(op=looks)).verdict == "verified"
    assert checked(writes, reads.format(op=adds)).verdict == "fault"


def test_a_release_reaches_those_who_observe_a_later_write_of_its_thread() -> None:
    writes = """
        st.global.u32 [%b1], 1;
        st.release.gpu.global.u32 [%b0], 1;
        st.relaxed.gpu.global.u32 [%b0], 2;
    """
    reads = POLL.format(value=2) + "ld.global.u32 %r4, [%b1];"
    assert checked(writes, reads).verdict == "verified"
    late = writes.replace("release", "relaxed")
    assert [fault.kind for fault in checked(late, reads).faults] == ["RaceError"]


def test_a_write_does_not_release_what_another_thread_has_released() -> None:
    writes = "st.global.u32 [%b1], 1; st.release.gpu.global.u32 [%b0], 1;"
    reads = POLL.format(value=2) + "ld.global.u32 %r4, [%b1];"
    relays = POLL.format(value=1).replace("acquire", "relaxed").replace("AGAIN", "FIRST")
    text = f"""
        setp.ne.u32 %p1, %l, 0;
        @%p1 ret;
        setp.eq.u32 %p1, %t, 0;
        @%p1 bra WRITE;
        setp.eq.u32 %p1, %t, 32;
        @%p1 bra RELAY;
        {reads}
        ret;
        WRITE: {writes}
        ret;
        RELAY: {relays}
        st.relaxed.gpu.global.u32 [%b0], 2;
        bar.warp.sync 1;
    """
    arrays = [np.zeros(4, np.int32), np.zeros(4, np.int32)]
    verdict = check(kernel(text, 2).bind(arrays, grid=1, block=96))
    assert [fault.kind for fault in verdict.faults] == ["RaceError"]


REDUCES = """
    mov.u32 %r5, shared;
    st.shared.v4.u32 [%r5], {1, 1, 1, 1};
    fence.proxy.async.shared::cta;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%b0], [%r5], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
"""
LOOK = "ld.relaxed.gpu.global.u32 %r3, [%b0+4];"


@pytest.mark.parametrize("wrong", ["eq", "ne"])
def test_a_look_finds_a_reduction_of_a_copy_or_not(wrong: str) -> None:
    looks = f"{LOOK} setp.{wrong}.u32 %p2, %r3, 1; @%p2 trap;"
    for first, second in ((REDUCES, looks), (looks, REDUCES)):
        assert [fault.kind for fault in checked(first, second).faults] == ["SimFault"]


def test_a_reduction_of_a_copy_ends_a_loop_that_polls() -> None:
    polls = f"AGAIN: {LOOK} setp.ne.u32 %p2, %r3, 1; @%p2 bra AGAIN;"
    for first, second in ((REDUCES, polls), (polls, REDUCES)):
        assert checked(first, second).verdict == "verified"


@pytest.mark.parametrize("waits", [True, False])
def test_a_reduction_is_over_when_its_thread_has_waited(waits: bool) -> None:
    reduces = REDUCES if waits else REDUCES.replace("cp.async.bulk.wait_group 0;", "")
    verdict = checked(f"{reduces} {LOOK} setp.ne.u32 %p2, %r3, 1; @%p2 trap;", "")
    assert [fault.kind for fault in verdict.faults] == ([] if waits else ["SimFault"])


@pytest.mark.parametrize("wrong", ["eq", "ne"])
def test_a_look_finds_an_asynchronous_reduction_in_shared_memory_or_not(wrong: str) -> None:
    reduces = """
        .shared .align 8 .b64 bar;
        mov.u32 %r6, bar;
        mbarrier.init.shared.b64 [%r6], 1;
        fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 4;
        mov.u32 %r5, shared;
        add.u32 %r5, %r5, 4;
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 \
            [%r5], 1, [%r6];
        DONE: mbarrier.try_wait.parity.shared.b64 %p3, [%r6], 0;
        @!%p3 bra DONE;
    """
    looks = f"ld.relaxed.cta.shared.u32 %r3, [%r1+4]; setp.{wrong}.u32 %p2, %r3, 1; @%p2 trap;"
    for first, second in ((reduces, looks), (looks, reduces)):
        assert [fault.kind for fault in checked(first, second).faults] == ["SimFault"]


@pytest.mark.parametrize("first", ["load", "store"])
def test_a_load_takes_for_read_only_what_the_launch_writes(first: str) -> None:
    parts = {"load": "ld.global.nc.u32 %r2, [%a0];", "store": "st.global.u32 [%a0], 1;"}
    text = "mad.wide.u32 %a0, %t, 4, %b0;" + (parts.pop(first) + "".join(parts.values()))
    for loads in (text, text.replace("%r2, [%a0]", "%r2, [%a0+128]")):
        launch = kernel(loads, 1).bind([np.zeros(64, np.int32)], grid=1, block=32)
        wrong = loads == text
        strict = check(launch, rules="strict")
        assert [fault.kind for fault in strict.faults] == (["SimFault"] if wrong else [])
        practice = check(launch)
        assert practice.verdict == "verified"
        assert any("without .nc" in advice for advice in practice.advice) == wrong
