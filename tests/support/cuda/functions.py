"""A kernel for each function that is printed, out of many."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tilepipe import cuda
from tilepipe.ir.program import Kernel

_FUNCTIONS = re.compile(r"(?:__forceinline__|__launch_bounds__\(\d+, \d+\)) [^(\n]*?(\w+)\(")


def for_each_function(cases: Iterable[Any], arch: str) -> Iterator[tuple[str, Kernel]]:
    """Of cases of `tests.cases`, the names and kernels of those that print a kernel, a wrapper or a
    role that none before them does.
    """
    printed: set[str] = set()
    for case in cases:
        kernel = case.make(np.random.default_rng(0))[0].kernel
        functions = set(_FUNCTIONS.findall(cuda.compile(kernel, arch, emit="cuda").source))
        if not functions <= printed:
            printed |= functions
            yield case.name, kernel
