"""Boxes that several copies of one tensor bring: a tile may hold a part of the tensor until the
kernel writes to it, and what it writes reaches no other tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp

ROUNDS = 4  # the first copy of a box lends it, the second keeps it in memory of its own


@tp.kernel(grid=ROUNDS)
def scribbled(ctx: tp.Context, a: Any, out: Any) -> None:
    """Each CTA loads the same box twice, writes into one of the tiles, and stores both."""
    tiles = ctx.smem((16, 16), a.dtype, count=2, name="tile")
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("copy", warps=1)
    def copy() -> None:
        with ctx.elect_one():
            full.expect_bytes(2 * tiles[0].nbytes)
            for number in range(2):
                ctx.tma_load(a, (0, 0), tiles[number], full)
        full.wait(0)
        with ctx.elect_one():
            ctx.store(tiles[0][3, 5], -1)
            ctx.fence_proxy_async()
            for number in range(2):
                ctx.tma_store(out, (16 * (2 * ctx.block_id + number), 0), tiles[number])
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
def test_a_write_to_a_loaded_tile_changes_no_other(dtype: type) -> None:
    a: npt.NDArray[Any] = np.arange(16 * 16).reshape(16, 16).astype(dtype)
    out: npt.NDArray[Any] = np.zeros((16 * 2 * ROUNDS, 16), dtype)
    before = a.copy()
    scribbled.bind(tp.tensor_map(a, box=(16, 16)), tp.tensor_map(out, box=(16, 16))).run()
    np.testing.assert_array_equal(a, before)
    written = before.copy()
    written[3, 5] = -1
    for number, got in enumerate(out.reshape(2 * ROUNDS, 16, 16)):
        np.testing.assert_array_equal(got, before if number % 2 else written)
