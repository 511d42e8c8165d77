"""Instances for campaigns: functions of a module, as another process can call them."""

from __future__ import annotations

import functools
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import tilepipe as tp
from tests.check.three_roles import Shape, program
from tilepipe.check.campaign import Instance


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


def good(count: int) -> list[Instance]:
    return [(f"{k} K steps", functools.partial(three_roles, k)) for k in range(1, count + 1)]
