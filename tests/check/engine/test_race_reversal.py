"""How many executions an exploration performs, and orders that it must not leave out."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.ptx.isa.programs import kernel
from tests.scenarios.test_dynamic_work import bind
from tilepipe.check import check

TWO_CTAS = tp.Chip(name="two", sms=2, clusters=())


@pytest.mark.parametrize("clusters", [2, 3, 5])
def test_one_execution_for_each_way_to_share_out_clusters(clusters: int) -> None:
    """One cluster runs at a time, and each of its requests is granted or refused: as many ways as
    there are to cut a row of clusters into parts.
    """
    verdict = bind("", clusters, 2, 1)[0].check()
    assert verdict.ok
    assert verdict.traces == 1 << (clusters - 1)


@pytest.mark.parametrize("writer", [0, 1])
def test_either_of_two_clusters_ends_first(writer: int) -> None:
    """The third starts in the place of the first that ends, and then it need not follow the write
    of the other one.
    """
    text = f"""
        mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r1, {writer};
        setp.eq.u32 %p2, %r1, 2;
        setp.ne.u32 %p3, %t, 0;
        @%p3 ret;
        @%p1 st.relaxed.gpu.global.u32 [%b0], 1;
        mov.u32 %r2, 1;
        @%p2 ld.relaxed.gpu.global.u32 %r2, [%b0];
        setp.eq.u32 %p4, %r2, 0;
        @%p4 trap;
    """
    launch = kernel(text, 1).bind([np.zeros(4, np.int32)], grid=3, block=32, chip=TWO_CTAS)
    assert [fault.kind for fault in check(launch).faults] == ["SimFault"]


def test_the_third_cluster_follows_one_of_two() -> None:
    """Where both write, it finds at least one of the values."""
    text = """
        mov.u32 %r1, %ctaid.x;
        setp.lt.u32 %p1, %r1, 2;
        setp.eq.u32 %p2, %r1, 2;
        setp.ne.u32 %p3, %t, 0;
        @%p3 ret;
        mad.wide.u32 %a0, %r1, 4, %b0;
        @%p1 st.relaxed.gpu.global.u32 [%a0], 1;
        mov.u32 %r2, 1;
        mov.u32 %r3, 1;
        @%p2 ld.relaxed.gpu.global.u32 %r2, [%b0];
        @%p2 ld.relaxed.gpu.global.u32 %r3, [%b0+4];
        {op}.b32 %r4, %r2, %r3;
        setp.eq.u32 %p4, %r4, 0;
        @%p4 trap;
    """
    for op, verdict in (("or", "verified"), ("and", "fault")):
        made = kernel(text.format(op=op), 1)
        launch = made.bind([np.zeros(4, np.int32)], grid=3, block=32, chip=TWO_CTAS)
        assert check(launch).verdict == verdict
