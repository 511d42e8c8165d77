"""Faults planted in kernels: messages speak PTX, and name the line of the text and the source."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.errors import BarrierError, DeadlockError, PoisonError, RaceError, SimFault
from tilepipe.ptx import TensorMap, load

_START = """
    .shared .align 128 .b8 tile[512];
    .shared .align 8 .b64 bar;
    setp.eq.u32 %p1, %t, 0;
    mov.u32 %r1, tile;
    mad.lo.u32 %r2, %t, 4, %r1;
    @%p1 mbarrier.init.shared.b64 [bar], 1;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    """


def _fault(text: str, kind: type[SimFault], *, threads: int = 64, maps: int = 0) -> str:
    """The message of the fault of a kernel with this body; `%m` is the address of its map."""
    source = f"""
        .version 9.0
        .target sm_90a
        .address_size 64
        .file 1 "kernel.cu"
        .visible .entry k(.param .u64 out, .param .align 64 .b8 map[128]) {{
        .reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %rd<9>; .reg .b32 %t; .reg .b64 %m;
        .loc 1 7 0
        mov.u32 %t, %tid.x;
        mov.b64 %m, map; cvta.param.u64 %m, %m;
        {_START}
        .loc 1 41 0
        {text}
        ret;
        }}
        """
    array = np.zeros((8, 16), np.float32)
    bound = load(source)["k"].bind(
        [np.zeros(64, np.uint32), TensorMap(array, (8, 16))], grid=1, block=threads
    )
    with pytest.raises(kind) as caught:
        bound.run()
    return str(caught.value)


_STORE = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%m, {0, 0}], [%r1];"
_LOAD = (
    "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1],"
    " [%m, {0, 0}], [bar];"
)


def test_a_missing_proxy_fence_before_a_store() -> None:
    said = _fault(
        f"""
        st.shared.b32 [%r2], %t; st.shared.b32 [%r2+256], %t;
        bar.sync 0;
        @%p1 {_STORE}
        """,
        RaceError,
    )
    assert "race between proxies on 'tile': " in said
    assert "fence.proxy.async.shared::cta after the write" in said
    assert re.search(
        r"warp [01] writes (\d+ of )?bytes \d+\.\.\d+ of 'tile' \(generic proxy\)", said
    )
    assert "role" not in said
    assert "(PTX line " in said
    assert "at kernel.cu:41" in said


def test_a_missing_wait_for_a_load() -> None:
    said = _fault(
        f"""
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
        @%p1 {_LOAD}
        ld.shared.b32 %r3, [%r2];
        """,
        RaceError,
    )
    assert "race on 'tile': nothing orders the second access after the first" in said
    assert "cp.async.bulk.tensor.2d.shared::cta.global" in said
    assert re.search(r"warp [01] must wait", said)


def test_an_arrival_too_many() -> None:
    said = _fault("mbarrier.arrive.shared.b64 _, [bar];", BarrierError)
    assert re.search(r"the mbarrier at 'bar': warp [01] arrives 32 time", said)
    assert "elect.sync" in said
    assert "at kernel.cu:41" in said


def test_a_deadlock_names_the_barrier_and_what_is_missing() -> None:
    said = _fault(
        """
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;
        W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
        @!%p2 bra W;
        """,
        DeadlockError,
    )
    assert "the mbarrier at 'bar'" in said
    assert "64 bytes" in said
    assert "at kernel.cu:41" in said


def test_a_barrier_that_counts_more_threads_than_the_cta_has() -> None:
    said = _fault("bar.sync 1, 96;", DeadlockError)
    assert "it counts 96, 64 have arrived (the CTA has 64)" in said


def test_a_read_of_what_nothing_has_written() -> None:
    stored = "ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %t, 4, %rd1; st.global.b32 [%rd1], %r3;"
    said = _fault(f"ld.shared.b32 %r3, [%r2]; {stored}", PoisonError)
    assert re.search(
        r"warp [01] reads bytes \d+\.\.\d+ of 'tile' with ld.shared.b32 %r3, \[%r2\]", said
    )
    assert "128 of 128 bytes were never written" in said
    assert "used at kernel.cu:41: st.global.b32 [%rd1], %r3" in said


def test_several_lanes_that_issue_a_copy() -> None:
    said = _fault(_LOAD, SimFault)
    assert "so 32 copies are made" in said
    assert "Put it inside a branch on elect.sync" in said


def test_without_loc_the_line_is_that_of_the_text() -> None:
    made = kernel(".shared .b32 box; ld.shared.b32 %r1, [box]; st.shared.b32 [%r1], %r1;", 0)
    with pytest.raises(PoisonError, match=r"at <ptx>:\d+"):
        made.bind([], grid=1, block=32).run()
