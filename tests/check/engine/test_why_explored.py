"""What keeps one execution from deciding a launch."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check import Bounds, Reductions, Verdict, check, combine
from tilepipe.check.choose_front_end import front_end_of
from tilepipe.check.decide import decide
from tilepipe.check.engine.race_reversal import Explorer
from tilepipe.check.sizes import PostponedError, Size

WHY = (
    "the loop at {file}:{loop} waits for 'flags', which an ordinary store at {file}:{store} writes,"
    ' too, so that the loop does not count as a wait: give it order="relaxed", or order="release"'
    " where it hands something on"
)


@tp.kernel(grid=2)
def lowered(ctx: tp.Context, flags: Any, *, order: str) -> None:
    """CTA 1 waits for the flag of CTA 0 and lowers it."""

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            with ctx.when(ctx.block_id == 0):
                ctx.store(flags[0], 1, order="release")
            with ctx.otherwise():
                ctx.wait_until(flags[0], lambda flag: flag == 1)
                if order:
                    ctx.store(flags[0], 0, order=order)
                else:
                    ctx.store(flags[0], 0)


def program(order: str = "") -> tp.Program:
    return lowered.bind(np.zeros(1, np.int32), order=order)


def of_this_file(file: str) -> str:
    lines, first = inspect.getsourcelines(lowered.function)
    loop = next(i for i, line in enumerate(lines) if "wait_until" in line)
    store = next(i for i, line in enumerate(lines) if "flags[0], 0)" in line)
    return WHY.format(file=file, loop=first + loop, store=first + store)


def verdict(order: str, **options: Any) -> Verdict:
    return check(program(order).launch_args, **options)


def test_an_ordinary_store_to_a_flag_is_why() -> None:
    explored = verdict("")
    assert explored.method == "explored"
    assert explored.explored_because == of_this_file("test_why_explored.py")
    assert explored.report()["explored_because"] == explored.explored_because
    cut = verdict("", bounds=Bounds(traces=1))
    assert (cut.verdict, cut.explored_because) == ("undecided", explored.explored_because)
    assert combine([verdict("relaxed"), cut]).explored_because == explored.explored_because


def test_before_anything_is_explored_its_size_is_known() -> None:
    asked: list[Size] = []

    def decided(order: str, may: bool) -> Verdict:
        launch = program(order).launch_args
        explorer = Explorer(front_end_of(launch, "practice"), Bounds(), Reductions(), None)

        def noted(size: Size) -> bool:
            asked.append(size)
            return may

        return decide(explorer, False, "one", may_explore=noted)

    explored = decided("", True)
    assert asked == [Size("one", explored.completions, 2)]
    assert replace(explored, seconds=0.0, instance="") == replace(verdict(""), seconds=0.0)
    with pytest.raises(PostponedError) as postponed:
        decided("", False)
    assert postponed.value.size == asked[0]
    asked.clear()
    assert decided("relaxed", False).ok
    assert asked == []


def test_one_execution_needs_no_reason() -> None:
    assert (verdict("relaxed").method, verdict("relaxed").explored_because) == (
        "single-execution",
        "",
    )
    assert verdict("", explore=True).explored_because == ""


@tp.kernel(grid=2)
def counted(ctx: tp.Context, count: Any, out: Any) -> None:
    """The CTA that draws the second number writes."""

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one(), ctx.when(ctx.atomic_add(count[0], 1) == 1):
            ctx.store(out[0], 1)


def test_an_open_order_is_why() -> None:
    count, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    found = check(counted.bind(count, out).launch_args)
    assert found.method == "explored"
    assert found.explored_because.startswith(
        "it matters which agent comes first to atomic_add count[0] (test_why_explored.py:"
    )
