"""What members refuse by their annotations, and what they make plain:
`lang.arguments.member_checks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused

ordered: Any = tp.OrderedBarrier
X = np.zeros((64, 64), np.float32)


def traced(
    set_up: Callable[[tp.Context, Any], object],
    role: Callable[[tp.Context, Any, Any], object] = lambda *_: None,
) -> tp.Program:
    @tp.kernel()
    def k(ctx: tp.Context, x: Any) -> None:
        made = set_up(ctx, x)

        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                role(ctx, x, made)

    return k.bind(tp.tensor_map(X, box=(8, 32), swizzle=0))


def tiles(ctx: tp.Context, x: Any) -> Any:
    del x
    return ctx.smem((8, 32), "float32", count=2, swizzle=0), tp.SMemArray(
        ctx, tp.SharedMemBarrier, 2, "bars"
    )


def nothing(*_: object) -> None:
    pass


@pytest.mark.parametrize(
    ("set_up", "role", "words"),
    [
        (
            lambda ctx, x: ordered(ctx, 2, name=2),
            nothing,
            ["OrderedBarrier: name= takes a text, got 2", "test_member_checks.py"],
        ),
        (
            lambda ctx, x: ordered(3, 2),
            nothing,
            ["OrderedBarrier: ctx= takes the kernel's ctx, got 3"],
        ),
        (
            lambda ctx, x: ctx.smem((8, 8), "float32", count=2**34),
            nothing,
            ["ctx.smem: count= takes an integer of 32 bits", "17179869184"],
        ),
        (lambda ctx, x: ctx.smem((8, 8), None), nothing, ["unknown dtype None"]),
        (
            lambda ctx, x: ctx.role("a", warps=2**31),
            nothing,
            ["ctx.role: warps= takes an integer of 32 bits", "2147483648"],
        ),
        (
            lambda ctx, x: ctx.role("a\nb", warps=1),
            nothing,
            ["ctx.role: a name is a text of one line", "'a\\nb'"],
        ),
        (
            lambda ctx, x: ctx.smem((8, 8), "float32", name=" "),
            nothing,
            ["ctx.smem: a name is a text of one line", "' '"],
        ),
        (
            tiles,
            lambda ctx, x, t: ctx.tma_load(x, (0, 0), t[0], t[1][0]),
            ["one tile of shared memory", "take one: `tiles[i]`"],
        ),
        (
            tiles,
            lambda ctx, x, t: ctx.tma_load(x, (0, 0), t[0][0], t[1]),
            ["mbar= takes a barrier", "take one: `barriers[i]`"],
        ),
        (
            tiles,
            lambda ctx, x, t: ctx.tma_load(None, (0, 0), t[0][0], t[1][0]),
            ["tensor= takes a tensor argument of the"],
        ),
        (
            tiles,
            lambda ctx, x, t: ctx.tma_load(x, (0, 0), t[0][0], None),
            ["ctx.tma_load: mbar= takes a barrier, got None"],
        ),
        (
            tiles,
            lambda ctx, x, t: ctx.tma_store_wait(0, read="yes"),
            ["ctx.tma_store_wait: read= takes True or False, got 'yes'"],
        ),
    ],
)
def test_refused(set_up: Any, role: Any, words: list[str]) -> None:
    with refused(tp.TraceError if "unknown dtype None" not in words else tp.BindError, *words):
        traced(set_up, role)


def test_a_members_own_words_are_kept() -> None:
    """Where a member has an answer of its own, that is what is said."""
    with refused(tp.TraceError, "f.load(tile)"):
        traced(tiles, lambda ctx, x, t: ctx.load(t[0][0]))


def test_scalars_of_numpy_are_as_good_as_pythons() -> None:
    i = np.int64

    def set_up(ctx: tp.Context, x: Any) -> Any:
        made = ctx.smem((i(8), i(32)), np.float32, count=i(2), swizzle=i(0))  # type: ignore[arg-type]
        ring = tp.ProducerConsumerPipeline.allocate(
            ctx,
            i(2),  # type: ignore[arg-type]
            producer_arrivals=i(1),  # type: ignore[arg-type]
            consumer_arrivals=i(1),  # type: ignore[arg-type]
        )
        assert type(ring.num_stages) is int
        return made, tp.SMemArray(ctx, tp.SharedMemBarrier, i(2), "bars")  # type: ignore[call-overload]

    def role(ctx: tp.Context, x: Any, made: Any) -> None:
        ctx.tma_store_wait(i(0), read=np.True_)  # type: ignore[arg-type]

    program = traced(set_up, role)
    assert type(program.kernel.buffers[0].count) is int
    assert type(program.kernel.buffers[0].rows) is int
    assert "TmaStoreWait" in {
        type(op).__name__
        for op in program.kernel.roles[0].body.ops[0].body.ops  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize("stages", ["2", 2.0])
def test_a_number_of_stages_that_is_no_int_says_so(stages: object) -> None:
    payload = tp.OperandTilePayload(a=tp.TileOperand(tp.bfloat16, (64, 64)))

    @tp.kernel()
    def kernel(ctx: tp.Context) -> None:
        tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=stages)  # type: ignore[arg-type]

    words = (
        rf"num_group_stages is an int, 1 or more.*got '?2(\.0)?'?, of type {type(stages).__name__}"
    )
    with pytest.raises(tp.TraceError, match=words):
        kernel.bind()
