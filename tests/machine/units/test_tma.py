"""Where a TMA copy may start, as measured on an H200: anywhere else the GPU raises an illegal
instruction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp


@tp.kernel()
def moved(ctx: tp.Context, a: Any, out: Any, row: Any, col: Any, to_row: Any, to_col: Any) -> None:
    tile = ctx.smem((16, 16), a.dtype, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("copy", warps=1)
    def copy() -> None:
        with ctx.elect_one():
            full.expect_bytes(tile.nbytes)
            ctx.tma_load(a, (row, col), tile, full)
        full.wait(0)
        with ctx.elect_one():
            ctx.tma_store(out, (to_row, to_col), tile)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


def run(*where: int) -> None:
    a, out = np.ones((40, 32), np.float32), np.zeros((40, 32), np.float32)
    moved.bind(tp.tensor_map(a, box=(16, 16)), tp.tensor_map(out, box=(16, 16)), *where).run()


@pytest.mark.parametrize(
    "where",
    [(0, 0, 0, 0), (3, 4, 7, 8), (-8, -4, 30, 16), (38, 28, 39, 28), (100, -40, 8, 0)],
    ids=str,
)
def test_legal(where: tuple[int, ...]) -> None:
    run(*where)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (
            (0, 5, 0, 0),
            (
                "tma_load",
                "'a'",
                "element 5, 5 × 4 = 20 bytes",
                "multiple of 4 elements",
                "test_tma.py:",
            ),
        ),
        ((0, 0, 0, 9), ("tma_store", "'out'", "element 9, 9 × 4 = 36 bytes")),
        ((0, 0, -8, 0), ("tma_store", "'out'", "not start before it", "(-8, 0)")),
        ((0, 0, 0, -4), ("tma_store", "not start before it", "(0, -4)")),
    ],
    ids=str,
)
def test_refused_by_the_simulator(where: tuple[int, ...], words: tuple[str, ...]) -> None:
    with pytest.raises(tp.SimFault) as caught:
        run(*where)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("at", "words"), [((0, 3), "element 3, 3 × 2 = 6 bytes"), ((-1, 0), "not start before it")]
)
def test_constants_are_refused_while_tracing(at: tuple[int, int], words: str) -> None:
    @tp.kernel()
    def stored(ctx: tp.Context, out: Any) -> None:
        tile = ctx.smem((16, 16), out.dtype, name="tile")[0]

        @ctx.role("store", warps=1)
        def store() -> None:
            with ctx.elect_one():
                ctx.tma_store(out, at, tile)

    with pytest.raises(tp.TraceError, match=words):
        stored.bind(tp.tensor_map(np.zeros((32, 32), np.float16), box=(16, 16)))
