"""A file with a kernel and what makes programs of it, as somebody has it who types `tilepipe check
copying.py:small`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Call = Callable[..., tuple[int, str, str]]

KERNEL = '''"""Copies a matrix in tiles, through a ring."""

from typing import Optional

import numpy as np

import tilepipe as tp

TILE = 16


@tp.kernel(grid=lambda a: a.shape[0] // TILE)
def copy(ctx, a, out, *, stages, early):
    """out = a"""
    ring = tp.ProducerConsumerPipeline.allocate(ctx, stages, name="ring")
    tiles = ctx.smem((TILE, TILE), a.dtype, count=stages, name="tiles")
    columns = ctx.ceil_div(a.shape[1], TILE)
    row = ctx.block_id * TILE

    @ctx.role("load", warps=1)
    def load():
        for j in ctx.range(columns):
            with ring.produce() as stage, ctx.elect_one():
                stage.mbar().expect_bytes(tiles.tile_bytes)
                ctx.tma_load(a, (row, j * TILE), tiles[stage.index()], stage.mbar())

    @ctx.role("store", warps=1)
    def store():
        for j in ctx.range(columns):
            with ring.consume_explicit() as stage, ctx.elect_one():
                ctx.tma_store(out, (row, j * TILE), tiles[stage.index()])
                ctx.tma_store_commit()
                if not early:
                    ctx.tma_store_wait(0, read=True)
                stage.mbar().arrive()
        with ctx.elect_one():
            ctx.tma_store_wait(0)


def small(columns: int = 5, rows=2, *, stages: int = 2, early: bool = False,
    note: Optional[str] = None, scale: float = 1.0):
    a = (scale * np.ones((rows * TILE, columns * TILE))).astype(np.float16)
    boxed = [tp.tensor_map(x, box=(TILE, TILE)) for x in (a, np.zeros_like(a))]
    return copy.bind(*boxed, stages=stages, early=early)


def both(early: bool = False):
    return [small(1, early=early), small(5, early=early)]


right, wrong = small(), small(early=True)
several = [small(1), right]
empty, number = [], 3


def needs(stages, columns: int):
    return small(columns, stages=stages)


def shaped(like: np.ndarray):
    return small()


def raises(count: int = 0):
    return small()[1 // count]


def talks():
    print("building")
    return small()


def nothing():
    return [small(), 3]


@tp.kernel(grid=2)
def count(ctx, out, counter):
    work = tp.AtomicScheduler(ctx, counter, tiles=(5, 1))

    @ctx.role("schedule", warps=1)
    def schedule():
        work.schedule()

    @ctx.role("write", warps=1)
    def write():
        for tile in work:
            work.throttle_signal()
            ctx.store(out[tile.m * 32 + ctx.lane], 1)


def counted(start: int = 0):
    return count.bind(np.zeros(160, np.int32), np.full(1, start, np.int32))


def unbound():
    return copy


async def later():
    return small()


def passed_on():
    return later()


def hinted(columns, like: "Absent" = 2, note: Optional[str] = None, scale: "float | None" = None,
    kind=(1,)):
    return small(int(columns), like, note=note, scale=1.0 if scale is None else scale)
'''


def at(text: str, moved: int = 0) -> str:
    """Where that text is in the file."""
    (found,) = [i for i, line in enumerate(KERNEL.splitlines(), 1) if text in line]
    return f"copying.py:{found + moved}"


LOAD, READ = at("ctx.tma_load("), at("tma_store_wait(0, read=True)")


def report(told: tuple[int, str, str], code: int = 0) -> dict[str, Any]:
    assert told[0] == code, told[2]
    assert told[1].count("\n") == 1
    found: dict[str, Any] = json.loads(told[1])
    return found
