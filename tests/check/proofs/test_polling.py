"""Loops that poll: which rounds are followed, which are waits, and what is said of those that
nobody ends.

To put the hole of counters in memory back on purpose, patch
`tilepipe.check.engine.traced_front_end.TracedFrontEnd.polling_state` to leave the memory
out: `lambda self, world, ctas, ag: digest(self.registers(ag))`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check import Bounds, Reductions, check, replay
from tilepipe.check.engine.traced_front_end import TracedFrontEnd
from tilepipe.check.key_encoding import digest
from tilepipe.check.proofs.polling import MAX_FAILED_LOOKS
from tilepipe.ir.chip import H200
from tilepipe.ir.program import Launch

CELLS = ("local", "shared", "global", "nested")


@tp.kernel()
def gives_up(ctx: tp.Context, counter: Any, *, cell: str, after: int, waits: bool) -> None:
    """A role that tests until a slot is filled, or `after` tests, which it counts in `cell`; then
    it reads the slot.
    """
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")
    slot = ctx.smem((1, 32), tp.int32, swizzle=0, name="slot")[0]
    tests = ctx.smem((1, 32), tp.int32, swizzle=0, name="tests")[0]

    @ctx.role("fill", warps=1)
    def fill() -> None:
        ctx.store(slot[0, ctx.lane], 1)
        ctx.syncwarp()
        with ctx.elect_one():
            full.arrive()

    def poll(count: Any, more: Any) -> None:
        for _ in ctx.loop_while(more):
            ready = full.try_wait(0)
            tried = count()
            more.set(~ready & (tried < after))

    @ctx.role("use", warps=1)
    def use() -> None:
        rounds = ctx.var(0)

        def count() -> Any:
            match cell:
                case "shared":
                    ctx.syncwarp()
                    now = ctx.let(ctx.load(tests[0, 0]) + 1, "now")
                    ctx.syncwarp()
                    with ctx.elect_one():
                        ctx.store(tests[0, 0], now)
                    ctx.syncwarp()
                    return now
                case "global":
                    ctx.syncwarp()
                    now = ctx.let(ctx.load(counter[0]) + 1, "now")
                    ctx.syncwarp()
                    with ctx.elect_one():
                        ctx.store(counter[0], now)
                    ctx.syncwarp()
                    return now
            rounds.set(rounds.get() + 1)
            return rounds.get()

        if cell == "shared":
            with ctx.elect_one():
                ctx.store(tests[0, 0], 0)
        if cell == "nested":
            outer = ctx.var(True)
            for _ in ctx.loop_while(outer):
                once = ctx.var(True)
                for _ in ctx.loop_while(once):
                    ready = full.try_wait(0)
                    once.set(False)
                    outer.set(~ready & (count() < after))
        else:
            poll(count, ctx.var(True))
        if waits:
            full.wait(0)
        ctx.load(slot[0, ctx.lane])


def polls(cell: str, after: int = 3, waits: bool = False) -> Launch:
    return gives_up.bind(np.zeros(1, np.int32), cell=cell, after=after, waits=waits).launch_args


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS)
def test_a_loop_that_gives_up_is_left_by_its_count(cell: str) -> None:
    for reductions in (Reductions(), Reductions(hashing=False)):
        verdict = check(polls(cell), reductions=reductions)
        assert verdict.verdict == "fault", f"the exit by a count in {cell} is never taken"
        assert verdict.faults[0].kind == "RaceError"
        assert check(polls(cell, waits=True), reductions=reductions).ok


@pytest.mark.parametrize("cell", CELLS)
def test_a_loop_that_counts_for_long_is_not_decided(cell: str) -> None:
    verdict = check(polls(cell, after=1000))
    assert verdict.verdict == "undecided"
    assert verdict.bound.startswith(
        f"role 'use' has tested {MAX_FAILED_LOOKS} times in a row at test_polling.py"
    )


@pytest.mark.parametrize("cell", ["shared", "global"])
def test_without_memory_in_a_round_the_exit_is_lost(
    cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        TracedFrontEnd, "polling_state", lambda self, world, ctas, ag: digest(self.registers(ag))
    )
    assert check(polls(cell)).ok


# -- counters of the grid --------------------------------------------------------------


@tp.kernel(grid=lambda ctas: ctas, cooperative=True)
def meeting(ctx: tp.Context, counter: Any, out: Any, *, ctas: int, short: int = 0) -> None:
    """Each CTA adds 1 to a counter, and polls it until all have."""
    seen = ctx.smem((1, 32), tp.int32, swizzle=0, name="seen")[0]
    ctx.smem((256, 128), tp.float32, swizzle=0, name="room")  # so that an SM holds one CTA

    @ctx.role("meet", warps=1)
    def meet() -> None:
        with ctx.elect_one(), ctx.when(ctx.block_id >= short):
            ctx.atomic_add(counter[0], 1)
        more = ctx.var(True)
        for _ in ctx.loop_while(more):
            with ctx.elect_one():
                ctx.store(seen[0, 0], ctx.atomic_add(counter[0], 0))
            ctx.syncwarp()
            more.set(ctx.load(seen[0, 0]) < ctas)
            ctx.syncwarp()
        ctx.store(out[ctx.block_id, ctx.lane], 1)


def meets(ctas: int, sms: int = 0, short: int = 0) -> Launch:
    program = meeting.bind(
        np.zeros(1, np.int32), np.zeros((ctas, 32), np.int32), ctas=ctas, short=short
    )
    made = program.launch_args
    return replace(made, chip=replace(H200, sms=sms)) if sms else made


@pytest.mark.slow
@pytest.mark.parametrize("ctas", [2, 3])
def test_a_barrier_of_the_grid_by_a_counter(ctas: int) -> None:
    assert check(meets(ctas)).ok


def test_a_barrier_of_the_grid_with_too_few_places_is_a_deadlock() -> None:
    verdict = check(meets(6, sms=2))
    assert verdict.traces == 1
    (fault,) = verdict.faults
    assert fault.kind == "DeadlockError"
    for words in (
        "until others change 'counter[0]'",
        "only 2 of 6 CTAs can be resident",
        "launch at most 2",
    ):
        assert words in fault.message


@pytest.mark.slow
def test_ctas_that_wait_for_each_other_need_a_cooperative_launch() -> None:
    launch = meets(3)
    launch.kernel.cooperative = False
    verdict = check(launch)
    (fault,) = verdict.faults
    assert fault.kind == "DeadlockError"
    assert "only 2 of 3 CTAs can be resident" in fault.message
    assert "@tp.kernel(..., cooperative=True)" in fault.message
    assert fault.steps[0].op == "2 of 3 clusters run at once"
    again = replay(launch, fault.schedule)
    assert again is not None
    assert str(again).startswith("deadlock: 1 of 1 agents")


def test_a_barrier_of_the_grid_at_which_one_does_not_arrive() -> None:
    (fault,) = check(meets(2, short=1)).faults
    assert fault.kind == "DeadlockError"
    for words in (
        "role 'meet' of CTA",
        "counter[0]",
        "holds 1",
        "until it holds something else than 1",
    ):
        assert words in fault.message


# -- loops that look at nothing that changes -------------------------------------------


@tp.kernel()
def flagged(ctx: tp.Context, flags: Any, *, where: str, sets: bool) -> None:
    """A role that loads a flag until it is set, by a role that nothing orders with it, or by
    nobody.
    """
    flag = ctx.smem((1, 32), tp.int32, swizzle=0, name="flag")[0]
    start = tp.SharedMemBarrier.allocate(ctx, 1, "start")

    @ctx.role("set", warps=1)
    def sets_it() -> None:
        with ctx.elect_one():
            ctx.store(flag[0, 0], 0)
            start.arrive()
            if sets:
                ctx.store(flag[0, 0] if where == "shared" else flags[0], 1)

    @ctx.role("spin", warps=1)
    def spin() -> None:
        start.wait(0)
        more = ctx.var(True)
        for _ in ctx.loop_while(more):
            more.set(ctx.load(flag[0, 0] if where == "shared" else flags[0]) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["shared", "global"])
def test_a_loop_over_a_flag(where: str) -> None:
    for sets, kind in ((True, "RaceError"), (False, "DeadlockError")):
        made = flagged.bind(np.zeros(1, np.int32), where=where, sets=sets).launch_args
        (fault,) = check(made, bounds=Bounds(seconds=60)).faults
        assert fault.kind == kind
        if not sets:
            assert "role 'spin' goes round the loop at" in fault.message
            assert "nothing changes from one round to the next" in fault.message
