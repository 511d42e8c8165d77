"""OrderedBarrier (C5): groups take turns in order, and never two at once; and consumers that take
tiles of a ring in turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.scenarios.support import at, refuted, verified
from tests.support import ordered_turns as turns
from tests.support.examples import share
from tests.support.ordered_turns import KINDS, bind_alternating, bind_turns, expected_turns


def ran(program: tp.Program, seed: int) -> Any:
    run = program.run(seed=seed)
    assert run.advice == []
    return run


@pytest.mark.sampled(suite=3, classes=lambda groups, kind, seed: [(groups, kind)])
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [2, 3, 4, 5])
def test_c5_groups_take_turns(groups: int, kind: str, seed: int) -> None:
    program, log, sums = bind_turns(groups, 2, 6, kind)
    run = ran(program, seed)
    want_log, want_sums = expected_turns(groups, 2, 6, kind)
    np.testing.assert_array_equal(log, want_log)
    np.testing.assert_array_equal(sums, want_sums)
    # group 0 of each thing gets one turn from set-up, and what the last group passes on after the
    # last round
    assert run.completions["order"] == [
        [7 if group == 0 else 6 for _ in range(2) for group in range(groups)]
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [2, 3, 5])
def test_c5_in_every_order(groups: int, kind: str) -> None:
    program, _, _ = bind_turns(groups, 2, 3, kind)
    want = [[4 if group == 0 else 3 for _ in range(2) for group in range(groups)]]
    assert verified(program).completions["order"] == want


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_slow_group_is_waited_for(slow: int) -> None:
    program, log, _ = bind_turns(3, 2, 4, slow=slow)
    ran(program, 1)
    np.testing.assert_array_equal(log, expected_turns(3, 2, 4)[0])


@pytest.mark.slow
@given(
    groups=st.integers(1, 5),
    depth=st.integers(1, 4),
    rounds=st.integers(1, 7),
    kind=st.sampled_from(sorted(KINDS)),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=share(25))
def test_any_number_of_groups_things_and_rounds(
    groups: int, depth: int, rounds: int, kind: str, seed: int
) -> None:
    program, log, sums = bind_turns(groups, depth, rounds, kind)
    ran(program, seed)
    want_log, want_sums = expected_turns(groups, depth, rounds, kind)
    np.testing.assert_array_equal(log, want_log)
    np.testing.assert_array_equal(sums, want_sums)


@pytest.mark.parametrize("kind", ["one role", "several roles"])
@pytest.mark.parametrize("keeps", [0, 1])
def test_a_group_that_does_not_pass_on(kind: str, keeps: int) -> None:
    program, _, _ = bind_turns(3, 1, 2, kind, keeps=keeps)
    with pytest.raises(tp.DeadlockError) as caught:
        program.run(seed=1)
    said = str(caught.value)
    waiting = (
        f"role 'group{keeps + 1}'"
        if kind == "several roles"
        else f"role 'group' warpgroup {keeps + 1}"
    )
    for words in (waiting, f"order[{keeps + 1}]", "128", at(turns.__file__, "turn")):
        assert words in said, said
    refuted(
        bind_turns(3, 1, 2, kind, keeps=keeps)[0],
        tp.DeadlockError,
        waiting,
        f"order[{keeps + 1}]",
        at(turns.__file__, "turn"),
    )


def test_overlap_is_a_race() -> None:
    """The groups' work without their turns: the accesses of `turns` are not ordered by anything
    else.
    """

    @tp.kernel()
    def no_turns(ctx: tp.Context, ticks: Any) -> None:
        @ctx.role("group", warpgroups=2)
        def group() -> None:
            with ctx.elect_one("warpgroup"):
                ctx.store(ticks[0], ctx.load(ticks[0]) + 1)

    with pytest.raises(tp.RaceError, match="role 'group' warpgroup"):
        no_turns.bind(np.zeros(1, np.int32)).run(seed=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"groups": 0}, "groups of an OrderedBarrier is at least 1, got 0"),
        ({"groups": 2, "depth": 0}, "depth of an OrderedBarrier is at least 1, got 0"),
        (
            {"groups": 2, "threads": 2.5},
            "threads of an OrderedBarrier is an int, 1 or more, known while tracing; got 2.5",
        ),
    ],
)
def test_numbers_that_no_order_has(arguments: dict[str, Any], words: str) -> None:
    @tp.kernel()
    def wrong(ctx: tp.Context) -> None:
        tp.OrderedBarrier(ctx, **arguments)

    with pytest.raises(tp.TraceError, match=words):
        wrong.bind()


def test_misplaced() -> None:
    @tp.kernel()
    def in_a_role(ctx: tp.Context) -> None:
        ctx.role("one", warpgroups=1)(lambda: tp.OrderedBarrier(ctx, 2) and None)

    with pytest.raises(tp.TraceError, match="made in set-up code"):
        in_a_role.bind()

    @tp.kernel()
    def beyond(ctx: tp.Context) -> None:
        order = tp.OrderedBarrier(ctx, 2)
        ctx.role("one", warpgroups=1)(lambda: order.wait(2))

    with pytest.raises(tp.TraceError, match="group 2 of an OrderedBarrier of 2"):
        beyond.bind()

    @tp.kernel()
    def by_lane(ctx: tp.Context) -> None:
        order = tp.OrderedBarrier(ctx, 2)
        ctx.role("one", warpgroups=1)(lambda: order.wait(ctx.lane % 2))

    with pytest.raises(tp.TraceError, match="a group"):
        by_lane.bind()


@pytest.mark.slow
@given(
    tiles=st.integers(0, 6),
    length=st.integers(0, 7),
    stages=st.integers(1, 6),
    consumers=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=share(40))
def test_consumers_take_tiles_of_one_ring_in_turn(
    tiles: int, length: int, stages: int, consumers: int, seed: int
) -> None:
    program, out, want = bind_alternating(tiles, length, stages, consumers)
    run = ran(program, seed)
    np.testing.assert_array_equal(out, want)
    per_stage = [len(range(s, tiles * length, stages)) for s in range(stages)]
    assert run.completions["ring.full"] == run.completions["ring.empty"] == [per_stage]


def test_skipping_a_lap_of_the_ring_without_turns() -> None:
    program, _, _ = bind_alternating(2, 2, 2, 2, ordered=False)
    with pytest.raises(tp.BarrierError, match="skipped a phase") as caught:
        program.run()
    assert "role 'consume' warp 1 waits for phase 1 of ring.full[0]" in str(caught.value)
    assert at(turns.__file__, "item") in str(caught.value)


def test_a_turn_that_is_not_entered() -> None:
    @tp.kernel()
    def skipped(ctx: tp.Context) -> None:
        order = tp.OrderedBarrier(ctx, 2, name="epilogue")

        @ctx.role("mma", warpgroups=2)
        def mma() -> None:
            order.turn(ctx.warpgroup_rank)

    with pytest.raises(
        tp.TraceError,
        match=r"epilogue\.turn is not entered: write `with epilogue\.turn\(\.\.\.\):`",
    ):
        skipped.bind()
