"""Launches of PTX are decided as traced kernels are."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable

import numpy as np
import pytest

from tests.ptx.execution.textbook_kernels import KERNELS, bound
from tests.ptx.isa.programs import kernel
from tests.support.printed_ptx import Printed, printed
from tilepipe import ptx
from tilepipe.check import Reductions, check, replay
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.ptx_front_end import PtxFrontEnd
from tilepipe.ir.location import Loc
from tilepipe.machine.polling import Looks
from tilepipe.machine.sites import Site
from tilepipe.ptx.execution.separated_lanes import WatchedWarp
from tilepipe.registry.catalog import find


def gemm() -> Printed:
    """The shipped GEMM for an H200, on an instance in which every ring goes round."""
    spec = find("gemm")
    config, _ = spec.configure({"arch": "sm90", "m": 256, "n": 256, "k": 320, "bn": 128}, None)
    return printed(spec.make(config, 0).program, "sm_90a")


@pytest.fixture(scope="module")
def text() -> Printed:
    return gemm()


def without(text: Printed, pattern: str, number: int = 0) -> Printed:
    """The same kernel without the `number`-th line that has a pattern."""
    lines = text.text.split("\n")
    found = [i for i, line in enumerate(lines) if re.search(pattern, line)]
    del lines[found[number]]
    return Printed(text.program, "\n".join(lines), text.smem_bytes)


@pytest.mark.slow
def test_a_kernel_is_verified_and_its_arrays_keep_their_values(text: Printed) -> None:
    launch = text.launch()
    before = [a.array.tobytes() for a in launch.memory.tensors]
    verdict = check(launch)
    assert (verdict.verdict, verdict.method) == ("verified", "single-execution")
    assert any("single" in fact or "arrivals" in fact for fact in verdict.facts)
    assert [a.array.tobytes() for a in launch.memory.tensors] == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "kind", "says"),
    [
        (r"mbarrier\.arrive\.shared", "DeadlockError", "1 of 1 arrivals|2 of 2 arrivals"),
        (r"fence\.proxy\.async", "RaceError", r"no fence\.proxy\.async of that memory"),
        (r"wgmma\.wait_group", "RaceError", r"until its group has been waited for"),
    ],
)
def test_a_deleted_line_is_a_fault_that_replays(
    text: Printed, pattern: str, kind: str, says: str
) -> None:
    launch = without(text, pattern).launch()
    verdict = check(launch)
    assert verdict.verdict == "fault"
    (fault,) = verdict.faults
    assert fault.kind == kind
    assert re.search(says, fault.message)
    assert "<ptx>:" in fault.loc
    again = replay(launch, fault.schedule)
    assert type(again).__name__ == kind
    assert str(again) == fault.message


@pytest.mark.slow
def test_a_deadlock_names_the_barrier_that_nothing_signals(text: Printed) -> None:
    (fault,) = check(without(text, r"mbarrier\.arrive\.shared").launch()).faults
    (row,) = re.findall(r"\n  warps 0-\d .*", fault.message)
    assert "the mbarrier at" in row
    hint = fault.message.split("what to look at: ")[1]
    assert re.match(
        r"nothing has ever arrived on the mbarrier at 'smem' \+ [\d,]+ of CTA 0, which warp", hint
    )
    assert f"waits for at {fault.loc}" in hint
    assert not re.search(r"warp 0.*; warp 1", fault.message)


def test_what_is_no_launch_is_refused() -> None:
    from tilepipe.errors import BindError

    with pytest.raises(BindError, match=r"of a kernel of PTX, check\(kernel\.bind"):
        check(np.zeros(3))  # type: ignore[arg-type]


ELECTED = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<9>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<9>;
    .shared .align 8 .b64 bar;
    .shared .align 4 .b32 data;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, bar;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [%r2], 1;
    bar.sync 0;
    setp.ge.u32 %p2, %r1, 32;
    @%p2 bra CONSUME;
    @%p1 st.shared.u32 [data], 7;
    SYNC
    elect.sync %r3|%p3, -1;
    @%p3 mbarrier.arrive.shared.b64 _, [%r2];
    ret;
CONSUME:
    PEEK
SPIN:
    mbarrier.try_wait.parity.shared.b64 %p4, [%r2], 0;
    @!%p4 bra SPIN;
READ:
    ld.shared.u32 %r4, [data];
    st.global.u32 [%rd1], %r4;
    ret;
}
"""


def elected(sync: str = "bar.warp.sync -1;", peek: str = "") -> ptx.Launch:
    text = ELECTED.replace("SYNC", sync).replace("PEEK", peek)
    return ptx.load(text)["k"].bind([np.zeros(1, np.uint32)], grid=1, block=64)


@pytest.mark.slow
def test_the_elected_lane_is_not_taken_for_lane_0() -> None:
    """Lane 0 writes, the elected lane arrives: right where that is lane 0, which the ISA does not
    say, and every GPU that was measured does.
    """
    right = check(elected(), rules="strict")
    assert (right.verdict, right.advice) == ("verified", [])
    verdict = check(elected(sync=""))
    assert verdict.verdict == "verified"
    (advice,) = verdict.advice
    assert advice.startswith('elected lane (a fault with rules="strict"): it matters which lane')
    assert "Where it is lane 21, not the lowest: race on" in advice
    (fault,) = check(elected(sync=""), rules="strict").faults
    assert fault.kind == "RaceError"
    assert fault.steps[0].op == "elect.sync: lane 21"
    assert replay(elected(sync=""), fault.schedule, rules="strict") is not None


BOX = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<2>;
    .shared .align 128 .b8 box[640];
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, box;
    mad.lo.u32 %r3, %r1, 4, %r2;
    st.shared.u32 [%r3], %r1;
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    elect.sync %r4|%p1, -1;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 128;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group 0;
    ret;
}
"""


def test_what_the_number_of_the_elected_lane_decides_is_strict() -> None:
    """As in DeepGEMM, where the address of a store is right for lane 0 alone."""
    launch = ptx.load(BOX)["k"].bind([np.zeros(32, np.uint32)], grid=1, block=32)
    verdict = check(launch)
    assert (verdict.verdict, verdict.traces) == ("verified", 1)
    (advice,) = verdict.advice
    assert advice.startswith("elected lane")
    (fault,) = check(launch, rules="strict").faults
    assert fault.steps[0].op == "elect.sync: lane 1"


def test_a_test_that_only_guards_a_wait_needs_no_further_execution() -> None:
    look = "mbarrier.try_wait.parity.shared.b64 %p5, [%r2], 0;"
    verdict = check(elected(peek=f"{look} @%p5 bra READ;"))
    assert (verdict.verdict, verdict.method) == ("verified", "single-execution")
    # one for another phase may let the data be read before they are there
    wrong = look.replace("0;", "1;")
    verdict = check(elected(peek=f"{wrong} @%p5 bra READ;"))
    assert verdict.verdict == "fault"
    assert verdict.faults[0].kind == "RaceError"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["turnstile", "last CTA reduces", "look-back"])
def test_ctas_that_order_each_other_through_memory_are_verified(name: str) -> None:
    made = KERNELS[name]
    verdict = check(bound(made, made.text, grid=2))
    assert (verdict.verdict, verdict.method) == ("verified", "explored")
    for old, new, _ in made.weak.values():
        weak = check(bound(made, made.text.replace(old, new), grid=2), shorten=False)
        assert [fault.kind for fault in weak.faults] == ["RaceError"], old


def test_a_cta_that_waits_for_what_nobody_writes_is_a_deadlock() -> None:
    made = KERNELS["turnstile"]
    text = made.text.replace("add.u32 %r4, %r1, 1;", "add.u32 %r4, %r1, 2;")
    (fault,) = check(bound(made, text, grid=2)).faults
    assert fault.kind == "DeadlockError"
    assert "holds" in fault.message
    assert "another value" in fault.message


APART = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k()
{
    .reg .pred %p<9>;
    .reg .b32 %r<20>;
    .shared .align 8 .b64 bars[2];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, bars;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [%r2], 1;
    @%p1 mbarrier.init.shared.b64 [%r2+8], 1;
    bar.warp.sync -1;
    @%p1 bra ONE;
    setp.ne.u32 %p2, %r1, 1;
    @%p2 bra MEET;
    mbarrier.arrive.shared.b64 _, [%r2+8];
    bra MEET;
ONE:
    mbarrier.arrive.shared.b64 _, [%r2];
MEET:
    ret;
}
"""


def test_lanes_that_act_apart_are_said_to_be_undecided() -> None:
    launch = ptx.load(APART)["k"].bind([], grid=1, block=32)
    verdict = check(launch)
    assert verdict.verdict == "undecided"
    assert "that a branch has separated both act before they meet again" in verdict.bound
    together = APART.replace("    mbarrier.arrive.shared.b64 _, [%r2+8];\n", "")
    assert check(ptx.load(together)["k"].bind([], grid=1, block=32)).verdict == "verified"


def test_an_operand_that_nothing_has_written_is_a_fault_of_the_program() -> None:
    text = APART.replace("mov.u32 %r2, bars;", "@%p3 mov.u32 %r2, bars;")
    text = text.replace("mov.u32 %r1, %tid.x;", "mov.u32 %r1, %tid.x; setp.eq.u32 %p3, %r1, 99;")
    text = text.replace(
        "setp.eq.u32 %p3, %r1, 99;", "mov.u32 %r4, %ctaid.x; setp.ne.u32 %p3, %r4, 0;"
    )
    (fault,) = check(ptx.load(text)["k"].bind([], grid=1, block=32)).faults
    assert "%r2 is read" in fault.message


# Each of two warps of two CTAs adds to two words, as Triton's histogram does.
SUMS = """
    mov.b32 %r9, {one};
    setp.ne.u32 %p1, %l, 0;
    @%p1 bra END;
    atom.global.gpu.acq_rel.add.{type} %r1, [%b0], %r9;
    atom.global.gpu.acq_rel.add.{type} %r2, [%b0+4], %r9;
    {then}
    END:
"""


@pytest.mark.parametrize(("dtype", "one"), [("u32", "1"), ("f32", "0f3F800000")])
def test_sums_that_nothing_reads_commute(dtype: str, one: str) -> None:
    text = SUMS.format(type=dtype, one=one, then="")
    verdict = check(kernel(text, 1).bind([np.zeros(2, np.int32)], grid=2, block=64))
    assert (verdict.verdict, verdict.traces) == ("verified", 1)
    advice = [text for text in verdict.advice if "last bits of the sums" in text]
    assert len(advice) == (2 if dtype == "f32" else 0)
    assert all("1 place in memory" in text for text in advice)


def test_each_order_of_sums_whose_results_are_read_is_tried() -> None:
    text = SUMS.format(type="u32", one="1", then="xor.b32 %r3, %r1, %r2;")
    verdict = check(kernel(text, 1).bind([np.zeros(2, np.int32)], grid=2, block=32))
    assert verdict.verdict == "verified"
    assert verdict.traces > 1


def test_an_acquire_of_what_nobody_looks_at_orders_nothing() -> None:
    text = """
        mov.u32 %r5, %ctaid.x;
        setp.ne.u32 %p1, %r5, 0;
        @!%p1 st.global.u32 [%b1], %t;
        atom.global.gpu.acq_rel.add.u32 %r1, [%b0], 1;
        @%p1 ld.global.u32 %r2, [%b1];
    """
    arrays = np.zeros(1, np.int32), np.zeros(1, np.int32)
    verdict = check(kernel(text, 2).bind(arrays, grid=2, block=1))
    assert [fault.kind for fault in verdict.faults] == ["RaceError"]
    assert verdict.traces == 1


LOST = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 flag)
{
    .reg .pred %p<3>; .reg .b32 %r<3>; .reg .b64 %f;
    ld.param.u64 %f, [flag];
    mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %p1, %r1, WRITER;
    @%p1 bra WRITE;
    RESET
LOOK:
    ld.relaxed.gpu.global.u32 %r2, [%f];
    setp.ne.u32 %p2, %r2, 2;
    @%p2 bra LOOK;
    ret;
WRITE:
    st.relaxed.gpu.global.u32 [%f], 2;
    ret;
}
"""


@pytest.mark.parametrize("writer", ["0", "1"])
@pytest.mark.parametrize("partial_order", [True, False])
def test_a_flag_that_is_reset_after_it_was_set_is_a_deadlock(
    writer: str, partial_order: bool
) -> None:
    """A round of a loop that polls comes back to an equal state: it is gone round once more."""
    reset, reductions = "st.relaxed.gpu.global.u32 [%f], 1;", Reductions(partial_order)
    for says, verdict in ((reset, "fault"), ("", "verified")):
        text = LOST.replace("WRITER", writer).replace("RESET", says)
        flag = np.zeros(1, np.uint32)
        launch = ptx.load(text)["k"].bind([flag], grid=2, block=32, cooperative=True)
        found = check(launch, reductions=reductions)
        assert found.verdict == verdict
        assert [fault.kind for fault in found.faults] == ["DeadlockError"] * bool(says)


GROUPS = """
    .shared .b32 word;
    setp.eq.u32 %p2, %t, 0;
    @%p2 st.shared.u32 [word], 0;
    bar.warp.sync -1;
    setp.lt.u32 %p1, %t, 16;
    @%p1 bra LOOK;
    st.relaxed.cta.shared.u32 [word], 0;
    bra END;
    LOOK: ld.relaxed.cta.shared.u32 %r1, [word];
    ld.relaxed.cta.shared.u32 %r2, [word];
    END: bar.warp.sync -1;
    ld.relaxed.cta.shared.u32 %r2, [word];
    ld.relaxed.cta.shared.u32 %r3, [word];
    """


def place(ops: int, change: Callable[[WatchedWarp], None] | None = None) -> Hashable:
    """The part of a state that says how the warp goes on, after some ops."""
    state = PtxFrontEnd(kernel(GROUPS, 0).bind((), grid=1, block=32), "practice")
    execution = Execution(state, [0])
    agent = execution.machines[0].agents[0]
    execution.run_agent(0, agent, ops)
    assert isinstance(agent.body, WatchedWarp)
    assert (agent.body.mask == agent.body.live) == (ops not in (2, 3, 4))
    if change is not None:
        change(agent.body)
    return state.registers(agent)


def gives_way(warp: WatchedWarp) -> None:
    warp.gives_way = not warp.gives_way


def has_found_another_value(warp: WatchedWarp) -> None:
    assert warp.agent.looks is not None
    for look in warp.agent.looks.last.values():
        look.found = look.found + 1


def has_not_acted(warp: WatchedWarp) -> None:
    warp._done.clear()


@pytest.mark.parametrize("change", [gives_way, has_found_another_value, has_not_acted])
def test_the_place_of_lanes_apart_says_which_of_them_go_on(
    change: Callable[[WatchedWarp], None],
) -> None:
    """A look of one group has been performed, and the other group is still to run."""
    assert place(3) == place(3)
    assert place(3) != place(3, change)


def test_what_lanes_have_found_together_is_no_part_of_their_place() -> None:
    """Nor does it decide which group goes on once a branch separates them."""
    assert place(7) == place(7, has_found_another_value)
    looks = Looks()
    where, found = np.zeros(32, np.int64), np.zeros((32, 4), np.uint8)
    site = Site(0, Loc("k.py", 1))
    again = [looks.again(site, 1, [0], where, found, str) for _ in range(2)]
    looks.forget()
    assert [*again, looks.again(site, 1, [0], where, found, str)] == [False, True, False]


def test_a_look_in_vain_is_forgotten_with_the_next_op() -> None:
    """Only the request after it is made by another group."""
    state = PtxFrontEnd(kernel(GROUPS, 0).bind((), grid=1, block=32), "practice")
    execution = Execution(state, [0])
    agent = execution.machines[0].agents[0]
    agent.repeats = True
    execution.run_agent(0, agent, 1)
    assert not agent.repeats
