"""Launches of timed builds, as far as they go without a GPU: what each of them finds in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.cuda.fake_driver import FakeDriver, Status
from tilepipe.cli.run import launch
from tilepipe.cuda.codegen.parameters import arguments
from tilepipe.cuda.nvrtc.compiler import Compiled
from tilepipe.cuda.runtime import driver, launching, loading, restoring, staging, timed
from tilepipe.ir.program import Launch
from tilepipe.registry.catalog import Case


@tp.kernel(grid=1)
def counting(ctx: tp.Context, count: Any, out: Any) -> None:
    """Counts up, and stores what it found."""

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            ctx.store(out[0], ctx.atomic_add(count[0], 1))


@tp.kernel(grid=1)
def adding(ctx: tp.Context, a: Any, out: Any) -> None:
    """Never reads what it writes, unless both are the same array."""

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            ctx.store(out[0], ctx.load(a[0]) + 1)


class Running(FakeDriver):
    """Runs a launch by a function of the addresses of its tensors, by name.

    Attributes:
        room: bytes that cuMemAlloc has in all.
    """

    def __init__(self, program: tp.Program, does: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._wanted = arguments(program.kernel)
        self._does = does
        self.room = 1 << 40

    def _launch(self, config: Any, handle: Any, parameters: int, extra: int) -> tuple[Status]:
        places = (ctypes.c_void_p * len(self._wanted)).from_address(parameters)
        found = {
            argument.param.name: ctypes.c_int32.from_address(
                ctypes.c_uint64.from_address(place or 0).value
            )
            for argument, place in zip(self._wanted, places, strict=True)
            if argument.kind == "data"
        }
        self._does(found)
        return super()._launch(config, handle, parameters, extra)

    def cuMemAlloc(self, size: int) -> int:
        if size + sum(map(len, self.memory.values())) > self.room:
            raise tp.LaunchError("cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (out of memory)")
        return super().cuMemAlloc(size)

    def cuMemsetD8Async(self, to: int, value: int, size: int, _stream: int) -> None:
        ctypes.memset(to, value, size)

    def cuMemcpyDtoDAsync(self, to: int, source: int, size: int, _stream: int) -> None:
        ctypes.memmove(to, source, size)


def installed(
    monkeypatch: pytest.MonkeyPatch, program: tp.Program, does: Callable[[dict[str, Any]], None]
) -> Running:
    """The driver, and nothing compiled."""

    def load(launch: Launch, ordinal: int, **_: bool) -> launching.Launcher:
        compiled = Compiled("k", "sm_90a", "cubin", "", "", b"", 0, 32, 1)
        function: Any = SimpleNamespace(ordinal=ordinal, max_clusters=132, handle="handle")
        strides = {n: a.array.strides for n, a in launch.args.items()}  # type: ignore[union-attr]
        return launching.Launcher(launch, compiled, function, strides)

    fake = Running(program, does)
    fake.install(monkeypatch, launching, staging, restoring, timed)
    monkeypatch.setattr(loading, "launcher", load)
    monkeypatch.setattr(driver, "chip", lambda ordinal: tp.H200)
    return fake


def counts_up(memory: dict[str, Any]) -> None:
    memory["out"].value = memory["count"].value
    memory["count"].value += 1


@pytest.mark.parametrize("launches", [1, 2, 5])
def test_each_launch_finds_what_the_first_one_found(
    monkeypatch: pytest.MonkeyPatch, launches: int
) -> None:
    count, out = np.array([7], np.int32), np.zeros(1, np.int32)
    program = counting.bind(count, out)
    fake = installed(monkeypatch, program, counts_up)
    program.record(launches=launches)
    assert len(fake.launches) == launches
    assert (count[0], out[0]) == (8, 7), "as one launch leaves it"
    assert fake.memory == {}


def test_the_default_records_a_launch_from_the_state_that_was_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    program = counting.bind(count, out)
    fake = installed(monkeypatch, program, counts_up)
    program.record()
    assert len(fake.launches) > 1
    assert (count[0], out[0]) == (1, 0)


def test_the_command_that_launches_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    count, out = np.array([7], np.int32), np.zeros(1, np.int32)
    program = counting.bind(count, out)
    fake = installed(monkeypatch, program, counts_up)
    launch(Case(program, out, lambda: tp.testing.compare(out, out), 1))
    assert len(fake.launches) == 2
    assert (count[0], out[0]) == (8, 7), "as one launch leaves it"
    assert fake.memory == {}


def adds(memory: dict[str, Any]) -> None:
    memory["out"].value = memory["a"].value + 1


def test_only_what_is_read_again_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    a, out = np.array([3], np.int32), np.zeros(1, np.int32)
    program = adding.bind(a, out)
    fake = installed(monkeypatch, program, adds)
    program.record(launches=3)
    assert (a[0], out[0]) == (3, 4)
    assert "cuMemcpyDtoDAsync" not in fake.calls


def test_an_array_that_has_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written by one and read by the other: GPU memory, so that both are at one address."""
    memory = np.array([0, 3, 0], np.int32)

    class OnGpu:
        def __init__(self, start: int, strides: tuple[int, ...]) -> None:
            self.dtype, self.shape, self.strides = memory.dtype, (2,), strides
            self.device = SimpleNamespace(id=0)
            self.__cuda_array_interface__ = {
                "data": (memory.ctypes.data + 4 * start, False),
                "shape": (2,),
                "typestr": "<i4",
                "version": 3,
                "strides": strides,
            }

    program = adding.bind(
        tp.TensorMap(tp.int32, 1, array=OnGpu(1, (-4,))),
        tp.TensorMap(tp.int32, 1, array=OnGpu(1, (4,))),
        chip=tp.H200,
    )

    fake = installed(monkeypatch, program, adds)
    program.record(stream=0, launches=3)
    assert memory.tolist() == [0, 4, 0]
    assert fake.calls.count("cuMemcpyDtoDAsync") == 3  # there, and back twice


def test_no_memory_for_the_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    count, out = np.zeros(1 << 20, np.int32), np.zeros(1, np.int32)
    program = counting.bind(count, out)
    fake = installed(monkeypatch, program, counts_up)
    fake.room = 6 << 20  # for the array, not for another of it
    with pytest.raises(
        tp.LaunchError,
        match=r"'counting' reads and writes 'count' \(4,194,304 bytes\).*OUT_OF_MEMORY"
        r".*record\(launches=1\) needs no copy",
    ):
        program.record()
    assert fake.launches == []
    assert fake.memory == {}
    program.record(launches=1)
