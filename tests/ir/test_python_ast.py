"""Syntax trees that several threads ask for."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tilepipe.ir.python_ast import parsed

SOURCE = "".join(f"def f{i}(x):\n    return [x + {i}, (x, {{{i}: x}})]\n" for i in range(300))


class Finalized:
    """An object whose finalizer runs Python code, where another thread may be scheduled."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


@pytest.mark.slow
def test_threads_parse_at_the_same_time() -> None:
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(100)

    def parse(_: int) -> int:
        for _ in range(50):
            Finalized()
        return len(parsed(SOURCE).body)

    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(parse, range(24))) == [300] * 24
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
