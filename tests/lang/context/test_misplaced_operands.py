"""Operands of the wrong kind: one TraceError that says what belongs there."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text

ACC = "acc = ctx.accumulator((64, 32))\nacc.fill(1.0)\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ACC + "acc += ctx.load(out[ctx.lane])", ("varies by lane", "fragment")),
        (ACC + "acc.fill(ctx.warp)", ("varies by warp", "fragment")),
        (ACC + "ctx.store(out, acc)", ("one element", "tensor 'out'", "tma_store")),
        ("ctx.fragment((64, 8))", ("fragment expression", "shape=(m, n)")),
        ("ctx.accumulator(64)", ("(rows, cols)", "got 64")),
        ("ctx.fragment(shape=(64, 8.0))", ("(rows, cols)", "(64, 8.0)")),
        ("ctx.print(5)", ("text with one {}", "got 5")),
        ("ctx.let(ctx.lane, 5)", ("ctx.let: name= takes a text", "got 5")),
        ("ctx.print('{:d}', 5)", ("0 places `{}` for 1 arguments",)),
    ],
)
def test_refused(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(text, warps="warpgroups=1")


def test_abs_of_a_scalar() -> None:
    assert "abs(" in str(role_from_text("ctx.store(out[0], abs(ctx.load(out[1])))"))


def test_names_are_strings() -> None:
    def role(ctx: tp.Context) -> None:
        ctx.role(5, warps=1)(lambda: None)  # type: ignore[arg-type]

    def tile(ctx: tp.Context) -> None:
        ctx.smem((8, 8), tp.float32, name=None)  # type: ignore[arg-type]

    def barrier(ctx: tp.Context) -> None:
        tp.SharedMemBarrier.allocate(ctx, 1, 5)  # type: ignore[arg-type]

    for body, words in (
        (role, "ctx.role: name= takes a text, got 5"),
        (tile, "got None"),
        (barrier, "SharedMemBarrier.allocate: name= takes a text, got 5"),
    ):
        with refused(tp.TraceError, words):
            tp.kernel()(body).bind()


def test_coordinates_are_a_sequence() -> None:
    def body(ctx: tp.Context, x: object) -> None:
        tile, bar = ctx.smem((8, 8), tp.float32)[0], tp.SharedMemBarrier.allocate(ctx, 1)

        @ctx.role("load", warps=1)
        def load() -> None:
            with ctx.elect_one():
                bar.expect_bytes(tile.nbytes)
                ctx.tma_load(x, 0, tile, bar)  # type: ignore[arg-type]

    with refused(tp.TraceError, "takes 2 coordinates, outermost first, got 0"):
        tp.kernel()(body).bind(tp.tensor_map(np.zeros((8, 8), np.float32), box=(8, 8)))
