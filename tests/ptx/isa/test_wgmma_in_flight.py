"""The message of an instruction that uses registers of an accumulator before the wgmma is over."""

from __future__ import annotations

import pytest

from tests.ptx.isa.wgmma_programs import FENCE, launch, mma
from tilepipe.errors import RaceError, SimFault

_COMMIT, _USE = "wgmma.commit_group.sync.aligned;", "add.u32 %r30, %r21, 1;"
_ANOTHER = mma(d="{%r24, %r25, %r26, %r27}")


@pytest.mark.parametrize(
    ("before", "remedy"),
    [
        (mma() + _COMMIT, "put wgmma.wait_group.sync.aligned 0 between the two."),
        (
            mma() + _COMMIT + _ANOTHER + _COMMIT,
            "put wgmma.wait_group.sync.aligned 1 between the two (1 later groups may be in flight)",
        ),
        (mma(), "put wgmma.commit_group.sync.aligned and wgmma.wait_group.sync.aligned 0 between"),
    ],
)
def test_a_register_is_used_before_the_wait(before: str, remedy: str) -> None:
    made = launch(FENCE, before, _USE)
    with pytest.raises(RaceError) as caught:
        made.run()
    text = made.kernel.module.text.split("\n")
    (line,) = (i for i, one in enumerate(text, 1) if _USE in one)
    said = str(caught.value)
    assert said.startswith("%r21, a register of an accumulator, is used while a wgmma that writes")
    assert f"second: {_USE.rstrip(';')} (PTX line {line})" in said
    assert "first:  wgmma.mma_async" in said
    assert remedy in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("setp.lt.u32 %p9, %t, 64; @%p9 add.u64 %rd1, %rd1, 0;", ""),
        ("setp.lt.u32 %p9, %t, 64; @%p9 add.u64 %rd1, %rd1, 1;", "another matrix descriptor of B"),
        ("setp.lt.u32 %p1, %t, 64;", "another scale-d"),
    ],
)
def test_the_warps_of_a_warpgroup_execute_one_wgmma(changed: str, said: str) -> None:
    made = launch(changed, FENCE, mma(), "wgmma.commit_group.sync.aligned;"
                  "wgmma.wait_group.sync.aligned 0;")  # fmt: skip
    if not said:
        made.run()
        return
    with pytest.raises(SimFault, match=f"gives {said} than warp") as caught:
        made.run()
    assert "one instruction of the four warps" in str(caught.value)
