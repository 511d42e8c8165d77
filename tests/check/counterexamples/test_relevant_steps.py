"""What the story of a counterexample shows of a kernel that draws: who got what, and both accesses
of a race on a tensor.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import tilepipe as tp
from tests.scenarios import test_dynamic_work as dynamic
from tests.scenarios.support import at
from tilepipe.check.counterexamples.relevant_steps import _MAX_DRAWS


@tp.kernel(grid=3)
def numbered(ctx: tp.Context, counter: Any, out: Any, *, shared: bool, draws: int) -> None:
    """Each CTA draws a number, and notes in `out` who had the last; `shared`: two of them in one
    place, if the numbers fall so.
    """

    @ctx.role("r", warps=1)
    def r() -> None:
        with ctx.elect_one():
            for _ in ctx.range(draws - 1):
                ctx.atomic_add(counter[1 + ctx.block_id], 1)
            number = ctx.atomic_add(counter[0], 1)
            with ctx.when((number == 2) & (ctx.block_id == 0)):
                ctx.store(out[1 if shared else 0], 7)  # <the third>
            with ctx.when((number == 0) & (ctx.block_id == 2)):
                ctx.store(out[1], 8)  # <the first>


def bound(shared: bool, draws: int = 1) -> tp.Program:
    return numbered.bind(np.zeros(4, np.int32), np.zeros(4, np.int32), shared=shared, draws=draws)


def test_who_drew_what_and_both_accesses() -> None:
    (fault,) = bound(shared=True).check().faults
    assert fault.kind == "RaceError"
    drawn = {step.agent: step.effect for step in fault.steps if step.op == "atomic_add counter[0]"}
    assert drawn == {
        "role 'r' of CTA 2": "draws 0",
        "role 'r' of CTA 1": "draws 1",
        "role 'r' of CTA 0": "draws 2",
    }
    stores = {(step.agent, step.loc) for step in fault.steps if step.op == "store out[1]"}
    assert stores == {
        ("role 'r' of CTA 0", at(__file__, "the third")),
        ("role 'r' of CTA 2", at(__file__, "the first")),
    }
    assert bound(shared=False).check().ok


def test_the_last_draws_are_shown() -> None:
    (fault,) = bound(shared=True, draws=5).check().faults
    drawn = [step.effect for step in fault.steps if step.op.startswith("atomic_add")]
    assert len(drawn) == _MAX_DRAWS
    assert all(effect.startswith("draws ") for effect in drawn)
    assert fault.left_out >= 15 - _MAX_DRAWS


@tp.kernel(grid=2, cluster=2)
def pushed(ctx: tp.Context, out: Any, *, arrivals: int) -> None:
    """Each CTA writes its number to a tile of both; after `arrivals` it adds up its own tiles."""
    part = ctx.smem((1, 32), tp.float32, count=2, swizzle=0, name="part")
    bar = tp.SharedMemBarrier.allocate(ctx, count=arrivals, name="bar")

    @ctx.role("sum", warps=1)
    def add_up() -> None:
        for rank in range(2):
            ctx.store(part[ctx.cta_rank].on(rank)[0, ctx.lane], ctx.cta_rank)  # <push>
        ctx.syncwarp()
        with ctx.elect_one():
            for rank in range(2):
                bar.on(rank).arrive()
        bar.wait(0)
        first, second = (ctx.load(part[i][0, ctx.lane]) for i in range(2))  # <sum>
        ctx.store(out[ctx.block_id, ctx.lane], first + second)
        ctx.cluster_arrive()
        ctx.cluster_wait()


def test_both_accesses_of_a_race_between_ctas() -> None:
    """Also where the CTA of the second has touched a tile of that name of its own in between."""
    out = np.zeros((2, 32), np.float32)
    (fault,) = pushed.bind(out, arrivals=1).check().faults
    assert fault.kind == "RaceError"
    first, second = (("sum", "load part[0]"), ("push", "store [0, lane] of part[cta_rank] @cta 1"))
    assert re.search(r"first: +role 'sum' of CTA 1 reads .*: load part\[0\]", fault.message)
    shown = [(step.agent, step.loc, step.op) for step in fault.steps]
    for cta, (mark, op) in ((1, first), (0, second)):
        loc = at(__file__, mark)
        assert any(
            a == f"role 'sum' of CTA {cta}" and x == loc and o.startswith(op) for a, x, o in shown
        )
    assert pushed.bind(out, arrivals=2).check().ok


def test_which_requests_were_granted_and_which_refused() -> None:
    (fault,) = dynamic.bind("asks again", clusters=5, size=1)[0].check().faults
    assert "although it has seen a request" in fault.message
    asked = [
        step.effect
        for step in fault.steps
        if step.op.startswith("clc_try_cancel") and "will bring" in step.effect
    ]
    assert ["granted cluster 4" in asked[0], "is refused" in asked[1], len(asked)] == [
        True,
        True,
        2,
    ], fault.steps


def test_what_the_erring_role_was_told_by_its_test() -> None:
    """The test comes long before the accesses that race because of its answer."""

    @tp.kernel()
    def hasty(ctx: tp.Context, out: Any) -> None:
        filled = tp.SharedMemBarrier.allocate(ctx, 32, "filled")
        slot = ctx.smem((1, 32), tp.float32, swizzle=0, name="slot")[0]

        @ctx.role("use", warps=1)
        def use() -> None:
            there = filled.try_wait(0)
            with ctx.when(~there):
                ctx.store(slot[0, ctx.lane], 1)

        @ctx.role("fill", warps=1)
        def fill() -> None:
            ctx.store(slot[0, ctx.lane], 2)
            filled.arrive()

    (fault,) = hasty.bind(np.zeros(1, np.float32)).check().faults
    assert fault.kind == "RaceError"
    (asked,) = [step for step in fault.steps if step.op.startswith("mbar_try_wait")]
    assert (asked.agent, asked.effect) == ("role 'use'", "filled: phase 0 is not yet complete")
