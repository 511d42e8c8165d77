"""The bad values: one list for every parameter of every public callable."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp

MARKUP = "a[red]b[/]"


@functools.cache
def others() -> dict[str, Any]:
    """A tensor, a tile, a barrier, a value, a pipeline and the ctx of another kernel."""
    kept: dict[str, Any] = {}

    @tp.kernel()
    def other(ctx: tp.Context, t: Any) -> None:
        kept.update(
            tensor=t,
            tiles=ctx.smem((64, 64), "bfloat16"),
            barrier=tp.SharedMemBarrier.allocate(ctx),
            ctx=ctx,
        )
        kept.update(
            tile=kept["tiles"][0],
            value=t.shape[0],
            pipeline=tp.ProducerConsumerPipeline.allocate(ctx, 2),
        )

        @ctx.role("one", warps=1)
        def one() -> None:
            for _ in ctx.range(2):
                kept["pipeline"].producer_step()
            ring = kept["pipeline"]
            ring.producer_signal_and_step()
            ring.consumer_signal_and_step()

    other.bind(tp.tensor_map(np.zeros((64, 64), np.float32), box=(64, 32)))
    return kept


def _of(name: str) -> Callable[[], Any]:
    return lambda: others()[name]


def a_function() -> None:
    """Nothing."""


# Scalars of NumPy, and what they are as good as.
AS_GOOD_AS = {"np.int64(3)": "3", "np.float32(2)": "2.0", "np.True_": "True"}
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "-1": lambda: -1,
    "0": lambda: 0,
    "2**31": lambda: 2**31,
    "2**34": lambda: 2**34,
    "2**70": lambda: 2**70,
    "1.5": lambda: 1.5,
    "nan": lambda: math.nan,
    "True": lambda: True,
    "text": lambda: "x",
    "empty text": lambda: "",
    "two lines": lambda: "a\nb",
    "markup": lambda: MARKUP,
    "bytes": lambda: b"x",
    "()": lambda: (),
    "[]": list,
    "{}": dict,
    "object": object,
    "3": lambda: 3,
    "2.0": lambda: 2.0,
    "np.int64(3)": lambda: np.int64(3),
    "np.float32(2)": lambda: np.float32(2),
    "np.True_": lambda: np.True_,
    "function": lambda: a_function,
    "class": lambda: object,
    "array": lambda: np.zeros((4, 4), np.float32),
    "huge tuple": lambda: (1,) * 10_000,
    "floats": lambda: (1.5, 2.5),
    "other tensor": _of("tensor"),
    "other tile": _of("tile"),
    "other tiles": _of("tiles"),
    "other barrier": _of("barrier"),
    "other value": _of("value"),
    "other pipeline": _of("pipeline"),
    "other ctx": _of("ctx"),
}
