"""What messages call a fragment: the variable that it is assigned to, and where it was made."""

from __future__ import annotations

import re

import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text

START = """
a = ctx.fragment(shape=(64, 32))
a.fill(0)
gate, up = ctx.accumulator((64, 8)), ctx.accumulator((64, 8))
p, q, r = a + 1, a + 2, ctx.fragment(a)
made = [ctx.fragment(a), ctx.fragment(a)]
first = second = ctx.fragment(a)
total = ctx.fragment(a + a.sum())
"""


@pytest.mark.parametrize(
    ("fragment", "words"),
    [
        *(("a", "'a' (made at "), ("up", "'up' (made at "), ("r", "'r' (made at ")),
        *(("first", "'first' (made at "), ("total", "'total' (made at ")),
        *(("gate", "'acc' (made at "), ("made[1]", "'frag_3' (made at ")),
    ],
)
def test_the_variable_that_it_is_assigned_to(fragment: str, words: str) -> None:
    with refused(tp.TraceError, f"this expression reads {words}", "written after"):
        role_from_text(
            f"{START}x = {fragment} + 1\n{fragment}.fill(0)\nctx.fragment(x)",
            warps="warpgroups=1",
        )


def test_of_a_run() -> None:
    @tp.kernel()
    def kernel(ctx: tp.Context) -> None:
        @ctx.role("one", warpgroups=1)
        def one() -> None:
            up = ctx.fragment(shape=(64, 8))
            ctx.fragment(up + 1)

    line = kernel.function.__code__.co_firstlineno + 4
    words = f"reads fragment 'up' (made at test_names_in_messages.py:{line}), of which"
    with pytest.raises(tp.PoisonError, match=re.escape(words)):
        kernel.bind().run()
