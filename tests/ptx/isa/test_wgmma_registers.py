"""Registers of wgmma that instructions use, with and without a wgmma.fence before the wgmma."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import check
from tilepipe.errors import RaceError
from tilepipe.ptx import Launch

_ZEROS = """
    mov.u32 %r40, 0;
    mad.wide.u32 %a0, %t, 4, %b0; mov.u32 %r2, memory; mad.lo.u32 %r3, %t, 16, %r2; mov.u32 %r4, 0;
    st.shared.v4.b32 [%r3], {%r4, %r4, %r4, %r4};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %r5, %r2, 4; cvt.u64.u32 %rd1, %r5; or.b64 %rd1, %rd1, 0x1000080000;
    mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0;
    mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, 0;
    setp.eq.u32 %p1, %r4, 0; setp.ne.u32 %p2, %r4, 0;
"""
_FENCE = "wgmma.fence.sync.aligned;"
_DONE = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
_D = "{%r20, %r21, %r22, %r23}"


def _mma(form: str = "m64n8k16.f32.bf16.bf16", more: str = ", 1, 1, 0") -> str:
    a = "{%r10, %r11, %r12, %r13}"
    return f"wgmma.mma_async.sync.aligned.{form} {_D}, {a}, %rd1, %p1{more};\n"


def _launch(*parts: str) -> Launch:
    made = kernel("\n".join([_ZEROS, *parts]), 1, before=".shared .align 1024 .b8 memory[2048];")
    return made.bind([np.zeros(128, np.uint32)], grid=1, block=128)


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
    first = _FENCE + _mma() + _DONE
    _launch(first, access, _FENCE, _mma(), _DONE).run()
    launch = _launch(first, access, _mma(), _DONE)
    with pytest.raises(RaceError) as caught:
        launch.run()
    said = str(caught.value)
    assert f"{register}, a register of {of}, is used by an instruction" in said
    assert "no wgmma.fence stands between" in said
    head, second = said.split("second: ")
    text = launch.kernel.module.text.split("\n")
    line = next(i for i in range(len(text), 0, -1) if access in text[i - 1])
    assert f"(PTX line {line})" in head
    assert f"<ptx>:{line}" in head
    assert second.startswith("wgmma.mma_async")
    assert f"<ptx>:{line + 1}" in second
    verdict = check(launch)
    assert (verdict.verdict, verdict.faults[0].kind) == ("fault", "RaceError")


@pytest.mark.parametrize(
    "between",
    [
        "add.u32 %r30, %r11, %r12; mov.u32 %r20, 1;" + _FENCE,
        "add.u32 %r30, %r40, 1;",  # of no wgmma
        "@%p2 shl.b32 %r12, %r40, 1;",  # no lane does
        _mma(),  # of the same shape: in order
        "wgmma.commit_group.sync.aligned;" + _mma(),
        "@%p1 bra OVER; xor.b32 %r20, %r20, %r20; OVER: ",  # on a way that is not taken
        "@!%p2 bra OVER; add.u32 %r30, %r11, %r12; OVER: ",
    ],
)
def test_what_needs_no_fence(between: str) -> None:
    launch = _launch(_FENCE, _mma(), _DONE, between, _mma(), _DONE)
    assert check(launch).ok
    launch.run()


def test_an_accumulator_of_two_shapes_needs_a_fence_between_them() -> None:
    other = _mma("m64n8k32.f32.e4m3.e4m3", ", 1, 1")
    assert check(_launch(_FENCE, _mma(), _DONE, _FENCE, other, _DONE)).ok
    with pytest.raises(RaceError, match=r"no wgmma\.fence stands between"):
        _launch(_FENCE, _mma(), _DONE, other, _DONE).run()


def test_a_use_in_a_loop_is_found_in_its_second_round() -> None:
    def loop(fence: str) -> Launch:
        return _launch(
            "mov.u32 %r6, 0;", _FENCE, "AGAIN:", fence, _mma(), _DONE,
            "add.u32 %r30, %r20, %r21; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 2;",
            "@%p3 bra AGAIN;",
        )  # fmt: skip

    assert check(loop(_FENCE)).ok
    with pytest.raises(RaceError, match=r"add\.u32 %r30"):
        loop("").run()


def test_copies_between_fence_and_wgmma_are_strict() -> None:
    """As NVRTC sets accumulators to 0."""
    launch = _launch(_FENCE, "mov.u32 %r20, 0; mov.u32 %r21, %r40;", _mma(), _DONE)
    assert check(launch).ok
    with pytest.raises(RaceError, match="strict rules, copies before wgmma: %r20, a register of"):
        launch.run(rules="strict")
    read = _launch(
        _FENCE, _mma(), _DONE, "add.u32 %r30, %r20, 1;", "mov.u32 %r20, 0;", _mma(), _DONE
    )
    with pytest.raises(RaceError, match=r"add\.u32 %r30"):  # which the copy does not hide
        read.run()
