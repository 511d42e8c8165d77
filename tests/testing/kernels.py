"""Kernels for the tests of `tilepipe.testing`: one that is right, and ones that are not, or not in
every order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp

STAGES = 2


@tp.kernel(grid=1)
def doubled(ctx: tp.Context, a: Any, out: Any, *, early: bool = False, scale: float = 2.0) -> None:
    """out = scale · a, rows of 32, through a ring of two slots. `early`: a slot is freed before it
    is read.
    """
    full = tp.SMemArray(ctx, tp.SharedMemBarrier, STAGES, "full")
    free = tp.SMemArray(ctx, tp.SharedMemBarrier, STAGES, "free")
    for s in range(STAGES):
        full[s].init(32)
        free[s].init(32)
    slots = ctx.smem((1, 32), tp.float32, count=STAGES, swizzle=0, name="slots")

    @ctx.role("fill", warps=1)
    def fill() -> None:
        for i in ctx.range(a.shape[0]):
            slot, lap = i % STAGES, i // STAGES
            free[slot].wait((lap + 1) % 2)
            ctx.store(slots[slot][0, ctx.lane], ctx.load(a[i, ctx.lane]))  # <fills>
            full[slot].arrive()

    @ctx.role("use", warps=1)
    def use() -> None:
        for i in ctx.range(a.shape[0]):
            slot, lap = i % STAGES, i // STAGES
            full[slot].wait(lap % 2)
            if early:
                free[slot].arrive()
            ctx.store(out[i, ctx.lane], scale * ctx.load(slots[slot][0, ctx.lane]))  # <uses>
            if not early:
                free[slot].arrive()


@tp.kernel(grid=1)
def stuck(ctx: tp.Context, out: Any) -> None:
    """Waits for what nobody does."""
    never = tp.SharedMemBarrier.allocate(ctx, 1, "never")

    @ctx.role("all", warps=1)
    def everyone() -> None:
        never.wait(0)  # <stuck>
        ctx.store(out[ctx.lane], 1)


@tp.kernel(grid=lambda a: a.shape[0])
def drawn(ctx: tp.Context, a: Any, out: Any, counter: Any) -> None:
    """CTAs draw tickets: out[ticket] is the CTA that has it, which depends on the order."""

    @ctx.role("all", warps=1)
    def everyone() -> None:
        with ctx.elect_one():
            ticket = ctx.atomic_add(counter[0], 1)
            ctx.store(out[ticket], ctx.block_id)


@tp.kernel(grid=1)
def split(ctx: tp.Context, a: Any, low: Any, high: Any, *, up: int) -> None:
    """low = a - up, high = a + up, and a itself is set to 0."""

    @ctx.role("all", warps=1)
    def everyone() -> None:
        x = ctx.let(ctx.load(a[ctx.lane]), "x")
        ctx.store(low[ctx.lane], x - up)
        ctx.store(high[ctx.lane], x + up)
        ctx.store(a[ctx.lane], 0)


def bind_doubled(
    rows: int = 5, **static: Any
) -> tuple[tp.Program, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(program, a, out)."""
    a = np.random.default_rng(rows).standard_normal((rows, 32)).astype(np.float32)
    out = np.zeros_like(a)
    return doubled.bind(a, out, **static), a, out


def bind_drawn(ctas: int = 4) -> tuple[tp.Program, np.ndarray[Any, Any]]:
    """(program, out)."""
    out = np.zeros(ctas, np.int32)
    return drawn.bind(np.zeros(ctas, np.int32), out, np.zeros(1, np.int32)), out


def bind_split() -> tp.Program:
    """On a = 0 .. 31."""
    a = np.arange(32, dtype=np.int32)
    return split.bind(a, np.zeros(32, np.int32), np.zeros(32, np.int32), up=3)
