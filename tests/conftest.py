"""Hypothesis profiles, no kernels that earlier runs compiled or tuned, which cases of a test there
are, whether a machine can run `gpu` tests, and when garbage is collected.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from math import ceil
from typing import Any, TypeVar
from zlib import crc32

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

SHARE = 25  # of the examples of `make test-all`, in percent: those of `make test`
on_ci = bool(os.environ.get("CI"))
settings.register_profile("every case", deadline=None, derandomize=on_ci)
settings.register_profile("suite", deadline=None, derandomize=on_ci, max_examples=SHARE)

# Hypothesis would parse every module of src and tests that is loaded, for constants to try: seconds
# in each process, and other examples where a run loads other modules.
providers._get_local_constants = lambda: providers._local_constants

# What was compiled before this run is compiled again; in one run the same source is compiled once,
# for all workers, which inherit the variable.
if "TILEPIPE_CACHE_DIR" not in os.environ:
    os.environ["TILEPIPE_CACHE_DIR"] = tempfile.mkdtemp(prefix="tilepipe-tests-")
    atexit.register(shutil.rmtree, os.environ["TILEPIPE_CACHE_DIR"], ignore_errors=True)
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


Case = TypeVar("Case")


def ranked(
    cases: list[Case], classes_of: Callable[[Case], Iterable[Hashable]], name: Callable[[Case], str]
) -> tuple[list[Case], int]:
    """The cases of a test in the order in which samples take them, and the number of those that
    show all classes: each case that is of a class of which none was before, then the rest by a
    hash of their names. So the order of the parameters chooses only which case shows a class, and a
    new case displaces at most one other.
    """
    shown: set[Hashable] = set()
    first: list[Case] = []
    rest: list[Case] = []
    for case in cases:
        classes = set(classes_of(case))
        (rest if classes <= shown else first).append(case)
        shown |= classes
    rest.sort(key=lambda case: crc32(name(case).encode()))
    return [*first, *rest], len(first)


def left_out(expression: str) -> frozenset[str]:
    """The marks with which a test cannot be chosen by `-m expression`, where that is a conjunction
    of marks that a test must not have; none for any other expression.
    """
    if re.fullmatch(r"\s*not\s+\w+(\s+and\s+not\s+\w+)*\s*", expression):
        return frozenset(re.findall(r"not\s+(\w+)", expression))
    return frozenset()


def pytest_configure(config: pytest.Config) -> None:
    """Before test modules are imported, whose settings are shares of the profile's."""
    few = "thorough" in left_out(config.option.markexpr)
    settings.load_profile("suite" if few else "every case")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects no garbage meanwhile, and never looks at the tests again, which live until the end:
    that is a quarter of the time that collecting them takes, and a tenth of the time of a run.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(5_000, 50, 1_000)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After the last test of a file, frees what is garbage and never looks at the rest again: the
    library's caches, which grow. Full collections in between, of which each takes up to a second,
    then come so seldom (above) that there are none.
    """
    yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Marks the cases of a test. Of what is `sampled(n, suite=m)`, all but an n-th of the cases is
    slow, and all but an m-th is for `make test-all`; a slow test is `sampled(suite=m)`. With
    `classes=`, a function from the parameters of a case to its classes, `make test` keeps one case
    of each class. Of any other test with more than a few cases, all but a sixteenth is slow.
    `ranked` says which.

    Cases that `-m` leaves out are not made: pytest would take seconds to make and deselect them.
    Where all are left out, the first remains, for pytest to deselect; of a test for a GPU where
    there is none, it remains to be skipped with the reason.
    """
    yield
    test, calls = metafunc.definition, metafunc._calls
    if not calls:
        return
    # a case that `make test` leaves out shows no class
    cases = sorted(calls, key=lambda case: "thorough" in {mark.name for mark in case.marks})
    sampled = test.get_closest_marker("sampled")
    options = sampled.kwargs if sampled else {}
    classes_of = options.get("classes", lambda **_: [None])
    order, classes = ranked(
        cases, lambda case: classes_of(**case.params), lambda case: f"{test.nodeid}[{case.id}]"
    )
    count = sampled.args[0] if sampled and sampled.args else None
    if count is not None and test.get_closest_marker("slow"):
        raise pytest.UsageError(
            f"{test.nodeid} is slow, so no case of it is quick: sampled(suite=m), without {count}"
        )
    quick = count or (EVERY if len(cases) > FEW else 1)
    for case in order[ceil(len(cases) / quick) :]:
        case.marks.append(pytest.mark.slow.mark)
    for case in order[max(ceil(len(cases) / options.get("suite", 1)), classes) :]:
        case.marks.append(pytest.mark.thorough.mark)
    unwanted = left_out(metafunc.config.option.markexpr)
    kept = [case for case in calls if unwanted.isdisjoint(mark.name for mark in case.marks)]
    listed = getattr(metafunc.config.option, "collectonly", False)
    if test.get_closest_marker("gpu") and missing_gpu() and not listed:
        kept = kept[:1]
    calls[:] = kept or calls[:1]


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(
    report: pytest.TestReport | pytest.CollectReport,
) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
    """Leaves out the keywords of a test, which nobody asks a report for: to write and to read them
    takes half the time that a worker needs to report a test.
    """
    data = yield
    if data is not None and "keywords" in data:
        data["keywords"] = {}
    return data


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what is marked `gpu` where there is none."""
    wanted = [item for item in items if item.get_closest_marker("gpu")]
    if wanted and missing_gpu():
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason=missing_gpu()))
