"""Reductions of boxes and of fragments into global memory: what tracing refuses, which accesses of
other CTAs race with them, what strong loads find of them, and what is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import refuses
from tilepipe import cuda
from tilepipe.check import Verdict

BOX = (8, 8)


def boxed(dtype: Any, rows: int = 8) -> tp.TensorMap:
    return tp.tensor_map(np.zeros((rows, 8), dtype), box=BOX, swizzle=0)


@tp.kernel()
def stored(ctx: tp.Context, x: Any, *, body: Callable[..., object]) -> None:
    tile = ctx.smem(BOX, x.dtype, swizzle=0, name="tile")[0] if x.box else None

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        body(ctx, x, tile)


def box_by(operation: Any) -> Callable[..., object]:
    def body(ctx: Any, x: Any, tile: Any) -> None:
        with ctx.elect_one("role"):
            ctx.tma_store(x, (0, 0), tile, reduce=operation)

    return body


def fragment_by(operation: Any) -> Callable[..., object]:
    def body(ctx: Any, x: Any, tile: Any) -> None:
        f = ctx.fragment(shape=(64, 8), dtype="float32")
        f.fill(1)
        ctx.store_global(x, (0, 0), f, reduce=operation)

    return body


@pytest.mark.parametrize(
    ("body", "dtype", "words"),
    [
        (box_by("add"), np.float64, "reduces by 'add' elements of int32, uint32, uint64, float32"),
        (box_by("max"), np.float32, "'max' elements of int32, uint32, int64, uint64, float16"),
        (box_by("xor"), np.int64, "'xor' elements of int32, uint32, uint64; these are int64"),
        (box_by("mul"), np.int32, "one of 'add', 'min', 'max', 'and', 'or', 'xor'"),
        (fragment_by("max"), np.float32, "reduce"),
        (fragment_by("add"), tp.float8_e4m3.numpy, "are added to float32, float16, bfloat16"),
    ],
)
def test_what_tracing_refuses(body: Callable[..., object], dtype: Any, words: str) -> None:
    if body.__qualname__.startswith("box_by"):
        x: Any = tp.tensor_map(np.zeros((8, 16), dtype), box=BOX, swizzle=0)
    else:
        x = np.zeros((64, 8), dtype)
    refuses(lambda: stored.bind(x, body=body), tp.TraceError, words)


# -- races -----------------------------------------------------------------------------


@tp.kernel(grid=2)
def two_writers(ctx: tp.Context, x: Any, *, first: str, second: str) -> None:
    """Each CTA writes the same 64×8 part of x, in its own way."""
    tiles = ctx.smem((64, 8), x.dtype, swizzle=0, name="tiles")

    def write(way: str) -> None:
        f = ctx.fragment(shape=(64, 8), dtype="float32")
        f.fill(1)
        if way in ("reduced fragment", "fragment"):
            ctx.store_global(x, (0, 0), f, reduce="add" if way == "reduced fragment" else None)
            return
        if way == "atomic":
            ctx.atomic_add(x[ctx.thread % 64, 0], 1.0)
            return
        ctx.store(tiles[0], f)
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("role"):
            ctx.tma_store(x, (0, 0), tiles[0], reduce="add" if way == "reduced box" else None)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        with ctx.when(ctx.block_id == 0):
            write(first)
        with ctx.otherwise():
            write(second)


def two(first: str, second: str) -> tuple[tp.Program, np.ndarray]:
    x = np.zeros((64, 8), np.float32)
    return two_writers.bind(tp.tensor_map(x, box=(64, 8), swizzle=0), first=first, second=second), x


def decided(program: tp.Program) -> list[Verdict]:
    """What the checker says of a program, and of its PTX."""
    return [program.check(), program.ptx("sm_90a").check()]


WAYS = ("reduced box", "reduced fragment", "box", "fragment", "atomic")


@pytest.mark.slow
@pytest.mark.sampled(suite=3)
@pytest.mark.parametrize("first", WAYS[:2])
@pytest.mark.parametrize("second", WAYS)
def test_reductions_race_with_ordinary_writes_alone(first: str, second: str) -> None:
    program, x = two(first, second)
    ordinary = second in ("box", "fragment")
    for verdict in decided(program):
        assert [f.kind for f in verdict.faults] == ["RaceError"] * ordinary
    if not ordinary:
        program.run()
        assert (x[:, 1:] == (1 if second == "atomic" else 2)).all()
        assert (x[:, 0] == (3 if second == "atomic" else 2)).all()


def test_sums_of_floats_depend_on_the_order() -> None:
    for first in WAYS[:2]:
        program, _ = two(first, first)
        (advice,) = program.check().advice
        assert "add floating-point numbers in no fixed order" in advice
        assert ("tma_reduce_add" if "box" in first else "fragment_reduce_global_add") in advice


# -- what strong loads find ------------------------------------------------------------


@tp.kernel(grid=2, cooperative=True)
def counted(ctx: tp.Context, count: Any, seen: Any, *, fragment: bool, waits: bool) -> None:
    """CTA 1 adds 1 to `count`; CTA 0 looks at it, once or until it is there."""
    tile = ctx.smem(BOX, count.dtype, swizzle=0, name="tile")[0]

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        with ctx.when(ctx.block_id == 1):
            if fragment:
                f = ctx.fragment(shape=(64, 8), dtype="float32")
                f.fill(1)
                ctx.store_global(count, (0, 0), f, reduce="add")
            else:
                with ctx.when(ctx.thread < 64):
                    ctx.store(tile[ctx.thread // 8, ctx.thread % 8], 1.0)
                ctx.fence_proxy_async()
                ctx.sync_warpgroup()
                with ctx.elect_one("role"):
                    ctx.tma_store(count, (0, 0), tile, reduce="add")
                    ctx.tma_store_commit()
                    ctx.tma_store_wait(0)
        with ctx.otherwise(), ctx.elect_one("role"):
            if waits:
                ctx.wait_until(count[0, 0], lambda value: value > 0.0)
            else:
                found = ctx.load(count[0, 0], order="relaxed")
                with ctx.when(found > 0.0):
                    ctx.store(seen[0], 1)  # two CTAs write it, where the load comes second
        with ctx.when(ctx.block_id == 1), ctx.elect_one("role"):
            if not waits:
                ctx.store(seen[0], 2)


@pytest.mark.slow
@pytest.mark.parametrize("fragment", [False, True])
def test_a_strong_load_finds_reductions_of_both_orders(fragment: bool) -> None:
    def bound(waits: bool) -> tp.Program:
        count, seen = np.zeros((64, 8), np.float32), np.zeros(1, np.int32)
        box = tp.tensor_map(count, box=BOX, swizzle=0)
        return counted.bind(box, seen, fragment=fragment, waits=waits)

    for verdict in decided(bound(waits=False)):
        assert [f.kind for f in verdict.faults] == ["RaceError"]
    assert bound(waits=True).check().ok
    if not fragment:  # of PTX each red is a step of its own, so that there are many orders
        assert bound(waits=True).ptx("sm_90a").check().ok


# -- what is printed -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [tp.float32, tp.bfloat16])
def test_neighbouring_columns_are_one_reduction(dtype: tp.DType) -> None:
    pair = "add.v2.f32" if dtype is tp.float32 else "add.noftz.bf16x2"
    x = np.zeros((64, 8), dtype.numpy)
    known = stored.bind(tp.tensor_map(x, box=BOX, swizzle=0), body=fragment_by("add"))
    assert f"red.relaxed.gpu.global.{pair}" in cuda.source(known.kernel)
    unknown = stored.bind(x, body=fragment_by("add"))  # its rows may begin anywhere
    assert "red.relaxed.gpu.global.add" in cuda.source(unknown.kernel)
    assert pair not in cuda.source(unknown.kernel)
