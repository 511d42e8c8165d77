"""Hypothesis profiles, no cache of compiled or tuned kernels, what a quick run leaves out, and
whether a machine can run `gpu` tests.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Hashable, Iterable
from math import ceil
from zlib import crc32

import pytest
from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# what a test compiles is compiled then, and stays with it
os.environ.setdefault("TILEPIPE_CACHE_DIR", "off")
os.environ["TILEPIPE_TUNED"] = "off"  # what somebody has tuned on this machine changes no test


FEW, EVERY = 2, 16  # a quick run takes all of a few cases, and a sixteenth of more


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


def ranked(
    cases: list[pytest.Item], classes_of: Callable[..., Iterable[Hashable]]
) -> tuple[list[pytest.Item], int]:
    """The cases of a test in the order in which samples take them, and the number of those that
    show all classes: each case that is of a class of which none was before, then the rest by a
    hash of their ids. So the order of the parameters chooses only which case shows a class, and a
    new case displaces at most one other.
    """
    shown: set[Hashable] = set()
    first: list[pytest.Item] = []
    rest: list[pytest.Item] = []
    for case in cases:
        classes = set(classes_of(**(case.callspec.params if hasattr(case, "callspec") else {})))
        (rest if classes <= shown else first).append(case)
        shown |= classes
    rest.sort(key=lambda case: crc32(case.nodeid.encode()))
    return [*first, *rest], len(first)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what is marked `gpu` where there is none. Of what is `sampled(n, suite=m)`, all but
    an n-th of the cases is slow, and all but an m-th is for `make test-all`; with `classes=`, a
    function from the parameters of a case to its classes, `make test` keeps one case of each class.
    Of any other test with more than a few cases, all but a sixteenth is slow. `ranked` says which.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.split("[")[0], []).append(item)
    for cases in tests.values():
        # a case that `make test` leaves out shows no class
        cases.sort(key=lambda case: case.get_closest_marker("thorough") is not None)
        sampled = cases[0].get_closest_marker("sampled")
        options = sampled.kwargs if sampled else {}
        order, classes = ranked(cases, options.get("classes", lambda **_: [None]))
        quick = sampled.args[0] if sampled else EVERY if len(cases) > FEW else 1
        for case in order[ceil(len(cases) / quick) :]:
            case.add_marker(pytest.mark.slow)
        for case in order[max(ceil(len(cases) / options.get("suite", 1)), classes) :]:
            case.add_marker(pytest.mark.thorough)
    wanted = [item for item in items if item.get_closest_marker("gpu")]
    if wanted and missing_gpu():
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason=missing_gpu()))
