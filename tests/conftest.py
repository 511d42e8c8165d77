"""Hypothesis profiles, no cache of compiled or tuned kernels, what a quick run leaves out, and
whether a machine can run `gpu` tests.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections import Counter

import pytest
from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# what a test compiles is compiled then, and stays with it
os.environ.setdefault("TILEPIPE_CACHE_DIR", "off")
os.environ["TILEPIPE_TUNED"] = "off"  # what somebody has tuned on this machine changes no test


FEW, EVERY = 3, 8  # a quick run takes all of a few cases, and every eighth of more


@functools.cache
def missing_gpu() -> str:
    """Why no kernel can be launched here; empty where one can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver (libcuda.so.1) on this machine"
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return "the CUDA driver does not initialise"
    return "" if count.value else "the CUDA driver finds no device"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what is marked `gpu` where there is none. Of what is `sampled(n, suite=m)`, all but
    every n-th case is slow, and all but every m-th is for `make test-all`. Of any other test with
    more than a few cases, all but every eighth is slow.
    """
    names = [item.nodeid.split("[")[0] for item in items]
    numbers = Counter(names)
    cases: Counter[str] = Counter()
    for name, item in zip(names, items, strict=True):
        sampled = item.get_closest_marker("sampled")
        quick = sampled.args[0] if sampled else EVERY if numbers[name] > FEW else 1
        if cases[name] % quick:
            item.add_marker(pytest.mark.slow)
        if sampled and cases[name] % sampled.kwargs.get("suite", 1):
            item.add_marker(pytest.mark.thorough)
        cases[name] += 1
    wanted = [item for item in items if item.get_closest_marker("gpu")]
    if wanted and missing_gpu():
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason=missing_gpu()))
