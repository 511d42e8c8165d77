"""Launching a timed build, each time from the same state of memory, and reading what its warps have
noted of the last launch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tilepipe.cuda.debug.stamps import decode, stamp_bytes
from tilepipe.cuda.runtime import driver
from tilepipe.cuda.runtime.launching import Launcher, wait_for
from tilepipe.errors import LaunchError
from tilepipe.ir.arrays import byte_strides, item_bytes, span
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import Launch, TensorArg
from tilepipe.ir.stamps import WarpStamps


def launch_timed(
    launcher: Launcher,
    launch: Launch,
    addresses: tuple[int, ...],
    stream: int,
    *,
    ctas: int,
    room: int,
    launches: int,
) -> tuple[WarpStamps, ...]:
    """Launches a timed build on a CUstream so many times, waits for its end, and returns what the
    warps of the first `ctas` CTAs have noted of the last launch. `room`: stamps of each of these
    warps that are kept.

    Each launch finds the tensors that the kernel both reads and writes as the first one found them:
    they are copied on the device, and copied back between two launches.

    Raises:
        BindError, LaunchError: as `Launcher.__call__` raises them, or the kernel failed, or there
            is no memory for the copies.
    """
    kernel = launch.kernel
    size = stamp_bytes(kernel, ctas, room)
    found = np.zeros(size, np.uint8)
    placed = dict(zip(launcher.tensors, addresses, strict=True))
    moved = _read_and_written(launch, placed) if launches > 1 else []
    with driver.current(launcher.ordinal), _copied(moved, kernel.name, stream) as copies:
        memory = driver.call("cuMemAlloc", size)
        try:
            given = (
                ctypes.c_uint64(int(memory)), ctypes.c_uint32(ctas), ctypes.c_uint32(room),
            )  # fmt: skip
            packed = launcher.pack(addresses, given)
            driver.call("cuMemsetD8Async", memory, 0, size, stream)
            launcher.launch_packed(packed, stream)
            for _ in range(launches - 1):
                for part, copy in zip(moved, copies, strict=True):
                    driver.call("cuMemcpyDtoDAsync", part.low, copy, part.nbytes, stream)
                launcher.launch_packed(packed, stream)
            wait_for(kernel.name, stream)
            driver.call("cuMemcpyDtoH", found.ctypes.data, memory, size)
        finally:
            # After a failed launch this fails too, and would hide the first error.
            driver.api().cuMemFree(memory)
    return decode(found, kernel, ctas, room)


@dataclass(frozen=True, slots=True)
class _Part:
    """The memory from the lowest to the highest element of a tensor."""

    name: str
    low: int
    nbytes: int

    def overlaps(self, other: _Part) -> bool:
        return self.low < other.low + other.nbytes and other.low < self.low + self.nbytes


def _read_and_written(launch: Launch, places: Mapping[str, int]) -> list[_Part]:
    """The tensors that a kernel writes and, by their own name or by another one, reads. `places`:
    the address of element 0 of each.
    """
    written, read = tensor_uses(launch.kernel)
    parts = {
        name: _part(name, arg, places[name])
        for name, arg in launch.args.items()
        if isinstance(arg, TensorArg) and name in written | read
    }
    return [
        parts[name]
        for name in sorted(written)
        if any(parts[name].overlaps(parts[other]) for other in read)
    ]


def _part(name: str, arg: TensorArg, address: int) -> _Part:
    array = arg.array
    if isinstance(array, np.ndarray):
        before, nbytes = span(array.shape, array.strides, array.itemsize)
    else:
        before, nbytes = span(tuple(array.shape), byte_strides(array), item_bytes(array))
    return _Part(name, address - before, nbytes)


@contextmanager
def _copied(parts: list[_Part], kernel: str, stream: int) -> Iterator[list[int]]:
    """Copies memory on the device, in the order of a stream, and yields where the copies are."""
    copies: list[int] = []
    try:
        for part in parts:
            try:
                copies.append(int(driver.call("cuMemAlloc", part.nbytes)))
            except LaunchError as error:
                names = ", ".join(f"'{x.name}' ({x.nbytes:,} bytes)" for x in parts)
                raise LaunchError(
                    f"'{kernel}' reads and writes {names}; to launch it more than once from the"
                    f" same state, record() keeps a copy of that on the GPU, and {error}."
                    " record(launches=1) needs no copy"
                ) from None
            driver.call("cuMemcpyDtoDAsync", copies[-1], part.low, part.nbytes, stream)
        yield copies
    finally:
        for copy in copies:
            # After a failed launch this fails too, and would hide the first error.
            driver.api().cuMemFree(copy)
