"""Arrays that a kernel both reads and writes, such as counters: a run moves what the next one
starts from, and a check is about what they held before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import Launch, TensorArg

Array = np.ndarray[Any, Any]
Moved = dict[str, tuple[Array, Array]]  # name -> (before the first run, after the last one)


@contextmanager
def remembered(launch: Launch, moved: Moved) -> Iterator[None]:
    """Adds to `moved` what a run inside the block does to such arrays, also where it fails."""
    before = {name: array.copy() for name, array in _counters(launch).items()}
    try:
        yield
    finally:
        for name, array in _counters(launch).items():
            known = moved.get(name)
            first = (
                known[0]
                if known is not None and _same_bytes(before[name], known[1])
                else before[name]
            )
            moved[name] = first, array.copy()


def as_bound(launch: Launch, moved: Moved) -> Launch:
    """The launch with such arrays as they were before the runs that moved them, unless they have
    been changed since.
    """
    args = dict(launch.args)
    for name, array in _counters(launch).items():
        known, arg = moved.get(name), args[name]
        if known is not None and isinstance(arg, TensorArg) and _same_bytes(array, known[1]):
            args[name] = TensorArg(known[0], arg.shape)
    return replace(launch, args=args)


def _counters(launch: Launch) -> dict[str, Array]:
    """The NumPy arguments that the kernel both reads and writes."""
    written, read = tensor_uses(launch.kernel)
    args = {name: getattr(launch.args.get(name), "array", None) for name in written & read}
    return {name: array for name, array in args.items() if isinstance(array, np.ndarray)}


def _same_bytes(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()
