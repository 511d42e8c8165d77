"""Kernels whose mistake shows only where two answers meet, or in a second life of a barrier: every
way to check them says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.build import RANK, Builder, binary
from tests.support.check.programs import SLOT_BYTES, Act, Part, Program, launch as launch_of
from tilepipe.check import Bounds, Reductions, Verdict, check
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import const
from tilepipe.ir.program import Launch

WAYS: tuple[tuple[bool, Reductions], ...] = (
    (False, Reductions()),
    (True, Reductions()),
    (False, Reductions(hashing=False)),
    (False, Reductions(partial_order=False)),
)


def every_way(made: Launch) -> list[Verdict]:
    """As by default, explored, without hashing, and in all orders."""
    return [check(made, explore=explore, reductions=reductions) for explore, reductions in WAYS]


# -- of acts ---------------------------------------------------------------------------


def nested(both: bool) -> Program:
    """The last of three arrivals comes when both tests were answered; `both`: and if both said yes,
    something arrives too often.
    """
    inner = Act("try", 1, 0, then=(Act("arrive", 2, 5 if both else 1),))
    asks = Part((Act("try", 0, 0, then=(inner,), other=(Act("wait", 0, 0),)), Act("wait", 1, 0)))
    return Program(
        (1, 2, 1),
        (
            asks,
            Part((Act("arrive", 0, 1),)),
            Part((Act("arrive", 1, 1),)),
            Part((Act("arrive", 1, 1),)),
        ),
    )


def again(act: Act) -> Program:
    """One role ends a barrier's life and begins another; the other looks at the phase before the
    first, which is complete in both.
    """
    return Program((1,), (Part((Act("inval", 0), Act("init", 0, 1))), Part((act,))))


def ended(waits: bool) -> Program:
    """A test in vain, and the end of the barrier: of which the tester may or may not know."""
    tester = Part((Act("try", 0, 0), *((Act("arrive", 1, 1),) if waits else ())))
    ender = Part((Act("wait", 1, 0), Act("inval", 0)))
    return Program((1, 1), (tester, ender, *(() if waits else (Part((Act("arrive", 1, 1),)),))))


def credited(nbytes: int) -> Program:
    """r2 brings `nbytes` to b0 after r0 has passed phase 0 of it. With none nothing holds its
    second phase back, which laps r3.
    """
    return Program(
        (1, 1, 1),
        (
            Part((Act("wait", 0, 0), Act("arrive", 2, 1))),
            Part((Act("arrive", 0, 1), Act("arrive", 1, 1))),
            Part((Act("wait", 2, 0), Act("credit", 0, nbytes))),
            Part((Act("wait", 1, 0), Act("expect", 0, nbytes))),
        ),
    )


# -- by hand ---------------------------------------------------------------------------


def fenced(by: str) -> Launch:
    """A barrier that `a` initialises after set-up, of two CTAs, each of which arrives on the
    other's; `by` fences the initialisation.
    """
    b = Builder(cluster=2)
    array = b.barriers("b", count=1, init=False)
    b.setup_done()

    def meet() -> None:
        b.do(ops.ClusterArrive)
        b.do(ops.ClusterWait)

    for role in ("f", "a"):
        with b.role(role, warps=1):
            if role == "a":
                with b.elect():
                    b.do(ops.MbarInit, b.bar(array), const(1))
            if role == by:
                b.do(ops.FenceBarrierInit)
            meet()
            if role == "a":
                with b.elect():
                    b.arrive(b.bar(array, cta=binary("sub", 1, RANK)))
                b.wait(b.bar(array), b.phase(0))
            meet()
    return Launch(b.finished(), 2, {})


def relinquished(waits: bool) -> Launch:
    """One role allocates tensor memory, another gives up the right to."""
    b = Builder()
    b.kernel.cta_group = 1
    at = b.smem("at", 1, 4, dtype=dtypes.uint32)
    had = b.barriers("had", count=1)
    b.setup_done()
    with b.role("alloc", warps=1):
        b.do(ops.TmemAlloc, b.tile(at, 0, 0, 0, 1, 1), 32, 1)
        b.do(ops.SyncWarp)
        with b.elect():
            b.arrive(b.bar(had))
        b.do(ops.TmemDealloc, b.load(b.element(b.tile(at), 0, 0)), 32, 1)
    with b.role("other", warps=1):
        if waits:
            b.wait(b.bar(had), b.phase(0))
        b.do(ops.TmemRelinquish, 1)
    return Launch(b.finished(), 1, {})


@tp.kernel()
def polled(ctx: tp.Context, out: Any, *, hangs: bool) -> None:
    """A test inside the branch of another: what it does there, it does only if both were already
    complete.
    """
    a, b = tp.SharedMemBarrier.allocate(ctx, 1, "a"), tp.SharedMemBarrier.allocate(ctx, 2, "b")
    done = tp.SharedMemBarrier.allocate(ctx, 1, "done")

    @ctx.role("use", warps=1)
    def use() -> None:
        early = a.try_wait(0)
        with ctx.when(early):
            both = b.try_wait(0)
            with ctx.when(both):
                done.wait(0 if hangs else 1)  # nobody arrives on it: phase 0 never completes
        with ctx.otherwise():
            a.wait(0)
        b.wait(0)
        ctx.store(out[ctx.lane], 1)

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            a.arrive()

    @ctx.role("two", warps=1)
    def two() -> None:
        with ctx.elect_one():
            b.arrive()

    @ctx.role("three", warps=1)
    def three() -> None:
        with ctx.elect_one():
            b.arrive()


@dataclass(frozen=True)
class Case:
    """What is wrong, and the same kernel put right (None: there is no such). `kind`, `words`: of
    the fault.
    """

    name: str
    wrong: Callable[[], Launch]
    right: Callable[[], Launch] | None
    kind: str
    words: tuple[str, ...]


def acts(program: Program) -> Callable[[], Launch]:
    return lambda: launch_of(program)


def bound(hangs: bool) -> Launch:
    return polled.bind(np.zeros(32, np.int32), hangs=hangs).launch_args


DEAD = ("role 'r1' uses b0 after it was invalidated", "Initialise it in set-up code")
CASES = (
    Case(
        "a test in a test",
        acts(nested(True)),
        acts(nested(False)),
        "BarrierError",
        ("over-arrival on b2", "role 'r0' arrives 5"),
    ),
    Case(
        "a wait in a test in a test",
        lambda: bound(True),
        lambda: bound(False),
        "DeadlockError",
        ("role 'use'", "done", "1 of 1 arrivals"),
    ),
    Case("phase -1 of a second life", acts(again(Act("wait", 0, -1))), None, "BarrierError", DEAD),
    Case("parity 1 of a second life", acts(again(Act("parity", 0, 1))), None, "BarrierError", DEAD),
    Case(
        "a test in vain, then the end",
        acts(ended(False)),
        acts(ended(True)),
        "BarrierError",
        ("mbar_try_wait b0", "role 'r0' uses b0"),
    ),
    Case(
        "no bytes",
        acts(credited(0)),
        acts(credited(SLOT_BYTES)),
        "BarrierError",
        ("role 'r0' waits for phase 0 of b0", "phases up to 1", "lapped"),
    ),
    Case(
        "a fence of another role",
        lambda: fenced("f"),
        lambda: fenced("a"),
        "BarrierError",
        ("role 'a' of CTA", "signals b of CTA", "before that CTA's initialisation"),
    ),
    Case(
        "an allocation after the right is gone",
        lambda: relinquished(False),
        lambda: relinquished(True),
        "SimFault",
        ("role 'alloc' allocates 32 columns", "after role 'other' gave up the right"),
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_way_finds_it(case: Case) -> None:
    for (explore, reductions), verdict in zip(WAYS, every_way(case.wrong()), strict=True):
        assert verdict.verdict == "fault", (explore, reductions, verdict.verdict, verdict.bound)
        (fault,) = verdict.faults
        assert fault.kind == case.kind, (explore, reductions, fault.message)
        for word in case.words:
            assert word in fault.message, (explore, reductions, fault.message)


RIGHT = [case for case in CASES if case.right is not None]


@pytest.mark.slow
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_no_way_finds_fault_with_what_is_right(case: Case) -> None:
    """`make test` goes through all orders of right programs in test_generated.py."""
    assert case.right is not None
    made = case.right()
    assert [
        check(made, explore=explore, reductions=reductions).verdict
        for explore, reductions in WAYS[:3]
    ] == ["verified"] * 3


@pytest.mark.thorough
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_no_order_finds_fault_with_what_is_right(case: Case) -> None:
    assert case.right is not None
    made = case.right()
    explore, reductions = WAYS[3]
    # all orders of two CTAs take too long
    bounds = Bounds(traces=1000) if made.kernel.cluster_size > 1 else Bounds()
    assert not check(made, explore=explore, reductions=reductions, bounds=bounds).faults
