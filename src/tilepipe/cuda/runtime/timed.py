"""Launching a timed build, each time from the same state of memory, and reading what its warps have
noted of the last launch.
"""

from __future__ import annotations

import ctypes
from contextlib import nullcontext

import numpy as np

from tilepipe.cuda.debug.stamps import decode, stamp_bytes
from tilepipe.cuda.runtime import driver
from tilepipe.cuda.runtime.launching import Launcher, wait_for
from tilepipe.cuda.runtime.restoring import restorable
from tilepipe.ir.program import Launch
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
    advice = "record(launches=1) needs no copy"
    again = restorable(launch, placed, stream, advice) if launches > 1 else nullcontext(_nothing)
    with driver.current(launcher.ordinal), again as restore:
        memory = driver.call("cuMemAlloc", size)
        try:
            given = (
                ctypes.c_uint64(int(memory)), ctypes.c_uint32(ctas), ctypes.c_uint32(room),
            )  # fmt: skip
            packed = launcher.pack(addresses, given)
            driver.call("cuMemsetD8Async", memory, 0, size, stream)
            launcher.launch_packed(packed, stream)
            for _ in range(launches - 1):
                restore()
                launcher.launch_packed(packed, stream)
            wait_for(kernel.name, stream)
            driver.call("cuMemcpyDtoH", found.ctypes.data, memory, size)
        finally:
            # After a failed launch this fails too, and would hide the first error.
            driver.api().cuMemFree(memory)
    return decode(found, kernel, ctas, room)


def _nothing() -> None:
    """Restores nothing, for a single launch."""
