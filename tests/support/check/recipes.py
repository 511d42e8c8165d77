"""Instances for campaigns: functions of a module, as another process can call them."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import tilepipe as tp
from tests.support.check.three_roles import Shape, program
from tilepipe.check.parallel import Instance


def three_roles(k_steps: int) -> tp.Program:
    return program(Shape(k_steps=k_steps, tiles=1))


@tp.kernel()
def _unwritten(ctx: tp.Context, out: Any) -> None:
    tile = ctx.smem((1, 32), tp.int32, swizzle=0, name="tile")

    @ctx.role("read", warps=1)
    def read() -> None:
        ctx.store(out[ctx.lane], ctx.load(tile[0][0, ctx.lane]))


def poison() -> tp.Program:
    """Reads what nothing has written."""
    return _unwritten.bind(np.zeros(32, np.int32))


@tp.kernel(grid=lambda out: out.shape[0])
def _drawn(ctx: tp.Context, count: Any, out: Any) -> None:
    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            ctx.store(out[ctx.atomic_add(count[0], 1)], ctx.block_id)


def drawn(ctas: int = 2) -> tp.Program:
    """Each CTA draws a number; who gets which is explored."""
    return _drawn.bind(np.zeros(1, np.int32), np.zeros(ctas, np.int32))


def misbound() -> tp.Program:
    """A BindError: of an argument that is no array."""
    return _unwritten.bind("out")


def divides(by: int = 0) -> tp.Program:
    """An error that is not tilepipe's."""
    return three_roles(1 // by)


def ends(how: str) -> tp.Program:
    """Ends the process that it is called in."""
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def sleeps(folder: str, seconds: float = 60.0) -> tp.Program:
    """Notes its process in a file of `folder`, and takes its time."""
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(seconds)
    return three_roles(1)


@tp.kernel()
def _asks(ctx: tp.Context, *, count: int, wrong: int) -> None:
    """One warp asks which of `count` barriers the other has arrived on; which of them, as bits,
    must not be `wrong`.
    """
    bars = [tp.SharedMemBarrier.allocate(ctx, 1, f"bar{i}") for i in range(count)]

    @ctx.role("arrive", warps=1)
    def arrive() -> None:
        for bar in bars:
            with ctx.elect_one():
                bar.arrive()

    @ctx.role("ask", warps=1)
    def ask() -> None:
        seen = [
            ctx.let(ctx.select(bar.try_wait(0), 1 << i, 0), f"seen{i}")
            for i, bar in enumerate(bars)
        ]
        for bar in bars:
            bar.wait(0)
        ctx.assert_(sum(seen[1:], seen[0]) != wrong, "not this answer")  # noqa: PT009


def asks(count: int, wrong: int = -1) -> tp.Program:
    """2 ** count answers, in as many executions; one of them may be wrong."""
    return _asks.bind(count=count, wrong=wrong)


def ends_elsewhere(count: int) -> tp.Program:
    """Ends every process but the first."""
    if multiprocessing.parent_process() is not None:
        os._exit(7)
    return asks(count)


def raises_elsewhere(count: int) -> tp.Program:
    """Cannot be made in any process but the first."""
    if multiprocessing.parent_process() is not None:
        raise tp.BindError("not here")
    return asks(count)


def good(count: int) -> list[Instance]:
    return [(f"{k} K steps", functools.partial(three_roles, k)) for k in range(1, count + 1)]
