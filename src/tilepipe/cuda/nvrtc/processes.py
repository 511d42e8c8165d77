"""NVRTC in processes of its own: in one process it compiles one program after another, whatever the
number of threads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

Compiler = Callable[[str, str, str, tuple[str, ...]], tuple[str, bytes]]

_pool: ProcessPoolExecutor | None = None  # of all threads while `side_by_side` lasts


def processors() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def side_by_side(count: int) -> Iterator[int]:
    """While it lasts, what threads of this process compile is compiled in up to `count` processes,
    as many as there are processors; how many it is is what it gives.
    """
    global _pool
    workers = min(count, processors())
    if workers < 2 or _pool is not None:
        yield max(workers, 1)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        _pool = pool
        try:
            yield workers
        finally:
            _pool = None


def compiled(
    nvrtc: Compiler, code: str, filename: str, emit: str, given: tuple[str, ...]
) -> tuple[str, bytes]:
    """The result of `nvrtc`, called in one of the processes, or here where there are none."""
    pool = _pool
    if pool is None:
        return nvrtc(code, filename, emit, given)
    try:
        return pool.submit(nvrtc, code, filename, emit, given).result()
    except BrokenProcessPool:  # one was killed, as for want of memory
        return nvrtc(code, filename, emit, given)
