"""The message of an instruction that uses registers of an accumulator before the wgmma is over."""

from __future__ import annotations

import pytest

from tests.ptx.isa.wgmma_programs import FENCE, launch, mma
from tilepipe.errors import RaceError

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
