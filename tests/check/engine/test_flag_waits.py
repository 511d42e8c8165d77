"""Waits for a flag: what one of several lanes, other tensors and conditions that are faults do to
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check import Verdict, check

Part = Callable[[tp.Context, Any, Any], None]


def decided(
    *parts: Part,
    flags: tuple[int, int] = (0, 0),
    others: tuple[int, int] = (0, 0),
    explore: bool = False,
    dtype: Any = np.int32,
) -> Verdict:
    """The verdict on a CTA of which each part is a warp, given two flags and two other numbers."""

    @tp.kernel()
    def kernel(ctx: tp.Context, flags: Any, others: Any) -> None:
        def role(name: str, part: Part) -> None:
            @ctx.role(name, warps=1)
            def run() -> None:
                part(ctx, flags, others)

        for number, part in enumerate(parts):
            role(f"part{number}", part)

    arrays = np.array(flags, dtype), np.array(others, np.int32)
    return check(kernel.bind(*arrays).launch_args, explore=explore)


def raises(ctx: tp.Context, flags: Any, others: Any) -> None:
    with ctx.elect_one():
        ctx.store(flags[0], 1, order="release")


def waits(condition: Callable[[Any], Any]) -> Part:
    def wait(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.wait_until(flags[0], condition)

    return wait


def test_exploring_performs_every_look() -> None:
    """One before the flag is raised, of which there may be any number, and one after it."""
    decisions = [decided(raises, waits(lambda x: x == 1), explore=e) for e in (False, True)]
    assert [(v.verdict, v.method, v.traces) for v in decisions] == [
        ("verified", "single-execution", 1),
        ("verified", "explored", 4),
    ]


@pytest.mark.parametrize("index", [7, -2])
def test_a_wait_for_an_element_that_is_not_there(index: int) -> None:
    def wait(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.wait_until(flags[ctx.load(others[0])], lambda x: x == 1)

    (fault,) = decided(raises, wait, others=(index, 0)).faults
    assert f"accesses element ({index},) of tensor 'flags' of shape (2,)" in fault.message


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (lambda x: 10 // x == 10, "integer division by zero: 10 // 0"),
        (lambda x: (x + 1) * 2_000_000_000 == 0, "int32 overflow: 4,000,000,000"),
    ],
)
def test_a_condition_that_is_a_fault(condition: Callable[[Any], Any], said: str) -> None:
    """The loop ends there: by its own look, and not by waiting for another value."""
    (fault,) = decided(raises, waits(condition)).faults
    assert (fault.kind, said in fault.message) == ("SimFault", True)


def test_a_condition_that_would_be_a_fault_of_a_value_that_never_comes() -> None:
    """The flag is 0, 1 and 3, never 2, as it would be without the first addition."""

    def adds_twice(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.atomic_add(flags[0], 1, order="release")
            ctx.atomic_add(flags[0], 2, order="release")

    verdict = decided(adds_twice, waits(lambda x: 6 // (x - 2) == 6))
    assert (verdict.verdict, verdict.method) == ("verified", "explored")


def test_other_tensors_have_no_history() -> None:
    def counts(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.atomic_add(others[0], 1, order="release")
            ctx.store(others[1], 1, order="relaxed")
            ctx.store(flags[0], 1, order="release")

    verdict = decided(counts, waits(lambda x: x == 1))
    assert (verdict.verdict, verdict.method) == ("verified", "single-execution")


def adds_of_lanes(ctx: tp.Context, flags: Any, others: Any) -> None:
    ctx.atomic_add(flags[0], ctx.select(ctx.lane >= 0, 1, 0), order="release")


def adds(number: int) -> Part:
    def add(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.atomic_add(flags[0], number, order="release")

    return add


@pytest.mark.parametrize(
    ("parts", "least", "method"),
    [
        ([adds_of_lanes], 5, "single-execution"),
        ([adds_of_lanes, adds(8)], 33, "single-execution"),
        ([adds_of_lanes, adds(8)], 32, "explored"),
    ],
    ids=["32 at once", "32 and 8", "32 may be enough"],
)
def test_additions_of_the_lanes_of_a_warp_are_one_change(
    parts: list[Part], least: int, method: str
) -> None:
    verdict = decided(*parts, waits(lambda x: x >= least))
    assert (verdict.verdict, verdict.method) == ("verified", method)


def adds_four_and_waits(ctx: tp.Context, flags: Any, others: Any) -> None:
    with ctx.elect_one():
        ctx.atomic_add(flags[0], 4, order="release")
        ctx.wait_until(flags[0], lambda x: x >= 6)


@pytest.mark.parametrize(
    ("parts", "dtype"),
    [
        # the first is enough, and then the second alone is not
        ([adds(1), adds(2), waits(lambda x: (x == 1) | (x == 3))], np.int32),
        ([adds(1), adds(2), waits(lambda x: (x == 2) | (x == 3))], np.int32),
        # with its own four the second is enough
        ([adds(1), adds(2), adds_four_and_waits], np.int32),
        # sums wrap around
        ([adds(2**32 - 1), adds(2), waits(lambda x: (x == 1) | (x == 2))], np.uint32),
    ],
    ids=["first", "second", "of its own", "wraps"],
)
def test_one_of_two_additions_may_be_enough(parts: list[Part], dtype: Any) -> None:
    verdict = decided(*parts, dtype=dtype)
    assert (verdict.verdict, verdict.method) == ("verified", "explored")


def test_a_flag_that_is_no_integer() -> None:
    """A store brings it as any other; of additions either may be enough."""

    def raises_a_quarter(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.store(flags[0], 0.25, order="release")

    def adds_a_quarter(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.atomic_add(flags[0], 0.25, order="release")

    wait = waits(lambda x: x >= 0.25)
    one = decided(raises_a_quarter, wait, dtype=np.float32)
    assert (one.verdict, one.method) == ("verified", "single-execution")
    two = decided(adds_a_quarter, adds_a_quarter, wait, dtype=np.float32)
    assert (two.verdict, two.method) == ("verified", "explored")


def test_a_wait_that_passes_by_what_it_knows_already() -> None:
    """The waiting thread has raised the flag itself; nothing can come before that."""

    def raises_and_waits(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.store(flags[0], 1, order="release")
            ctx.wait_until(flags[0], lambda x: x == 1)

    verdict = decided(raises_and_waits)
    assert (verdict.verdict, verdict.method) == ("verified", "single-execution")


def test_a_wait_follows_the_latest_step_that_it_needs() -> None:
    """And so what its thread has done between that and an earlier one."""

    def in_two_steps(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.store(flags[0], 2, order="release")
            ctx.store(others[0], 1, order="relaxed")
            ctx.store(flags[0], 1, order="release")

    def waits_and_looks(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.wait_until(flags[0], lambda x: x == 1)
            with ctx.when(ctx.load(others[0], order="relaxed") == 1):
                ctx.store(others[1], 1, order="relaxed")

    verdict = decided(in_two_steps, waits_and_looks)
    assert (verdict.verdict, verdict.method) == ("verified", "single-execution")


def test_a_step_before_which_a_wait_could_not_pass_hides_those_before_it() -> None:
    """The flag is 1 at first, lowered by the thread that waits, and raised by the other."""

    def lowers_and_waits(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.store(flags[0], 0, order="release")
            ctx.store(others[0], 1, order="release")
            ctx.wait_until(flags[0], lambda x: x == 1)

    def raises_later(ctx: tp.Context, flags: Any, others: Any) -> None:
        with ctx.elect_one():
            ctx.wait_until(others[0], lambda x: x == 1)
            ctx.store(flags[0], 1, order="release")

    verdict = decided(lowers_and_waits, raises_later, flags=(1, 0))
    assert (verdict.verdict, verdict.method) == ("verified", "single-execution")
