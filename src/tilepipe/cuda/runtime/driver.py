"""The CUDA driver through cuda.bindings: devices, contexts, modules, launch configurations. A
failed call raises an error that quotes the driver.

Contexts are the primary contexts of the devices, which PyTorch, CuPy and the CUDA runtime use too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tilepipe.errors import LaunchError, UnavailableError
from tilepipe.ir.chip import H200, Chip

ARCHITECTURES = {(9, 0): "sm_90a", (10, 0): "sm_100a", (10, 3): "sm_103a"}


@functools.cache
def api() -> Any:
    """The module cuda.bindings.driver, after cuInit.

    Raises:
        UnavailableError: there is no such package, no driver or no GPU.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        raise UnavailableError(
            "launching needs cuda-bindings, which is not installed: pip install tilepipe[cuda]"
        ) from None
    try:
        (status,) = driver.cuInit(0)
    # Each version of the bindings raises its own class where the driver is missing.
    except Exception:
        raise UnavailableError(
            "launching needs an NVIDIA driver (libcuda.so.1), which this machine does not have"
        ) from None
    if int(status):
        raise UnavailableError(f"the NVIDIA driver finds no GPU that it can use ({status.name})")
    return driver


def call(name: str, *args: Any) -> Any:
    """Calls a function of the driver, and returns its results without the status.

    Raises:
        LaunchError: the call failed.
    """
    status, *values = getattr(api(), name)(*args)
    if int(status):
        raise LaunchError(f"{name} failed: {describe(status)}")
    return values[0] if len(values) == 1 else tuple(values) or None


def describe(status: Any) -> str:
    """The name of an error, CUDA_ERROR_..., and the driver's text for it."""
    _, text = api().cuGetErrorString(status)
    return f"{status.name}{f' ({text.decode()})' if text else ''}"


@functools.cache
def version() -> int:
    """The newest CUDA that the driver supports: 13010 is 13.1."""
    return int(call("cuDriverGetVersion"))


def device_count() -> int:
    """The number of GPUs that the driver sees."""
    return int(call("cuDeviceGetCount"))


def attribute(ordinal: int, name: str) -> int:
    """The value of a CU_DEVICE_ATTRIBUTE_ of a device."""
    which = getattr(api().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(call("cuDeviceGetAttribute", which, call("cuDeviceGet", ordinal)))


@functools.cache
def primary_context(ordinal: int) -> Any:
    """The primary context of a device, retained for the life of the process.

    Raises:
        UnavailableError: there is no such device.
    """
    count = device_count()
    if not 0 <= ordinal < count:
        raise UnavailableError(f"there is no device {ordinal}; the driver sees {count}")
    return call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal))


@contextmanager
def current(ordinal: int) -> Iterator[None]:
    """Makes the device's context current in this thread for the duration of the block."""
    call("cuCtxPushCurrent", primary_context(ordinal))
    try:
        yield
    finally:
        # Where the context is lost, this fails too and would hide the error that lost it.
        with suppress(LaunchError):
            call("cuCtxPopCurrent")


@functools.cache
def chip(ordinal: int = 0) -> Chip:
    """The properties of a device.

    Raises:
        UnavailableError: there is no such device, or tilepipe prints no code for it.
    """
    primary_context(ordinal)
    major, minor = (attribute(ordinal, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
    name = (
        call("cuDeviceGetName", 100, call("cuDeviceGet", ordinal))
        .partition(b"\0")[0]
        .decode()
        .strip()
    )
    arch = ARCHITECTURES.get((major, minor))
    if arch is None:
        known = ", ".join(f"{a}.{b} ({arch})" for (a, b), arch in ARCHITECTURES.items())
        raise UnavailableError(
            f"device {ordinal} is a {name} of compute capability {major}.{minor}; kernels are"
            f" printed for {known}"
        )
    # A double data rate: two transfers a clock.
    dram = (
        2
        * attribute(ordinal, "MEMORY_CLOCK_RATE")
        * 1e3
        * attribute(ordinal, "GLOBAL_MEMORY_BUS_WIDTH")
        / 8
        / 1e9
    )
    return Chip(
        name=name.removeprefix("NVIDIA "),
        clusters=_resident_clusters(ordinal),
        arch=arch,
        sms=attribute(ordinal, "MULTIPROCESSOR_COUNT"),
        smem_per_cta=attribute(ordinal, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        registers=attribute(ordinal, "MAX_REGISTERS_PER_MULTIPROCESSOR"),
        max_threads=attribute(ordinal, "MAX_THREADS_PER_BLOCK"),
        dram_gbps=dram or H200.dram_gbps,
    )


# A kernel that does nothing, in PTX 7.8 (the first with sm_90).
_EMPTY = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry empty() { ret; }\n\0"


def _resident_clusters(ordinal: int) -> tuple[tuple[int, int], ...]:
    """The (size, clusters of that size that can be resident at once), with one CTA on an SM."""
    smem = attribute(ordinal, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    found = []
    for size in range(2, 9):
        try:
            found.append((size, Function(ordinal, _EMPTY, "empty", 128, smem, size).max_clusters))
        except LaunchError:  # a MIG slice may have no room for one
            found.append((size, 0))
    return tuple(found)


class Function:
    """A compiled kernel loaded on one device, ready for cuLaunchKernelEx.

    It stays loaded for the life of the process: queued launches and CUDA graphs use its handle, and
    there is no way to know of them.
    """

    def __init__(
        self, ordinal: int, cubin: bytes, name: str, threads: int, smem_bytes: int, cluster: int
    ) -> None:
        """Loads a cubin.

        Raises:
            LaunchError: the driver refuses the cubin, or the device has no room for even one
            cluster.
        """
        self.ordinal = ordinal
        driver = api()
        attributes = driver.CUfunction_attribute
        with current(ordinal):
            self.module = call("cuModuleLoadData", cubin)
            self.handle = call("cuModuleGetFunction", self.module, name.encode())
            call(
                "cuFuncSetAttribute",
                self.handle,
                attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                smem_bytes,
            )
            if cluster > 8:  # CUDA Driver API: portable clusters have at most 8 CTAs
                call(
                    "cuFuncSetAttribute",
                    self.handle,
                    attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                    1,
                )
            self.max_clusters = self._max_clusters(threads, smem_bytes, cluster)
        if self.max_clusters == 0:
            raise LaunchError(
                f"no cluster of '{name}' fits on device {ordinal}: {cluster} CTAs of {threads}"
                f" threads and {smem_bytes:,} bytes of shared memory each. Use a smaller"
                " cluster, or less shared memory."
            )

    def _max_clusters(self, threads: int, smem_bytes: int, cluster: int) -> int:
        """The number of clusters that the device holds at once."""
        shape = api().CUlaunchAttribute()
        shape.id = api().CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        shape.value.clusterDim.x, shape.value.clusterDim.y, shape.value.clusterDim.z = cluster, 1, 1
        config = launch_configuration(cluster, threads, smem_bytes, shape)
        return int(call("cuOccupancyMaxActiveClusters", self.handle, config))


def launch_configuration(
    ctas: int, threads: int, smem_bytes: int, launch_attribute: Any, stream: int = 0
) -> Any:
    """A CUlaunchConfig with one launch attribute: `ctas` CTAs of `threads` threads, each with
    `smem_bytes` of dynamic shared memory, on a CUstream.
    """
    config = api().CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = ctas, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes, config.hStream = smem_bytes, stream
    config.attrs, config.numAttrs = [launch_attribute], 1
    return config


def is_current(ordinal: int) -> bool:
    """True if the device's context is current in this thread."""
    _, now = api().cuCtxGetCurrent()
    return int(now) == int(primary_context(ordinal))
