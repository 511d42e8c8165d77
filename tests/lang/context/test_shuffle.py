# ruff: noqa: PT009 (ctx.assert_ is an op of the kernel)
"""Values of other lanes of a warp: what is refused, and that who is elected matters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused


@tp.kernel()
def misused(ctx: tp.Context, out: Any, *, how: str) -> None:
    @ctx.role("one", warps=1)
    def one() -> None:
        match how:
            case "some lanes":
                with ctx.when(ctx.lane < 16):
                    ctx.shuffle(ctx.lane, 0)
            case "64 bits":
                ctx.shuffle(ctx.lane.to("int64"), 0)
            case "half a lane":
                ctx.shuffle_xor(ctx.lane, 0.5)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("some lanes", ("all lanes of a warp", "lets only some of them reach it")),
        ("64 bits", ("32 bits", "int64")),
        ("half a lane", ("number of a lane", "float32")),
    ],
)
def test_a_misuse_is_refused(how: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        misused.bind(np.zeros(1, np.int32), how=how)


@tp.kernel()
def broadcast(ctx: tp.Context, out: Any, *, elected: bool) -> None:
    """One lane knows a number; all take it from lane 0."""

    @ctx.role("one", warps=1)
    def one() -> None:
        known = ctx.var(ctx.lane * 0)
        with ctx.elect_one() if elected else ctx.when(ctx.lane == 0):
            known[...] = 7
        ctx.store(out[ctx.lane], ctx.shuffle(known.get(), 0))
        ctx.assert_(ctx.shuffle(known.get(), 0) == 7, "lane 0 does not know")


def test_the_elected_lane_need_not_be_the_one_that_is_read() -> None:
    out = np.zeros(32, np.int32)
    verdict = broadcast.bind(out, elected=True).check()
    assert verdict.verdict == "fault"
    assert "lane 0 does not know" in verdict.faults[0].message
    assert broadcast.bind(out, elected=False).check().verdict == "verified"
    broadcast.bind(out, elected=False).run()
    assert (out == 7).all()
