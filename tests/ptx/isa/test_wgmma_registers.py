"""Registers of wgmma that instructions use, with and without a wgmma.fence before the wgmma."""

from __future__ import annotations

import pytest

from tests.ptx.isa.wgmma_programs import DONE, FENCE, launch, mma
from tilepipe.check import check
from tilepipe.errors import RaceError
from tilepipe.ptx import Launch


@pytest.mark.parametrize(
    ("access", "register", "of"),
    [
        ("add.u32 %r30, %r21, 1;", "%r21", "the accumulator"),  # read, and overwritten by the wgmma
        ("xor.b32 %r22, %r22, %r22;", "%r22", "the accumulator"),
        ("shl.b32 %r12, %r11, 1;", "%r12", "A"),
        ("@%p1 shl.b32 %r12, %r40, 1;", "%r12", "A"),
        ("ld.global.u32 %r13, [%b0];", "%r13", "A"),
        ("st.global.u32 [%a0], %r23;", "%r23", "the accumulator"),
        ("cvt.u64.u32 %rd7, %r20;", "%r20", "the accumulator"),
    ],
)
def test_an_access_before_a_wgmma_needs_a_fence_between(
    access: str, register: str, of: str
) -> None:
    first = FENCE + mma() + DONE
    launch(first, access, FENCE, mma(), DONE).run()
    made = launch(first, access, mma(), DONE)
    with pytest.raises(RaceError) as caught:
        made.run()
    said = str(caught.value)
    assert f"{register}, a register of {of}, is used by an instruction" in said
    assert "no wgmma.fence stands between" in said
    head, second = said.split("second: ")
    text = made.kernel.module.text.split("\n")
    line = next(i for i in range(len(text), 0, -1) if access in text[i - 1])
    assert f"(PTX line {line})" in head
    assert f"<ptx>:{line}" in head
    assert second.startswith("wgmma.mma_async")
    assert f"<ptx>:{line + 1}" in second
    verdict = check(made)
    assert (verdict.verdict, verdict.faults[0].kind) == ("fault", "RaceError")


@pytest.mark.parametrize(
    "between",
    [
        "add.u32 %r30, %r11, %r12; mov.u32 %r20, 1;" + FENCE,
        "add.u32 %r30, %r40, 1;",  # of no wgmma
        "@%p2 shl.b32 %r12, %r40, 1;",  # no lane does
        mma(),  # of the same shape: in order
        "wgmma.commit_group.sync.aligned;" + mma(),
        "@%p1 bra OVER; xor.b32 %r20, %r20, %r20; OVER: ",  # on a way that is not taken
        "@!%p2 bra OVER; add.u32 %r30, %r11, %r12; OVER: ",
    ],
)
def test_what_needs_no_fence(between: str) -> None:
    made = launch(FENCE, mma(), DONE, between, mma(), DONE)
    assert check(made).ok
    made.run()


def test_an_accumulator_of_two_shapes_needs_a_fence_between_them() -> None:
    other = mma("m64n8k32.f32.e4m3.e4m3", ", 1, 1")
    assert check(launch(FENCE, mma(), DONE, FENCE, other, DONE)).ok
    with pytest.raises(RaceError, match=r"no wgmma\.fence stands between"):
        launch(FENCE, mma(), DONE, other, DONE).run()


def test_a_use_in_a_loop_is_found_in_its_second_round() -> None:
    def loop(fence: str) -> Launch:
        return launch(
            "mov.u32 %r6, 0;", FENCE, "AGAIN:", fence, mma(), DONE,
            "add.u32 %r30, %r20, %r21; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 2;",
            "@%p3 bra AGAIN;",
        )  # fmt: skip

    assert check(loop(FENCE)).ok
    with pytest.raises(RaceError, match=r"add\.u32 %r30"):
        loop("").run()


def test_copies_between_fence_and_wgmma_are_strict() -> None:
    """As NVRTC sets accumulators to 0."""
    made = launch(FENCE, "mov.u32 %r20, 0; mov.u32 %r21, %r40;", mma(), DONE)
    assert check(made).ok
    with pytest.raises(RaceError, match="strict rules, copies before wgmma: %r20, a register of"):
        made.run(rules="strict")
    read = launch(FENCE, mma(), DONE, "add.u32 %r30, %r20, 1;", "mov.u32 %r20, 0;", mma(), DONE)
    with pytest.raises(RaceError, match=r"add\.u32 %r30"):  # which the copy does not hide
        read.run()
