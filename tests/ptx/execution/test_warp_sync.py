"""bar.warp.sync in several places: lanes meet whose instruction names the same lanes (PTX ISA)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel, run
from tilepipe.check import check
from tilepipe.errors import DeadlockError, RaceError

# Even and odd lanes store a word each, in arms of a branch, and read that of their neighbour.
ARMS = """
    .shared .align 4 .b32 words[32];
    mov.u32 %r1, words;
    mad.lo.u32 %r1, %t, 4, %r1;
    and.b32 %r2, %t, 1;
    setp.eq.u32 %p1, %r2, 1;
    @%p1 bra ODD;
    st.shared.u32 [%r1], %t;
    {even}
    ld.shared.u32 %r3, [%r1+4];
    bra END;
    ODD: {before}
    add.u32 %r4, %t, 100;
    st.shared.u32 [%r1], %r4;
    {odd}
    ld.shared.u32 %r3, [%r1+-4];
    {after}
    END: st.global.u32 [%a0], %r3;
    """
SYNC = "bar.warp.sync -1;"


def text(even: str = SYNC, odd: str = SYNC, before: str = "", after: str = "") -> str:
    return ARMS.format(even=even, odd=odd, before=before, after=after)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"odd": "mov.u32 %r9, -1; bar.warp.sync %r9;"},
        {"even": SYNC + SYNC, "odd": SYNC, "after": SYNC},
        {"even": f"bar.warp.sync 0x55555555; {SYNC}"},
    ],
)
def test_lanes_meet_in_two_places(given: dict[str, str], seed: int) -> None:
    out = np.zeros(32, np.int32)
    run(text(**given), out, seed=seed)
    assert out.tolist() == [t - 1 if t % 2 else t + 101 for t in range(32)]


def test_what_meets_in_two_places_is_verified() -> None:
    made = kernel(f"mad.wide.u32 %a0, %t, 4, %b0; {text()}", 1)
    assert check(made.bind([np.zeros(32, np.int32)], grid=1, block=32)).verdict == "verified"


def test_a_store_after_the_meeting_is_a_race() -> None:
    with pytest.raises(RaceError, match="nothing orders the second access after the first"):
        run(text(odd="", before=SYNC), np.zeros(32, np.int32))


def test_lanes_that_name_others_do_not_meet() -> None:
    message = (
        r"bar.warp.sync -1 \(PTX line \d+\): the lanes 0x55555555 of warp 0 wait at it for the"
        r" lanes 0xaaaaaaaa, .*: lanes 0xaaaaaaaa wait at PTX line \d+: bar.warp.sync 4294967294"
    )
    with pytest.raises(DeadlockError, match=message):
        run(text(odd="bar.warp.sync 0xfffffffe;"), np.zeros(32, np.int32))


HALVES = "setp.lt.u32 %p1, %t, 16; selp.b32 %r9, 0xffff, 0xffff0000, %p1;"
QUARTERS = "shr.u32 %r8, %t, 3; shl.b32 %r8, %r8, 3; mov.u32 %r9, 0xff; shl.b32 %r9, %r9, %r8;"


@pytest.mark.parametrize(("masks", "width"), [(HALVES, 16), (QUARTERS, 8)])
def test_groups_that_name_themselves_vote_and_shuffle_each_on_its_own(
    masks: str, width: int
) -> None:
    out = np.zeros((32, 4), np.int32)
    run(
        masks
        + """
        and.b32 %r2, %t, 1;
        setp.eq.u32 %p2, %r2, 1;
        vote.sync.ballot.b32 %r3, %p2, %r9;
        redux.sync.add.u32 %r4, %t, %r9;
        shfl.sync.bfly.b32 %r5, %t, 4, 31, %r9;
        bar.warp.sync %r9;
        add.u32 %r6, %t, 1;
        mul.lo.u32 %r7, %t, 12;
        cvt.u64.u32 %rd1, %r7;
        add.u64 %a0, %a0, %rd1;
        st.global.v4.u32 [%a0], {%r3, %r4, %r5, %r6};""",
        out,
    )
    lanes = np.arange(32)
    first = lanes // width * width
    every = sum(1 << i for i in range(1, width, 2))
    assert (out[:, 0].astype(np.uint32) == np.uint32(every) << first.astype(np.uint32)).all()
    assert (out[:, 1] == width * first + width * (width - 1) // 2).all()
    assert (out[:, 2] == lanes ^ 4).all()
    assert (out[:, 3] == lanes + 1).all()


@pytest.mark.parametrize(("distance", "verdict"), [(8, "verified"), (16, "fault")])
def test_a_group_orders_its_own_lanes(distance: int, verdict: str) -> None:
    text = f""".shared .align 4 .b32 words[32];
        {HALVES}
        mov.u32 %r1, words;
        shl.b32 %r2, %t, 2;
        add.u32 %r3, %r1, %r2;
        st.shared.u32 [%r3], %t;
        bar.warp.sync %r9;
        xor.b32 %r2, %r2, {4 * distance};
        add.u32 %r3, %r1, %r2;
        ld.shared.u32 %r4, [%r3];"""
    found = check(kernel(text, 0).bind([], grid=1, block=32))
    assert found.verdict == verdict
    assert [fault.kind for fault in found.faults] == ["RaceError"] * (verdict == "fault")
