"""Deadlocks of loops that wait for flags, and the steps and the advice about such memory."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.check import check, combine


@tp.kernel(grid=2)
def awaited(ctx: tp.Context, flags: Any, out: Any, *, value: int) -> None:
    """Each warpgroup of CTA 0 raises a flag, for which one of CTA 1 waits."""

    @ctx.role("both", warpgroups=2)
    def both() -> None:
        wg = ctx.warpgroup_rank
        with ctx.elect_one("warpgroup"):
            with ctx.when(ctx.block_id == 0):
                ctx.store(out[wg], 1)
                ctx.store(flags[wg], 1, order="relaxed")
            with ctx.otherwise():
                ctx.wait_until(flags[wg], lambda flag: flag == value)
                ctx.store(out[wg], 2)


def fault_of(value: int) -> Any:
    flags, out = np.zeros(2, np.int32), np.zeros(2, np.int32)
    (fault,) = check(awaited.bind(flags, out, value=value).launch_args).faults
    return fault


def test_agents_of_one_role_that_wait_for_flags_are_no_cycle() -> None:
    """Each could write the tensor, which says nothing of the element that the other waits for."""
    said = fault_of(2).message
    assert said.startswith("deadlock: 2 of 2 agents of CTA 1 wait")
    assert "'flags[0]'" in said
    assert "cycle" not in said
    assert "until it holds something else than 1, and no remaining agent changes it" in said


def test_roles_that_wait_for_flags_of_each_other_are_a_cycle() -> None:
    @tp.kernel(grid=1)
    def crossed(ctx: tp.Context, flags: Any) -> None:
        def wait_and_raise(mine: int) -> None:
            with ctx.elect_one():
                ctx.wait_until(flags[1 - mine], lambda flag: flag == 1)
                ctx.store(flags[mine], 1, order="release")

        @ctx.role("first", warps=1)
        def first() -> None:
            wait_and_raise(0)

        @ctx.role("second", warps=1)
        def second() -> None:
            wait_and_raise(1)

    (fault,) = check(crossed.bind(np.zeros(2, np.int32)).launch_args).faults
    assert "cycle: role 'first' -> role 'second' -> role 'first'\n" in fault.message


def test_a_load_reads_and_draws_nothing() -> None:
    fault = fault_of(1)
    assert fault.kind == "RaceError"
    effects = {step.effect for step in fault.steps if step.op.startswith("load_acquire")}
    assert effects == {"reads 1"}


@tp.kernel(grid=2)
def unrolled(ctx: tp.Context, out: Any, *, rounds: int) -> None:
    """Two places are added to at one line, in a loop of Python."""

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            for i in range(rounds):
                ctx.atomic_add(out[i], 1.0)


def test_advice_about_an_unrolled_loop_is_one_entry() -> None:
    def verdict(rounds: int) -> Any:
        return check(unrolled.bind(np.zeros(4, np.float32), rounds=rounds).launch_args)

    (said,) = verdict(4).advice
    assert "atomic_add out[0], at test_flags_never_raised.py:" in said
    assert " (and 3 more ops there): 4 places in memory to which several agents add" in said
    (together,) = combine([verdict(4), verdict(2)]).advice
    assert together.endswith(" (1 more like this at the same line)")
