"""The text of a program."""

from __future__ import annotations

import numpy as np

import tilepipe as tp


def test_the_shared_memory_of_a_reduction_is_named() -> None:
    """Not spelled out with the place of the file that the kernel is in."""

    @tp.kernel(grid=1)
    def reduced(ctx: tp.Context, a: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
        @ctx.role("one", warpgroups=1)
        def one() -> None:
            ctx.store_global(out, (0,), ctx.load_global(a, (0, 0), (64, 16)).sum(axis=0))

    lines = str(reduced.bind(np.zeros((64, 16), np.float32), np.zeros(16, np.float32))).splitlines()
    (line,) = (x.split("#")[0].strip() for x in lines if "fragment_reduce_columns" in x)
    assert line == (
        "fragment_reduce_columns dst=column value=a_part op=add layout=wgmma partials=one_partials"
    )
    assert any(" one_partials: 1 × 1×64 float32" in x for x in lines)  # declared under that name
