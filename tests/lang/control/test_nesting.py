"""How deep loops and branches nest: what is traced is also run and printed, and the rest is
refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.lang.tracing.tracer import MAX_BLOCKS, MAX_LOOPS


def nested(kind: str, depth: int, *, group: bool = False) -> tuple[tp.Program, Any]:
    out = np.zeros(1, np.int32)

    @tp.kernel()
    def k(ctx: tp.Context, out: Any) -> None:
        def inside(levels: int, total: Any) -> None:
            if not levels:
                with ctx.elect_one("role"):
                    ctx.store(out[0], total + 1)
            elif kind == "range":
                for i in ctx.range(1):
                    inside(levels - 1, total + i)
            elif kind == "while":
                more = ctx.var(True)
                for _ in ctx.loop_while(more):
                    more.set(False)
                    inside(levels - 1, total)
            else:
                with ctx.when(ctx.block_id < 5 if kind == "uniform" else ctx.lane < 20):
                    inside(levels - 1, total)

        @ctx.role("one", **{"warpgroups" if group else "warps": 1})
        def one() -> None:
            inside(depth, ctx.block_id)

    return k.bind(out), out


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize(
    ("kind", "depth"),
    [
        ("range", MAX_LOOPS),
        ("while", MAX_LOOPS),
        ("uniform", MAX_BLOCKS - 3),
        ("lanes", MAX_BLOCKS - 3),
    ],
)
def test_the_deepest_runs_and_is_printed(kind: str, depth: int, group: bool) -> None:
    program, out = nested(kind, depth, group=group)
    program.run()
    assert out[0] == 1
    assert program.source().count("{") > depth
    assert program.check().ok


@pytest.mark.parametrize(
    ("kind", "depth", "words"),
    [
        ("range", MAX_LOOPS + 1, f"{MAX_LOOPS + 1} loops inside each other; at most {MAX_LOOPS}"),
        ("while", 21, f"{MAX_LOOPS + 1} loops inside each other"),
        (
            "uniform",
            200,
            (
                f"{MAX_BLOCKS + 1} blocks (loops, branches, elected lanes) inside each "
                f"other; at most {MAX_BLOCKS}"
            ),
        ),
    ],
)
def test_deeper_is_refused_where_it_is_written(kind: str, depth: int, words: str) -> None:
    with refused(tp.TraceError, words, "test_nesting.py"):
        nested(kind, depth)
