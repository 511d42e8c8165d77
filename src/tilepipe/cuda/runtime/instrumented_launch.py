"""Launches of debug and perturbed builds.

Such a launch passes the address of a record after the program's arguments (debug builds), and then
the seed of the delays (perturbed builds).
"""

from __future__ import annotations

import ctypes
from typing import Any

from tilepipe.cuda.debug.hang_message import hang_error
from tilepipe.cuda.debug.record import RECORD_BYTES, TIMEOUT_MS, decode, fresh_record
from tilepipe.cuda.runtime import driver
from tilepipe.cuda.runtime.launching import Launcher, wait_for
from tilepipe.ir.program import Kernel


def launch(
    launcher: Launcher,
    kernel: Kernel,
    addresses: tuple[int, ...],
    stream: int,
    *,
    seed: int = 0,
    timeout_ms: float = TIMEOUT_MS,
) -> None:
    """Launches a debug or perturbed build of `kernel` on a CUstream. The launch of a debug build
    waits for the kernel to end, so a CUDA graph cannot capture it.

    `addresses`: the addresses of the tensors, as `launcher` takes them. `seed`: chooses the delays;
    only its low 32 bits count.

    Raises:
        HangError: a wait of a debug build blocked for longer than `timeout_ms`.
        BindError, LaunchError: as `Launcher.__call__` raises them, or the kernel failed in another
            way.
    """
    last = (ctypes.c_uint32(seed & 0xFFFFFFFF),) if launcher.compiled.perturbed else ()
    if not launcher.compiled.debug:
        launcher.launch_packed(launcher.pack(addresses, last), stream)
        return
    record: Any = ctypes.create_string_buffer(fresh_record(timeout_ms), RECORD_BYTES)
    with driver.current(launcher.ordinal):
        memory = driver.call("cuMemAlloc", RECORD_BYTES)
        try:
            driver.call("cuMemcpyHtoDAsync", memory, ctypes.addressof(record), RECORD_BYTES, stream)
            launcher.launch_packed(
                launcher.pack(addresses, (ctypes.c_uint64(int(memory)), *last)), stream
            )
            wait_for(kernel.name, stream)
            driver.call("cuMemcpyDtoH", ctypes.addressof(record), memory, RECORD_BYTES)
        finally:
            # After a failed launch this fails too, and would hide the first error.
            driver.api().cuMemFree(memory)
    report = decode(record.raw, kernel)
    if report is not None:
        raise hang_error(report, kernel)
