"""Votes and reductions over the lanes of a warp: what is refused, and what is a fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import evaluated, in_role, refused, role_from_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ctx.any_lane(ctx.lane)", ("any_lane takes a condition", "value of int32")),
        ("ctx.all_lanes(1)", ("all_lanes takes a condition", "int32")),
        ("ctx.ballot(0.5)", ("ballot takes a condition", "float32")),
        ("ctx.ballot('a')", ("expected a number or a traced value",)),
        (
            "ctx.reduce_lanes('add', ctx.lane.to('float32'))",
            (
                'reduce_lanes("add") combines int32 or uint32, got float32',
                "`v += ctx.shuffle_xor(v.get(), mask)` for mask in 1, 2, 4, 8, 16",
            ),
        ),
        (
            "ctx.reduce_lanes('add', ctx.lane.to('bfloat16'))",
            ("ctx.shuffle_xor(v.get(), mask)", 'Convert the bfloat16 first: x.to("float32")'),
        ),
        ("ctx.reduce_lanes('max', ctx.lane.to('float16'))", ('Convert it: x.to("float32").',)),
        ("ctx.reduce_lanes('and', ctx.lane.to('float32'))", ('as x.bitcast("uint32")',)),
        ("ctx.reduce_lanes('or', ctx.lane > 1)", ("Write ctx.any_lane(cond).",)),
        ("ctx.reduce_lanes('and', ctx.lane > 1)", ("Write ctx.all_lanes(cond).",)),
        ("ctx.reduce_lanes('add', ctx.lane > 1)", ("ctx.select(cond, 1, 0)",)),
        ("ctx.shuffle(ctx.lane.to('bfloat16'), 0)", ('Convert it: x.to("float32").',)),
        ("ctx.shuffle(ctx.lane > 1, 0)", ("ctx.ballot(cond)",)),
        (
            "ctx.reduce_lanes('max', ctx.lane.to('int64'))",
            ('reduce_lanes("max") combines int32, uint32 or float32, got int64', '.to("int32")'),
        ),
        ("ctx.reduce_lanes('xor', ctx.lane > 3)", ("int32 or uint32, got bool",)),
        (
            "with ctx.when(ctx.lane < 16):\n    ctx.ballot(ctx.lane > 3)",
            ("ballot is executed by all lanes of a warp", "lets only some of them reach it"),
        ),
        (
            "with ctx.elect_one():\n    ctx.reduce_lanes('add', ctx.lane)",
            ("reduce_lanes is executed by all lanes of a warp", "the elect block"),
        ),
    ],
)
def test_a_misuse_is_refused(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(text)


def test_an_unknown_reduction_is_refused() -> None:
    with refused(tp.TraceError, "add", "'mul'"):
        role_from_text("ctx.reduce_lanes('mul', ctx.lane)")


@pytest.mark.parametrize("shared", [False, True])
def test_a_sum_that_does_not_fit_is_a_fault(shared: bool) -> None:
    def body(ctx: tp.Context, out: Any) -> None:
        value = ctx.block_id if shared else ctx.lane * 0
        ctx.store(out[ctx.lane], ctx.reduce_lanes("add", value + 2**26))

    with pytest.raises(tp.SimFault, match=r"int32 overflow: 2,147,483,648 is outside"):
        in_role(body).run()


def test_an_unsigned_sum_wraps_round() -> None:
    def body(ctx: tp.Context) -> Any:
        return ctx.reduce_lanes("add", (ctx.block_id + 2**27 + 1).to("uint32"))

    assert evaluated(body, np.uint32) == 32


def test_only_warps_that_execute_a_sum_have_to_fit() -> None:
    """The other warps of the warpgroup have numbers that would not."""
    out = np.zeros(128, np.int32)

    def body(ctx: tp.Context, out: Any) -> None:
        value = ctx.let(ctx.warp * 2**26 + ctx.lane)
        with ctx.when(ctx.warp == 0):
            ctx.store(out[ctx.thread], ctx.reduce_lanes("add", value))

    in_role(body, out, warpgroups=1).run()
    assert (out[:32] == 31 * 16).all()
    assert (out[32:] == 0).all()


@tp.kernel(grid=1)
def compacted(ctx: tp.Context, x: Any, out: Any, count: Any) -> None:
    """The positive numbers of a warp, beside each other: each lane counts those before it."""

    @ctx.role("one", warps=1)
    def one() -> None:
        value = ctx.load(x[ctx.lane])
        kept = ctx.ballot(value > 0)
        before = ctx.var(ctx.lane * 0)
        for lane in ctx.range(32):
            with ctx.when(lane < ctx.lane):
                before += ((kept >> lane.to("uint32")) & 1).to("int32")
        with ctx.when(value > 0):
            ctx.store(out[before.get()], value)
        total = ctx.reduce_lanes("add", (value > 0).to("int32"))
        with ctx.elect_one():
            ctx.store(count[0], total)


def test_a_ballot_says_which_lanes() -> None:
    x = np.random.default_rng(0).integers(-9, 9, 32).astype(np.int32)
    out, count = np.zeros(32, np.int32), np.zeros(1, np.int32)
    program = compacted.bind(x, out, count)
    program.run()
    assert out[: count[0]].tolist() == x[x > 0].tolist()
    assert program.check().ok


@tp.kernel(grid=1)
def known_to_one(ctx: tp.Context, out: Any, *, elected: bool) -> None:
    """Each lane has its number; one of them raises its own by 100."""

    @ctx.role("one", warps=1)
    def one() -> None:
        value = ctx.var(ctx.lane)
        with ctx.elect_one() if elected else ctx.when(ctx.lane == 0):
            value[...] = 100
        total = ctx.reduce_lanes("add", value.get())
        ctx.assert_(total == 31 * 16 + 100, "another lane was elected")  # noqa: PT009
        ctx.store(out[ctx.lane], total)


def test_each_elected_lane_is_tried_where_it_decides_a_sum() -> None:
    out = np.zeros(32, np.int32)
    verdict = known_to_one.bind(out, elected=True).check()
    assert verdict.verdict == "fault"
    assert "another lane was elected" in verdict.faults[0].message
    assert known_to_one.bind(out, elected=False).check().verdict == "verified"
