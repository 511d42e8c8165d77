"""Lines that an instance never reaches: a verdict tells them."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check import Verdict, combine
from tilepipe.check.parallel import check_all
from tilepipe.check.unreached import Coverage, Line, listed


def both(ctx: tp.Context, x: Any, at: Any) -> None:
    """A helper that two roles call."""
    with ctx.when(at > 2):
        ctx.store(x[at], 1)  # in both


@tp.kernel(grid=1)
def kernel(ctx: tp.Context, x: Any, n: Any, *, static: bool) -> None:
    ring = tp.ProducerConsumerPipeline.allocate(ctx, 2, name="ring")

    @ctx.role("first", warps=1)
    def first() -> None:
        for i in ctx.range(n):
            with ring.produce() as stage:
                with ctx.elect_one():
                    with ctx.when(i == 7):
                        # a comment
                        ctx.store(x[0], 5)  # never

                        ctx.store(x[0], 6)  # never, too
                    with ctx.otherwise():
                        ctx.store(x[0], 7)
                stage.mbar().arrive()
        if static:
            ctx.syncwarp()
        both(ctx, x, n - n)
        ring.drain_producer()  # drained

    @ctx.role("second", warps=1)
    def second() -> None:
        for _ in ctx.range(n):
            with ring.consume():
                pass
        for _ in ctx.range(n - 3):
            ctx.syncwarp()  # no rounds
        with ctx.when(n > 0):
            ctx.syncwarp()
        with ctx.otherwise():
            ctx.syncwarp()  # not for n > 0
        both(ctx, x, n)


def bound(n: int, static: bool = False) -> tp.Program:
    return kernel.bind(np.zeros(32, np.int32), n, static=static)


def line(text: str) -> int:
    """The line of this file that ends in a comment."""
    source = inspect.getsource(inspect.getmodule(bound) or bound).splitlines()
    (number,) = (i for i, got in enumerate(source, 1) if got.endswith(f"  # {text}"))
    return number


def said(verdict: Verdict) -> list[str]:
    return [str(place) for place in verdict.unreached]


def test_lines_that_no_execution_has_reached() -> None:
    verdict = bound(2).check()
    assert verdict.ok
    never, role = line("never"), "test_unreached.py"
    condition, loop = never - 2, line("no rounds")
    helper, other = line("in both"), line("not for n > 0")
    assert said(verdict) == [
        f"{role}:{helper} (role 'first'): the condition never holds ({role}:{helper - 1}:"
        " with ctx.when(at > 2):)",
        f"{role}:{helper} (role 'second'): the condition never holds ({role}:{helper - 1}:"
        " with ctx.when(at > 2):)",
        f"{role}:{never}-{never + 2} (role 'first'): the condition never holds ({role}:{condition}:"
        " with ctx.when(i == 7):)",
        f"{role}:{loop} (role 'second'): the loop has no rounds ({role}:{loop - 1}: for _ in"
        " ctx.range(n - 3):)",
        f"{role}:{other} (role 'second'): the condition always holds ({role}:{other - 3}: with"
        " ctx.when(n > 0):)",
    ]
    assert verdict.report()["unreached"][3] == {
        "lines": f"{role}:{loop}",
        "role": "second",
        "why": f"the loop has no rounds ({role}:{loop - 1}: for _ in ctx.range(n - 3):)",
    }


def test_instances_together_have_reached_what_any_of_them_has() -> None:
    two, four, nine = (bound(n).check() for n in (2, 4, 9))
    roles = [place.role for place in combine([two, four]).unreached]
    assert roles == ["first", "first", "second"]
    together = combine([four, nine])
    (helper, other) = together.unreached
    assert helper.first == line("in both")
    assert other.first == line("not for n > 0")
    assert len(combine([together, two]).unreached) == 2


def test_what_a_configuration_leaves_out_is_no_line() -> None:
    assert len(bound(2).check().unreached) == len(bound(2, static=True).check().unreached)


def test_a_loop_of_the_library_that_has_no_rounds_is_none() -> None:
    """`drain_producer` waits for slots that were filled, and there are none."""
    drain = line("drained")
    assert not any(place.first <= drain <= place.last for place in bound(0).check().unreached)


def test_a_fault_ends_the_search_and_tells_no_lines() -> None:
    @tp.kernel(grid=1)
    def stuck(ctx: tp.Context, x: Any) -> None:
        full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

        @ctx.role("all", warps=1)
        def run() -> None:
            full.wait(0)
            with ctx.when(ctx.block_id > 3):
                ctx.store(x[ctx.lane], 1)

    verdict = stuck.bind(np.zeros(32, np.int32)).check()
    assert verdict.verdict == "fault"
    assert verdict.unreached == []


def test_an_execution_that_is_explored_reaches_lines_as_well() -> None:
    """Who comes first is open: both branches are reached, by different executions."""

    @tp.kernel(grid=1)
    def race(ctx: tp.Context, x: Any, out: Any) -> None:
        def role(number: int) -> None:
            @ctx.role(f"role{number}", warps=1)
            def run() -> None:
                with ctx.elect_one():
                    ticket = ctx.atomic_add(x[0], 1)
                    with ctx.when(ticket == 0):
                        ctx.store(out[number], 1)
                    with ctx.otherwise():
                        ctx.store(out[number], 2)

        for number in range(2):
            role(number)

    verdict = race.bind(np.zeros(1, np.int32), np.zeros(2, np.int32)).check()
    assert verdict.ok
    assert verdict.method == "explored"
    assert verdict.unreached == []


@pytest.mark.slow
def test_processes_tell_the_same() -> None:
    (alone,) = check_all([("two", partial(bound, 2))])
    several = check_all([("two", partial(bound, 2)), ("four", partial(bound, 4))], jobs=2)
    assert said(several[0]) == said(alone)
    assert len(said(several[1])) < len(said(alone))


def test_many_places_are_cut_off_for_people() -> None:
    lines = {Line("k.py", 2 * n, "r"): "the loop has no rounds" for n in range(12)}
    reached = frozenset(Line("k.py", 2 * n + 1, "r") for n in range(12))
    texts = listed(Coverage(reached, lines).places())
    assert len(texts) == 9
    assert texts[-1] == "and 4 more places: --json lists all"
    assert len(listed(Coverage(frozenset(), lines).places())) == 1  # nothing else between them
