"""Operands of the wrong kind: one TraceError that says what belongs there."""

from __future__ import annotations

import pytest

import tilepipe as tp
from tests.lang.tracing import refused, role_from_text

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
        ("ctx.print('{:d}', 5)", ("0 places `{}` for 1 arguments",)),
    ],
)
def test_refused(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(text, warps="warpgroups=1")


def test_abs_of_a_scalar() -> None:
    assert "abs(" in str(role_from_text("ctx.store(out[0], abs(ctx.load(out[1])))"))
