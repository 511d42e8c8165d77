"""While clusters run, BLAS has one thread: the matrices are tiles."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from threadpoolctl import (  # type: ignore[import-untyped]
    ThreadpoolController,
    threadpool_info,
    threadpool_limits,
)

from tilepipe.machine import clusters


def threads() -> set[int]:
    return {found["num_threads"] for found in threadpool_info()}


def test_one_meanwhile_and_as_many_as_before_then() -> None:
    with threadpool_limits(limits=2):
        assert threads() == {2}
        with clusters.quiet_numbers():
            assert threads() == {1}
        assert threads() == {2}


def test_libraries_are_looked_for_when_a_module_may_have_brought_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []

    class Controller(ThreadpoolController):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            looked.append(1)

    monkeypatch.setattr(clusters, "ThreadpoolController", Controller)
    clusters._threads.cache_clear()
    for count in (1, 1):
        with clusters.quiet_numbers():
            assert len(looked) == count
    monkeypatch.setitem(sys.modules, "brings_another_blas", ModuleType("brings_another_blas"))
    with clusters.quiet_numbers():
        assert len(looked) == 2
    clusters._threads.cache_clear()
