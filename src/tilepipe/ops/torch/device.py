"""The GPU that a tensor is on: which kinds run the kernels, and the stream of a launch."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from tilepipe.cuda.runtime import driver
from tilepipe.errors import UnavailableError
from tilepipe.ir.chip import Chip

DEVICES = ["cuda", "cpu", "meta"]
"""Types of device that a tensor may be on: the kernel's, the one whose tensors are simulated, and
the one that has shapes only."""

# A thread that has called nothing of CUDA has no context: kernels are loaded inside this one.
context = driver.current


def _stream(ordinal: int) -> int:
    return int(torch.cuda.current_stream(ordinal).cuda_stream)


# What PyTorch's own generated code calls; a tenth of the cost of the public functions.
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _stream)
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)

# True while a CUDA graph captures what the current stream is given: never in a build for the CPU.
capturing: Callable[[], bool] = (
    torch.cuda.is_current_stream_capturing if torch.backends.cuda.is_built() else lambda: False
)


class _GarbageLeft:
    """Leaves garbage uncollected while any thread has entered it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered, self._was_on = 0, False

    def __enter__(self) -> None:
        with self._lock:
            if not self._entered:
                self._was_on = gc.isenabled()
                gc.disable()
            self._entered += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._entered -= 1
            if not self._entered and self._was_on:
                gc.enable()


_garbage_left = _GarbageLeft()


def capture_kept() -> AbstractContextManager[None]:
    """Collects no garbage meanwhile if a CUDA graph captures. Preparing a launch makes so many
    objects that a collection is likely, and one that destroys another CUDA graph ends the capture
    (cudaErrorStreamCaptureInvalidated).
    """
    return _garbage_left if capturing() else nullcontext()


def of_ordinal(ordinal: int) -> torch.device:
    """The GPU of that number."""
    return torch.device("cuda", ordinal)


class _Memory:
    """Memory of the driver, as PyTorch takes it over from other libraries."""

    def __init__(self, address: int, count: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "<i4",
            "data": (address, False),
            "version": 3,
        }


def lasting_zeros(ordinal: int, stream: int, count: int) -> torch.Tensor:
    """So many int32 zeros in memory of the driver, which stay for good: written on `stream`.

    PyTorch's allocator may serve a request from the pool of a CUDA graph; torch.compile's graphs
    refuse memory of their pool that outlives a run.
    """
    with driver.current(ordinal):
        # Where another thread captures a graph, an allocation in the default mode would break it.
        relaxed = driver.api().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = driver.call("cuThreadExchangeStreamCaptureMode", relaxed)
        try:
            address = int(driver.call("cuMemAlloc", 4 * count))
        finally:
            driver.call("cuThreadExchangeStreamCaptureMode", before)
        driver.call("cuMemsetD32Async", address, 0, count, stream)
    return torch.as_tensor(_Memory(address, count), device=of_ordinal(ordinal))


def hopper(ordinal: int, operation: str) -> Chip:
    """The chip of a device.

    Raises:
        UnavailableError: it is not of compute capability 9.0, whose wgmma the kernels are made of.
    """
    capability = torch.cuda.get_device_capability(ordinal)
    if capability != (9, 0):
        major, minor = capability
        raise UnavailableError(
            f"{operation} needs a Hopper GPU (compute capability 9.0, wgmma); cuda:{ordinal} is"
            f" {torch.cuda.get_device_name(ordinal)} of {major}.{minor}"
        )
    return driver.chip(ordinal)


def simulates(x: object) -> bool:
    """True of a tensor on the CPU: the kernel runs on the simulated GPU."""
    return isinstance(x, torch.Tensor) and x.is_cpu
