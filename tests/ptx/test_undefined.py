"""What PTX leaves undefined, and what kernels in use rely on nevertheless."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import ptx


def launch(body: str, block: int, parameters: str = "", *args: int) -> ptx.Launch:
    text = f"""
        .version 8.7
        .target sm_90a
        .address_size 64
        .visible .entry k(.param .u64 out{parameters}) {{
        .reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
        .shared .align 8 .b64 bar; .local .align 4 .b8 own[16];
        ld.param.u64 %rd0, [out];
        mov.u32 %r0, %tid.x;
        mul.wide.u32 %rd1, %r0, 4;
        add.s64 %rd0, %rd0, %rd1;
        {body}
        st.global.u32 [%rd0], %r0;
        ret; }}
        """
    return ptx.load(text).only().bind([np.zeros(128, np.uint32), *args], grid=1, block=block)


PAIR = ", .param .u32 n, .param .u32 m"


@pytest.mark.parametrize(
    ("load", "offset"),
    [
        ("ld.param.u32 %r1, [n+4];", 4),
        ("ld.param.u64 %rd2, [n];", 0),
        ("ld.param.u32 %r1, [n+4096];", 4096),
        ("ld.param.v2.u32 {%r1, %r2}, [n];", 0),
    ],
)
def test_a_load_beyond_its_parameter_is_a_fault(load: str, offset: int) -> None:
    made = launch(load, 32, PAIR, 1, 2)
    with pytest.raises(tp.SimFault, match=rf"bytes at offset {offset} of the parameter 'n', which"):
        made.run()
    assert not made.check().ok
    launch(f"bra OVER; {load} OVER:", 32, PAIR, 1, 2).run()


def test_a_uniform_branch_on_which_lanes_differ_is_a_fault() -> None:
    body = "setp.lt.u32 %p1, %r0, {}; @%p1 bra.uni A; add.u32 %r0, %r0, 1; A:"
    with pytest.raises(tp.SimFault, match="of the lanes 0xffffffff that execute it, only 0x1 take"):
        launch(body.format(1), 64).run()
    launch(body.format(32), 64).run()


WAIT = """
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra OVER;
    mbarrier.init.shared.b64 [bar], 1;
    mbarrier.arrive.shared.b64 %rd3, [bar];
    POLL: mbarrier.try_wait.parity.shared.b64 %p2, [bar], PARITY;
    @!%p2 bra POLL;
    OVER:
"""


def test_a_parity_above_1_is_refused_by_the_strict_rules() -> None:
    for parity, advice in (("0", 0), ("2", 1)):
        made = launch(WAIT.replace("PARITY", parity), 32)
        made.run()
        assert len(made.advice) == advice
    with pytest.raises(tp.BarrierError, match="it gives 2 as the parity of a phase"):
        made.run(rules="strict")


LATE = """
    setp.ge.u32 %p1, %r0, 32;
    @%p1 bra OUT;
    bar.sync 0;
    bra ON;
    OUT: ret;
    ON:
"""


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_barrier_does_not_wait_for_warps_that_have_exited(seed: int) -> None:
    made = launch(LATE, 96)
    made.run(seed)
    (advice,) = made.advice
    assert "2 of the 3 warps of the CTA have exited" in advice
    with pytest.raises(tp.BarrierError, match="strict rules, exited warps"):
        made.run(seed, rules="strict")


def test_exited_warps_in_a_check() -> None:
    for explore in (False, True):
        verdict = launch(LATE, 96).check(explore=explore)
        assert verdict.ok
        assert "exited warps" in verdict.advice[0]
        assert not launch(LATE, 96).check(explore=explore, rules="strict").ok


def test_a_barrier_for_a_number_of_threads_waits_for_all_of_them() -> None:
    with pytest.raises(tp.DeadlockError):
        launch(LATE.replace("bar.sync 0", "bar.sync 0, 96"), 96).run()


def test_a_read_of_local_memory_that_nothing_has_written() -> None:
    launch("st.local.u32 [own], %r0; ld.local.u32 %r0, [own];", 64).run()
    made = launch("st.local.u32 [own], %r0; ld.local.u32 %r0, [own+4];", 64)
    with pytest.raises(tp.PoisonError, match=r"reads local memory .* but 4 of 4 bytes"):
        made.run()
    assert not made.check().ok


def test_constant_memory_has_64_kilobytes() -> None:
    for nbytes, fits in ((65536, True), (65537, False)):
        text = (
            ".version 8.7\n.target sm_90a\n.address_size 64\n"
            f".const .b8 table[{nbytes}];\n.visible .entry k() {{ ret; }}\n"
        )
        kernel = ptx.load(text).only()
        if fits:
            kernel.bind([], grid=1, block=1).run()
        else:
            with pytest.raises(tp.PtxError, match="constant memory have 65,537 bytes"):
                kernel.bind([], grid=1, block=1)


def test_the_steps_of_a_fault_say_what_an_atomic_operation_draws() -> None:
    body = "bar.sync 0; atom.global.add.u32 %r1, [%rd0], 5; setp.ge.u32 %p1, %r1, 0; @%p1 trap;"
    (fault, *_) = launch(body, 32).check().faults
    shown = [step.effect for step in fault.steps if "draws" in step.effect]
    assert shown == ["draws 0"]
