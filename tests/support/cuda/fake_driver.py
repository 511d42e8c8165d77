"""A CUDA driver made of host memory: what a launch passes to it is kept, and nothing runs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tilepipe.cuda.runtime import driver


class Status(int):
    """A CUresult."""

    name = "CUDA_ERROR_TOO_SAD"


class FakeDriver:
    """Stands for `tilepipe.cuda.runtime.driver` in its users.

    Attributes:
        launches: (grid, threads, shared memory, stream, kernelParams as an array of pointers) of
            each launch.
        maps: the address of each tensor map that was encoded. status: what launches return; ends:
            how they end.
        memory: blocks of cuMemAlloc by address. device: whose context is current; devices: at each
            launch.
        calls: names of other driver functions, in order.
    """

    def __init__(self) -> None:
        self.launches: list[tuple[int, int, int, int, int]] = []
        self.maps: list[int] = []
        self.status = self.ends = 0
        self.memory: dict[int, Any] = {}
        self.device: int | None = None
        self.devices: list[int | None] = []
        self.calls: list[str] = []

    launch_configuration = staticmethod(driver.launch_configuration)

    def install(self, monkeypatch: pytest.MonkeyPatch, *modules: Any) -> FakeDriver:
        monkeypatch.setattr(driver, "api", self.api)
        for module in modules:
            monkeypatch.setattr(module, "driver", self)
        return self

    def api(self) -> Any:
        from cuda.bindings import driver as real

        class Api:
            cuLaunchKernelEx = staticmethod(self._launch)
            cuMemFree = staticmethod(self._free)
            cuCtxSynchronize = staticmethod(lambda: (Status(self.ends),))
            cuStreamSynchronize = staticmethod(lambda _: (Status(self.ends),))

            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

        return Api()

    def _launch(self, config: Any, _handle: Any, parameters: int, _extra: int) -> tuple[Status]:
        self.devices.append(self.device)
        self.launches.append(
            (
                config.gridDimX,
                config.blockDimX,
                config.sharedMemBytes,
                int(config.hStream),
                parameters,
            )
        )
        return (Status(self.status),)

    def version(self) -> int:
        return 13000

    def call(self, name: str, *args: Any) -> Any:
        self.calls.append(name)
        return getattr(self, name)(*args)

    def describe(self, status: Status) -> str:
        return f"{status.name} (too sad)"

    def is_current(self, ordinal: int) -> bool:
        return self.device == ordinal

    @contextmanager
    def current(self, ordinal: int) -> Iterator[None]:
        before, self.device = self.device, ordinal
        try:
            yield
        finally:
            self.device = before

    def cuStreamSynchronize(self, _stream: int) -> None:
        """Nothing runs."""

    def cuTensorMapEncodeTiled(self, _kind: str, _rank: int, address: int, *_: Any) -> Any:
        """The 128 bytes of a map: the address, and nothing else; at an odd multiple of 16, as the
        binding may place it.
        """
        self.maps.append(address)
        block = ctypes.create_string_buffer(512)
        at = (ctypes.addressof(block) + 127) // 128 * 128 + 16
        ctypes.c_uint64.from_address(at).value = 1_000_000 + address
        return SimpleNamespace(getPtr=lambda: at, block=block)

    def cuMemAlloc(self, size: int) -> int:
        block = ctypes.create_string_buffer(size + 256)
        address = (ctypes.addressof(block) + 255) // 256 * 256
        self.memory[address] = block
        return address

    def _free(self, address: int) -> tuple[Status]:
        del self.memory[address]
        return (Status(0),)

    def cuMemcpyHtoD(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)

    def cuMemcpyDtoH(self, to: int, source: int, size: int) -> None:
        ctypes.memmove(to, source, size)


def reset() -> None:
    """Forgets what `tilepipe.cuda.runtime.driver` remembers of the machine."""
    for function in (driver.api, driver.primary_context, driver.chip):
        function.cache_clear()
