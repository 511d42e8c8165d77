"""Lanes that hand on, or learn from each other, their part of an access that other lanes of the
warp made with them: by a bar.warp.sync of a part, by a flag for each lane.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import check
from tilepipe.machine.rules import Rules

STORED = """.shared .align 4 .b32 words[32];
    mov.u32 %r1, words;
    shl.b32 %r2, %t, 2;
    add.u32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %t;
    setp.ge.u32 %p1, %t, 16;
    @%p1 bra END;
    {sync}
    xor.b32 %r4, %r2, {distance};
    add.u32 %r4, %r1, %r4;
    ld.shared.u32 %r5, [%r4];
    END:"""
HALF = "bar.warp.sync 0xffff;"


@pytest.mark.parametrize(
    ("sync", "distance", "verdict"),
    [
        (HALF, 4, "verified"),
        (HALF, 32, "verified"),
        (HALF, 64, "fault"),  # words of the other half
        ("", 4, "fault"),
        ("", 0, "verified"),  # each lane its own word
    ],
)
def test_a_part_of_a_warp_orders_its_part_of_a_store(
    sync: str, distance: int, verdict: str
) -> None:
    text = STORED.format(sync=sync, distance=distance)
    assert check(kernel(text, 0).bind([], grid=1, block=32)).verdict == verdict


# Lane i of one warp writes word i and sets flag i, lane i of another one waits for flag i.
FLAGS = """
    .reg .b64 %d<3>;
    mul.wide.u32 %d0, %l, 4;
    add.u64 %d1, %b0, %d0;
    add.u64 %d2, %b1, %d0;
    {reader}
    setp.eq.u32 %p1, %r9, 1;
    @%p1 bra READS;
    st.global.u32 [%d1], %t;
    {release}
    bra END;
    READS: {acquire}
    setp.eq.u32 %p2, %r1, 0;
    @%p2 bra READS;
    {between}
    ld.global.u32 %r2, [%d1{offset}];
    END:
"""
WAYS = {
    "release and acquire": (
        "st.release.gpu.global.u32 [%d2], 1;",
        "ld.acquire.gpu.global.u32 %r1, [%d2];",
        "",
    ),
    "fences": (
        "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%d2], 1;",
        "ld.relaxed.gpu.global.u32 %r1, [%d2];",
        "fence.acq_rel.gpu;",
    ),
}
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "warps": ("shr.u32 %r9, %t, 5;", {"grid": 1, "block": 64}),
    "CTAs": ("mov.u32 %r9, %ctaid.x;", {"grid": 2, "block": 32}),
}


@pytest.mark.parametrize("rules", ["practice", "strict"])
@pytest.mark.parametrize("who", READERS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("offset", "sync", "verdict"),
    [("", "", "verified"), ("+4", "", "fault"), ("+4", "bar.warp.sync -1;", "verified")],
    ids=["its own word", "that of the next lane", "that of the next lane, after a sync"],
)
def test_a_flag_for_each_lane(
    way: str, who: str, offset: str, sync: str, verdict: str, rules: Rules
) -> None:
    release, acquire, fence = WAYS[way]
    reader, launch = READERS[who]
    text = FLAGS.format(
        reader=reader, release=release, acquire=acquire, between=fence + sync, offset=offset
    )
    arrays = [np.zeros(33, np.int32), np.zeros(33, np.int32)]
    found = check(kernel(text, 2).bind(arrays, **launch), rules=rules)
    assert found.verdict == verdict
    assert [fault.kind for fault in found.faults] == ["RaceError"] * (verdict == "fault")


def test_a_fence_that_is_missing_is_noticed() -> None:
    release, acquire, _ = WAYS["fences"]
    reader, launch = READERS["warps"]
    for without in (release.split(";", 1)[1], release):
        text = FLAGS.format(reader=reader, release=without, acquire=acquire, between="", offset="")
        arrays = [np.zeros(33, np.int32), np.zeros(33, np.int32)]
        assert check(kernel(text, 2).bind(arrays, **launch)).verdict == "fault"


@pytest.mark.parametrize(("sync", "verdict"), [("bar.warp.sync -1;", "verified"), ("", "fault")])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("st.shared.u32 [%r3], %t;", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r6];"),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r6], {%t};", "ld.shared.u32 %r5, [%r7];"),
    ],
    ids=["ldmatrix", "stmatrix"],
)
def test_matrix_instructions_are_no_barriers_of_the_warp(
    first: str, second: str, sync: str, verdict: str
) -> None:
    text = f""".shared .align 16 .b32 words[32];
        mov.u32 %r1, words;
        shl.b32 %r2, %t, 2;
        add.u32 %r3, %r1, %r2;
        and.b32 %r4, %t, 7;
        shl.b32 %r4, %r4, 4;
        add.u32 %r6, %r1, %r4;
        xor.b32 %r7, %r3, 64;
        {first}
        {sync}
        {second}"""
    assert check(kernel(text, 0).bind([], grid=1, block=32)).verdict == verdict


def test_reads_of_ldmatrix_are_handed_back_by_one_lane() -> None:
    """What one lane reads others get, so the arrive of one lane comes after the reads of all."""
    text = """.shared .align 16 .b32 words[32];
        .shared .align 8 .b64 bar;
        mov.u32 %r1, words;
        and.b32 %r4, %t, 7;
        shl.b32 %r4, %r4, 4;
        add.u32 %r6, %r1, %r4;
        setp.eq.u32 %p1, %t, 0;
        setp.ge.u32 %p2, %t, 32;
        @%p1 mbarrier.init.shared.b64 [bar], 1;
        @%p2 shl.b32 %r2, %l, 2;
        @%p2 add.u32 %r3, %r1, %r2;
        @%p2 st.shared.u32 [%r3], %l;
        bar.sync 0;
        @%p2 bra WRITES;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r6];
        @%p1 mbarrier.arrive.shared.b64 _, [bar];
        bra END;
        WRITES: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0;
        @!%p3 bra WRITES;
        st.shared.u32 [%r3], 7;
        END:"""
    assert check(kernel(text, 0).bind([], grid=1, block=64)).ok
