"""Waits that give a parity: which phase they mean where the role has not waited for the ones
before.

The false alarm comes back with `monkeypatch.setattr(mbarriers, "phase_of", by_waits_alone)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.build import Builder
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Local
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers import mbarrier as mbarriers


@tp.kernel()
def relayed(ctx: tp.Context, out: Any, *, before: int, told: int, wait: int, tests: bool) -> None:
    """`fill` completes `before` phases of `full`, waiting for each, and says so after `told` of
    them; `use` waits for phase `wait`, and for none before.
    """
    full, hint, last = (
        tp.SharedMemBarrier.allocate(ctx, 1, name) for name in ("full", "hint", "last")
    )
    word = ctx.smem((1, 8), "int32", swizzle=0, name="word")[0]

    @ctx.role("fill", warps=1)
    def fill() -> None:
        with ctx.elect_one():
            for phase in range(before):
                if phase == told:
                    hint.arrive()
                ctx.store(word[0, phase], phase + 1)
                full.arrive()
                full.wait(phase % 2)
            if told == before:
                hint.arrive()
        ctx.syncwarp()
        with ctx.elect_one():
            last.wait(0)  # let it not be lapped
            ctx.store(word[0, wait], wait + 1)
            full.arrive()

    @ctx.role("use", warps=1)
    def use() -> None:
        hint.wait(0)
        with ctx.elect_one():
            last.arrive()
        if tests:
            for _ in ctx.range(2):
                full.try_wait(wait % 2)
        full.wait(wait % 2)
        ctx.store(out[0, ctx.lane], ctx.load(word[0, wait]))


def bound(**static: Any) -> tp.Program:
    return relayed.bind(np.zeros((1, 32), np.int32), **{"tests": False, **static})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tests", [False, True])
@pytest.mark.parametrize(("before", "wait"), [(1, 1), (2, 2), (3, 3), (5, 5)])
def test_a_first_wait_for_the_phase_after_those_known_to_be_complete(
    before: int, wait: int, tests: bool
) -> None:
    program = bound(before=before, told=before, wait=wait, tests=tests)
    assert program.check().ok
    for seed in range(20):
        program.run(seed=seed)
        assert (program.launch_args.args["out"].array == wait + 1).all()  # type: ignore[union-attr]


def test_a_phase_that_is_not_known_to_be_complete_may_be_meant() -> None:
    """The hint comes before phase 0 completes: a wait for parity 1 then passes on the phase before
    the first, or waits for phase 1.
    """
    verdict = bound(before=1, told=0, wait=1, tests=False).check()
    assert not verdict.ok
    assert verdict.faults[0].kind in ("RaceError", "PoisonError", "BarrierError")


@tp.kernel()
def freed_first(ctx: tp.Context, out: Any, *, helped: bool) -> None:
    """`fill` completes phase 0 of `empty` itself, and waits for phase 1 alone. With `helped`, phase
    0 takes an arrival of `use` as well.
    """
    full, empty = (
        tp.SharedMemBarrier.allocate(ctx, 1, "full"),
        tp.SharedMemBarrier.allocate(ctx, 2 if helped else 1, "empty"),
    )
    word = ctx.smem((1, 1), "int32", swizzle=0, name="word")[0]

    @ctx.role("fill", warps=1)
    def fill() -> None:
        with ctx.elect_one():
            empty.arrive()
            ctx.store(word[0, 0], 1)
            full.arrive()
            empty.wait(1)
            ctx.store(word[0, 0], 2)
            full.arrive()

    @ctx.role("use", warps=1)
    def use() -> None:
        with ctx.elect_one():
            if helped:
                empty.arrive()
        for phase in range(2):
            full.wait(phase)
            ctx.store(out[phase, ctx.lane], ctx.load(word[0, 0]))
            ctx.syncwarp()
            with ctx.elect_one():
                for _ in range(2 if helped else 1):
                    empty.arrive()


def test_who_completes_a_phase_alone_knows_that_it_is_complete() -> None:
    program = freed_first.bind(np.zeros((2, 32), np.int32), helped=False)
    verdict = program.check()
    assert verdict.ok, verdict.faults[0].message
    for seed in range(5):
        program.run(seed=seed)
        np.testing.assert_array_equal(program.launch_args.args["out"].array, [[1] * 32, [2] * 32])  # type: ignore[union-attr]


def test_an_arrival_that_need_not_be_the_last_says_nothing_of_the_phase() -> None:
    verdict = freed_first.bind(np.zeros((2, 32), np.int32), helped=True).check()
    assert verdict.verdict == "fault"


@tp.kernel()
def lapped(ctx: tp.Context, out: Any) -> None:
    """`use` knows that phase 0 is complete, and waits for it when phase 1 may be, too."""
    full, hint = (
        tp.SharedMemBarrier.allocate(ctx, 1, "full"),
        tp.SharedMemBarrier.allocate(ctx, 1, "hint"),
    )

    @ctx.role("fill", warps=1)
    def fill() -> None:
        with ctx.elect_one():
            full.arrive()
            full.wait(0)
            hint.arrive()
            full.arrive()

    @ctx.role("use", warps=1)
    def use() -> None:
        hint.wait(0)
        full.wait(0)
        ctx.store(out[0, ctx.lane], 1)


@tp.kernel()
def outdated(ctx: tp.Context, out: Any, *, phase: int) -> None:
    """A test of a phase while another is in progress."""
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")
    go = tp.SharedMemBarrier.allocate(ctx, 1, "go")

    @ctx.role("fills", warps=1)
    def fills() -> None:
        with ctx.elect_one():
            full.arrive()
            full.arrive()
            go.arrive()

    @ctx.role("asks", warps=1)
    def asks() -> None:
        go.wait(0)
        with ctx.when(full.try_wait(phase)):
            ctx.store(out[0, ctx.lane], 1)


def test_a_test_of_an_old_phase_is_not_called_a_wait() -> None:
    with pytest.raises(tp.BarrierError) as caught:
        outdated.bind(np.zeros((1, 32), np.int32), phase=0).run()
    text = str(caught.value)
    assert (
        "role 'asks' tests phase 0 of full, but phases up to 1 are complete: it was lapped." in text
    )
    assert "On hardware the parity bit has flipped back and the test may say no.\n" in text
    assert "may never end" not in text


def test_a_test_of_a_phase_ahead_is_not_called_a_wait() -> None:
    b = Builder()
    tick = b.barriers("tick")
    b.setup_done()
    with b.role("asks", warps=1):
        b.do(ops.MbarTryWait, b.bar(tick), b.phase(1), Local(dtypes.boolean, name="ready"))
    with pytest.raises(tp.BarrierError) as caught:
        b.run()
    text = str(caught.value)
    assert "role 'asks' tests phase 1 of tick, but phase 0 is still in progress" in text
    assert "and this test would pass at once" in text


def test_a_wait_for_a_phase_that_another_has_overtaken_is_lapped() -> None:
    verdict = lapped.bind(np.zeros((1, 32), np.int32)).check()
    assert verdict.faults[0].kind == "BarrierError"
    assert (
        "waits for phase 0 of full, but phases up to 1 are complete: it was lapped"
        in verdict.faults[0].message
    )


def by_waits_alone(ag: Agent, bar: int, parity: int, mask: int | None = None) -> int:
    last = ag.passed.get((ag.cta.rank, bar), -1)
    return last if last & 1 == parity & 1 else last + 1


def test_by_waits_alone_it_is_a_false_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mbarriers, "phase_of", by_waits_alone)
    verdict = bound(before=1, told=1, wait=1).check()
    assert "waits for phase -1" in verdict.faults[0].message
