"""Where printed code keeps the registers of wgmma's operands: from where they are written to where
they are read for the last time, and while an MMA that uses them is in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilepipe as tp


def kept(body: Callable[[tp.Context, Any, Any, tp.Fragment, tp.Fragment], None]) -> list[set[str]]:
    """The fragments that are kept at each fence and wait of a role, in the order of the code."""

    @tp.kernel(grid=1)
    def kernel(ctx: tp.Context) -> None:
        a, b = (ctx.smem((64, 64), "bfloat16", name=name)[0] for name in "ab")
        out = ctx.smem((64, 64), "float32", name="out")[0]

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            first, second = ctx.accumulator((64, 64)), ctx.accumulator((64, 64))
            body(ctx, a, b, first, second)
            ctx.store(out, second)

    code = kernel.bind().source("sm_90a")
    code = code[code.index("// ---- roles") :]
    places: list[set[str]] = []
    before: set[str] = set()
    after = False  # behind a wait, where the registers that it keeps follow it
    for line in (x.strip().split(" ")[0] for x in code.splitlines()):
        if line.startswith("keep("):
            (places[-1] if after else before).add(line[5:-2])
        elif line.startswith("wgmma_fence"):
            places.append(before)
            before, after = set(), False
        elif line.startswith("wgmma_wait"):
            places.append(set())
            after = True
        else:
            after = False
    return places


FIRST, SECOND = "acc", "acc_1"


def test_an_accumulator_that_is_overwritten_holds_nothing_before() -> None:
    def body(ctx: tp.Context, a: Any, b: Any, first: Any, second: Any) -> None:
        ctx.mma(first, a, b, accumulate=False)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        second.set(first * 2.0)
        ctx.mma(first, a, b, accumulate=False)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        second += first

    assert kept(body) == [set(), {FIRST}, set(), {FIRST}]


def test_what_is_added_to_holds_its_sum() -> None:
    def body(ctx: tp.Context, a: Any, b: Any, first: Any, second: Any) -> None:
        second.fill(0)
        for _ in ctx.range(3):
            ctx.mma(first, a, b, accumulate=False)
            ctx.mma(second, a, b)
            ctx.wgmma_commit()
            ctx.wgmma_wait(0)
            second += first

    assert kept(body) == [{SECOND}, {FIRST, SECOND}]


def test_a_fragment_is_kept_while_its_mma_is_in_flight() -> None:
    def body(ctx: tp.Context, a: Any, b: Any, first: Any, second: Any) -> None:
        ctx.mma(first, a, b, accumulate=False)  # nobody reads it
        ctx.wgmma_commit()
        ctx.mma(second, a, b, accumulate=False)
        ctx.wgmma_commit()
        ctx.wgmma_wait(1)
        ctx.wgmma_wait(0)

    # behind the first wait it is over: the second finds nothing to keep for it
    assert kept(body) == [set(), {FIRST}, {FIRST, SECOND}, {SECOND}]


def test_a_value_that_the_next_round_reads_is_kept_round_the_loop() -> None:
    def body(ctx: tp.Context, a: Any, b: Any, first: Any, second: Any) -> None:
        first.fill(0)
        second.fill(0)
        for _ in ctx.range(3):
            ctx.mma(second, a, b, accumulate=False)
            ctx.wgmma_commit()
            ctx.wgmma_wait(0)
            first.set(second + first)
        ctx.mma(first, a, b)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)

    assert kept(body)[:2] == [{FIRST}, {FIRST, SECOND}]


@pytest.mark.parametrize("whole", [True, False])
def test_columns_that_are_set_one_part_after_the_other_replace_all_of_it(whole: bool) -> None:
    def body(ctx: tp.Context, a: Any, b: Any, first: Any, second: Any) -> None:
        second.fill(0)
        first.fill(0)
        ctx.mma(second, a, b)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        for col in (0, 32) if whole else (32,):
            first.set(second.cols(col, 32), col)
        ctx.mma(first, a, b)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        second += first

    fence, wait, *_ = kept(body)
    assert (FIRST in fence, FIRST in wait) == (not whole, not whole)
