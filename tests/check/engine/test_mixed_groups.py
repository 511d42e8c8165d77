"""Two groups of warps that use one named barrier."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import Verdict, check, replay
from tilepipe.errors import BarrierError, RaceError

# Warps 0 and 1 meet, and so do warps 2 and 3. What they do is independent.
GROUPS = """
    .shared .align 8 .b64 full;
    mov.u32 %r1, 0;
    setp.eq.u32 %p3, %t, 0;
    @%p3 mbarrier.init.shared.b64 [full], 64;
    bar.sync 0;
    setp.ge.u32 %p1, %t, 64;
    @%p1 bra SECOND;
    bar.sync 1, 64;
    {between}
    bra END;
    SECOND: {before}
    bar.sync {number}, 64;
    END:
    """
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [full], 0; @!%p2 bra WAIT;"
POLL = "WAIT: ld.relaxed.gpu.global.u32 %r2, [%b0]; setp.ne.u32 %p2, %r2, 2; @%p2 bra WAIT;"
ADD = "and.b32 %r3, %t, 31; setp.eq.u32 %p4, %r3, 0; @%p4 red.relaxed.gpu.global.add.u32 [%b0], 1;"


def verdict(number: str = "1", between: str = "", before: str = "") -> Verdict:
    text = GROUPS.format(number=number, between=between, before=before)
    launch = kernel(text, 1).bind([np.zeros(1, np.uint32)], grid=1, block=128)
    found = check(launch)
    for fault in found.faults:
        again = replay(launch, fault.schedule)
        assert isinstance(again, BarrierError)
        assert str(again) == fault.message
    return found


@pytest.mark.parametrize("number", ["1", "%r4"])
def test_two_groups_at_one_barrier_are_named(number: str) -> None:
    found = verdict(number, before="mov.u32 %r4, 1;")
    (fault,) = found.faults
    assert fault.kind == "BarrierError"
    assert "two groups of warps use barrier 1 at once, which is for 64 threads" in fault.message
    met = re.findall(r"(?:first|second):\s+(.*) meet there", fault.message)
    assert len(met) == 2
    assert sorted(re.findall(r"warp \d", met[0] + met[1])) == [f"warp {i}" for i in range(4)]
    late = re.search(r"Nothing orders the arrival of (warp \d) after", fault.message)
    assert late is not None
    assert late[1] in met[1]
    assert met[1].count("<ptx>:") >= 1
    assert f"at {fault.loc}" in fault.message


def test_groups_with_numbers_of_their_own_are_right() -> None:
    assert verdict("2").verdict == "verified"


@pytest.mark.parametrize(
    ("between", "before"),
    [
        ("mbarrier.arrive.shared.b64 _, [full];", WAIT),
        ("bar.arrive 3, 128;", "bar.sync 3, 128;"),
        (ADD, POLL),  # an order that no acquire makes is one all the same
    ],
)
def test_a_group_that_comes_after_the_other_may_use_its_barrier(between: str, before: str) -> None:
    assert verdict(between=between, before=before).verdict == "verified"


@pytest.mark.slow
def test_a_group_that_comes_after_one_warp_of_the_other_may_not() -> None:
    """Warp 0 alone arrives before it meets warp 1."""
    late = WAIT.replace("WAIT", "LATE")
    text = GROUPS.format(number="1", between="", before=late).replace("[full], 64", "[full], 32")
    text = text.replace(
        "bar.sync 1, 64;",
        "setp.lt.u32 %p5, %t, 32; @%p5 mbarrier.arrive.shared.b64 _, [full]; bar.sync 1, 64;", 1
    )  # fmt: skip
    found = check(kernel(text, 1).bind([np.zeros(1, np.uint32)], grid=1, block=128))
    assert "two groups of warps use barrier 1 at once" in found.faults[0].message


def test_a_race_of_what_the_barrier_should_order_says_who_met() -> None:
    """In a run, which looks at one order."""
    text = """
        .shared .align 4 .b32 words[128];
        mov.u32 %r1, words;
        mad.lo.u32 %r1, %t, 4, %r1;
        st.shared.u32 [%r1], %t;
        bar.sync 1, 64;
        xor.b32 %r2, %r1, 256;
        ld.shared.u32 %r3, [%r2];
        """
    launch = kernel(text, 1).bind([np.zeros(1, np.uint32)], grid=1, block=128)
    with pytest.raises(RaceError, match=r"not with warp \d: is the barrier's number used for two"):
        launch.run()
