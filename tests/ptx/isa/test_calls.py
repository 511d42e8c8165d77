"""Calls of functions, of vprintf and of __assertfail."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel, run
from tilepipe.errors import PtxError, SimFault

LANE = np.arange(32)

_SQUARE = """
    .func (.param .b32 result) square(.param .b32 x) {
    .reg .b32 %r<4>; .reg .pred %p<2>;
    ld.param.b32 %r1, [x];
    setp.gt.u32 %p1, %r1, 20;
    @%p1 bra BIG;
    mul.lo.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
    BIG: st.param.b32 [result], 999;
    ret;
    }
    .func (.param .align 8 .b8 pair[16]) both(.param .b32 x, .param .align 8 .b8 given[8]) {
    .reg .b32 %r<9>; .reg .b64 %rd<3>;
    .local .align 8 .b8 depot[8];
    ld.param.b32 %r1, [x];
    {
    .param .b32 passed; st.param.b32 [passed], %r1;
    .param .b32 back;
    call.uni (back), square, (passed);
    ld.param.b32 %r2, [back];
    }
    ld.param.b32 %r3, [given+4];
    st.local.b32 [depot+4], %r3;
    ld.local.b32 %r4, [depot+4];
    cvt.u64.u32 %rd1, %r2; cvt.u64.u32 %rd2, %r4;
    st.param.v2.b64 [pair], {%rd1, %rd2};
    ret;
    }
    """

_CALL = """
    {
    .param .b32 p0; st.param.b32 [p0], %t;
    .param .align 8 .b8 p1[8]; st.param.v2.b32 [p1], {7, %l};
    .param .align 8 .b8 r0[16];
    call.uni (r0), both, (p0, p1);
    ld.param.v2.b64 {%rd1, %rd2}, [r0];
    }
    """


def test_functions_call_each_other_with_parameters_in_memory() -> None:
    out = np.zeros((32, 2), np.uint64)
    text = f"mad.wide.u32 %a0, %t, 16, %b0; {_CALL} st.global.v2.b64 [%a0], {{%rd1, %rd2}};"
    run(text, out, before=_SQUARE)
    np.testing.assert_array_equal(out[:, 0], np.where(LANE > 20, 999, LANE**2))
    np.testing.assert_array_equal(out[:, 1], LANE)


def test_a_call_may_have_a_guard_and_stand_twice() -> None:
    out = np.zeros(32, np.uint32)
    call = """
        { .param .b32 p0; st.param.b32 [p0], %r1; .param .b32 r0; st.param.b32 [r0], %r1;
        @%p1 call (r0), square, (p0); ld.param.b32 %r1, [r0]; }
        """
    text = f"""
        setp.lt.u32 %p1, %t, 4; mov.u32 %r1, %t;
        {call} {call}
        st.global.b32 [%a0], %r1;
        """
    run(text, out, before=_SQUARE)
    np.testing.assert_array_equal(out, np.where(LANE < 4, LANE**4, LANE))


def test_a_function_that_calls_itself_is_refused() -> None:
    before = ".func f() { call.uni f; ret; }"
    with pytest.raises(PtxError, match="'f' calls itself"):
        run("call.uni f;", before=before)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("call.uni malloc;", "a call of 'malloc'"),
        ("call.uni %rd1, (%rd2);", "a call of 'an address'"),
        ("{ .param .b32 p; .param .b32 r; call (r), square, (%r1); }", "not a .param variable"),
    ],
)
def test_other_calls_are_refused(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(text, before=_SQUARE)


def _string(name: str, text: str) -> str:
    codes = ", ".join(str(b) for b in text.encode() + b"\0")
    return f".global .align 1 .b8 {name}[{len(text.encode()) + 1}] = {{{codes}}};"


_PRINTF = """
    .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
    .extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n,
                               .param .b64 s);
    """


def test_vprintf_prints_for_each_thread(capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        .local .align 8 .b8 depot[40];
        mov.b64 %rd1, depot; cvta.local.u64 %rd2, %rd1;
        setp.gt.u32 %p1, %t, 1; @%p1 ret;
        st.local.b32 [%rd1], %t;
        mov.b64 %rd3, 0d3FF8000000000000; st.local.b64 [%rd1+8], %rd3;
        mov.b64 %rd4, name; cvta.global.u64 %rd4, %rd4; st.local.b64 [%rd1+16], %rd4;
        mov.b64 %rd5, -5; st.local.b64 [%rd1+24], %rd5;
        mov.b64 %rd6, form; cvta.global.u64 %rd6, %rd6;
        { .param .b64 p0; st.param.b64 [p0], %rd6; .param .b64 p1; st.param.b64 [p1], %rd2;
        .param .b32 r0; call.uni (r0), vprintf, (p0, p1); ld.param.b32 %r1, [r0]; }
        st.global.b32 [%a0], %r1;
        """
    before = _PRINTF + _string("name", "tile") + _string("form", "%03d %.2f|%-6s|%lld %%\n")
    out = np.zeros(2, np.uint32)
    run(text, out, before=before)
    assert capsys.readouterr().out == "000 1.50|tile  |-5 %\n001 1.50|tile  |-5 %\n"
    assert out.tolist() == [4, 4]


@pytest.mark.parametrize(
    ("form", "bits", "printed"),
    [
        ("%llx", 0xFEDCBA9876543210, "fedcba9876543210"), ("%lx", 1 << 40, "10000000000"),
        ("%llu", (1 << 64) - 1, "18446744073709551615"), ("%lli", (1 << 64) - 2, "-2"),
        ("%x", 0xFFFFFFFF, "ffffffff"), ("%hhd", 0x1FF, "-1"), ("%hx", 0x12345, "2345"),
        ("%hhu", 0x101, "1"), ("%#x", 255, "0xff"), ("%#x", 0, "0"), ("%#o", 8, "010"),
        ("%o", 8, "10"), ("%+d|", 5, "+5|"), ("%-4d|", 5, "5   |"), ("%.3d", 5, "005"),
        ("%p", 0x7F0000001000, "0x7f0000001000"), ("%p", 0, "(nil)"), ("%c", 65, "A"),
        ("%zu", 1 << 33, "8589934592"), ("%5%", 0, "%"), ("%X", 0xAB, "AB"), ("%i", 7, "7"),
        ("%a", 0x3FF8000000000000, "0x1.8p+0"), ("%e", 0x3FF8000000000000, "1.500000e+00"),
        ("%g", 0x7FF0000000000000, "inf"), ("%G", 0x7FF8000000000000, "NAN"),
    ],
)  # fmt: skip
def test_vprintf_converts_as_c_does(
    form: str, bits: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"""
        .local .align 8 .b8 depot[8];
        mov.b64 %rd1, depot; cvta.local.u64 %rd2, %rd1;
        setp.gt.u32 %p1, %t, 0; @%p1 ret;
        mov.b64 %rd5, {bits:#x}U; st.local.b64 [%rd1], %rd5;
        mov.b64 %rd6, form; cvta.global.u64 %rd6, %rd6;
        {{ .param .b64 p0; st.param.b64 [p0], %rd6; .param .b64 p1; st.param.b64 [p1], %rd2;
        .param .b32 r0; call.uni (r0), vprintf, (p0, p1); ld.param.b32 %r1, [r0]; }}
        """
    run(text, np.zeros(1, np.uint32), before=_PRINTF + _string("form", f"{form}\n"))
    assert capsys.readouterr().out == f"{printed}\n"


def test_a_failed_assertion_is_a_fault_with_its_message() -> None:
    text = """
        setp.ne.u32 %p1, %t, 3; @%p1 ret;
        mov.b64 %rd1, text; cvta.global.u64 %rd1, %rd1;
        { .param .b64 p0; st.param.b64 [p0], %rd1; .param .b64 p1; st.param.b64 [p1], %rd1;
        .param .b32 p2; st.param.b32 [p2], 17; .param .b64 p3; st.param.b64 [p3], %rd1;
        .param .b64 p4; st.param.b64 [p4], 1;
        call.uni __assertfail, (p0, p1, p2, p3, p4); }
        """
    with pytest.raises(SimFault, match=r"assertion 'x > 0' fails in thread 3 .*x > 0:17"):
        run(text, before=_PRINTF + _string("text", "x > 0"))


def test_trap_is_a_fault_that_names_its_line() -> None:
    with pytest.raises(SimFault, match=r"PTX line \d+: trap"):
        run("trap;")


def test_positions_of_inlined_instructions_name_the_call() -> None:
    before = """
        .file 1 "a.cu"
        .func f() {
        .loc 1 5 0
        trap; }
        """
    made = kernel(".loc 1 9 0\ncall.uni f;", 0, before=before)
    positions = [str(i.position) for i in made.code.function.instructions if i.opcode == "trap"]
    assert positions == ["a.cu:5, inlined at a.cu:9"]
