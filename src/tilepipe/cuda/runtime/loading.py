"""Makes the launch of a program callable. A kernel is compiled and loaded once for each device and
build.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tilepipe.cuda.debug.hang import TIMEOUT_MS
from tilepipe.cuda.nvrtc.compiler import Compiled, compile as compile_kernel, refuse_late
from tilepipe.cuda.runtime import driver, interop
from tilepipe.cuda.runtime.launching import Launcher, launch_instrumented
from tilepipe.cuda.runtime.staging import staged
from tilepipe.cuda.runtime.timed import launch_timed
from tilepipe.errors import BindError
from tilepipe.ir.host_tensors import is_tensor
from tilepipe.ir.program import Kernel, Launch, TensorArg
from tilepipe.ir.stamps import WarpStamps

_Build = tuple[int, bool, bool, bool]  # device, debug, perturbed, timed
_functions: WeakKeyDictionary[Kernel, dict[_Build, tuple[Compiled, driver.Function]]] = (
    WeakKeyDictionary()
)
_lock = threading.Lock()


def load(
    kernel: Kernel,
    ordinal: int,
    *,
    debug: bool = False,
    perturbed: bool = False,
    timed: bool = False,
) -> tuple[Compiled, driver.Function]:
    """Compiles a kernel for a device and loads it there, once.

    Raises:
        CompileError, LaunchError, UnavailableError: compiling or loading failed, or compiling is
            refused (TILEPIPE_JIT=error).
    """
    build = ordinal, debug, perturbed, timed
    with _lock:
        found = _functions.setdefault(kernel, {}).get(build)
    if found is not None:
        return found
    options: Any = {
        name: True
        for name, wanted in (("debug", debug), ("perturb", perturbed), ("timed", timed))
        if wanted
    }
    arch = driver.chip(ordinal).arch
    if not options:  # builds for debugging are compiled when they are asked for
        refuse_late(kernel, arch)
    c = compile_kernel(kernel, arch, **options)
    made = c, driver.Function(ordinal, c.data, c.name, c.threads, c.smem_bytes, c.cluster)
    with _lock:
        return _functions[kernel].setdefault(build, made)


def launcher(
    launch: Launch,
    ordinal: int,
    *,
    debug: bool = False,
    perturbed: bool = False,
    timed: bool = False,
) -> Launcher:
    """The launcher of a kernel on a device, for tensors of the launch's shapes and strides at any
    addresses.
    """
    strides = {
        name: tuple(arg.array.strides)
        if isinstance(arg.array, np.ndarray)
        else interop.view(arg.array).byte_strides
        for name, arg in launch.args.items()
        if isinstance(arg, TensorArg)
    }
    return Launcher(
        launch,
        *load(launch.kernel, ordinal, debug=debug, perturbed=perturbed, timed=timed),
        strides,
    )


class BoundLaunch:
    """A launch with its arguments, NumPy arrays or arrays in GPU memory, to be called any number of
    times.

    Attributes:
        launcher: launches the same kernel at other addresses.
        ordinal: the device.
        on_device: the arrays are in GPU memory.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        debug: bool = False,
        perturbed: bool = False,
        timed: bool = False,
    ) -> None:
        self._launch = launch
        self._debug = debug
        self._perturbed = perturbed
        self._arrays = [arg.array for arg in launch.args.values() if isinstance(arg, TensorArg)]
        found = interop.device_of(self._arrays)
        self.on_device = found is not None
        self.ordinal = found or 0
        self.launcher = launcher(
            launch, self.ordinal, debug=debug, perturbed=perturbed, timed=timed
        )
        self._addresses: list[Callable[[], int]] = (
            [_address_of(launch, name) for name in self.launcher.tensors] if self.on_device else []
        )

    def __call__(
        self, stream: Any = None, *, seed: int = 0, timeout_ms: float = TIMEOUT_MS
    ) -> None:
        """Launches the kernel. Waits for its end where the arguments are NumPy arrays, and in a
        debug build.

        `seed`: chooses the delays of a perturbed build. `timeout_ms`: how long a wait of a debug
        build may block.
        """
        if self.on_device:
            addresses = tuple(address() for address in self._addresses)
            self._run(
                addresses,
                interop.stream_handle(stream, self._arrays, self.ordinal),
                seed,
                timeout_ms,
            )
            return
        with staged(self._launch, self.ordinal) as places:
            addresses = tuple(places[name] for name in self.launcher.tensors)
            handle = interop.stream_handle(0 if stream is None else stream, (), self.ordinal)
            self._run(addresses, handle, seed, timeout_ms)

    def stamps(
        self, stream: Any = None, *, ctas: int, room: int, launches: int
    ) -> tuple[WarpStamps, ...]:
        """Launches a timed build: see `launch_timed`."""
        run = partial(
            launch_timed, self.launcher, self._launch, ctas=ctas, room=room, launches=launches
        )  # fmt: skip
        if self.on_device:
            addresses = tuple(address() for address in self._addresses)
            return run(addresses, interop.stream_handle(stream, self._arrays, self.ordinal))
        with staged(self._launch, self.ordinal) as places:
            addresses = tuple(places[name] for name in self.launcher.tensors)
            handle = interop.stream_handle(0 if stream is None else stream, (), self.ordinal)
            return run(addresses, handle)

    def _run(self, addresses: tuple[int, ...], stream: int, seed: int, timeout_ms: float) -> None:
        if not (self._debug or self._perturbed):
            self.launcher(addresses, stream)
            return
        launch_instrumented(
            self.launcher, self._launch.kernel, addresses, stream, seed=seed, timeout_ms=timeout_ms
        )


def _address_of(launch: Launch, name: str) -> Callable[[], int]:
    arg = launch.args[name]
    if not isinstance(arg, TensorArg):
        raise BindError(f"parameter '{name}' is a tensor, got {type(arg).__name__}")
    if is_tensor(arg.array):
        method: Callable[[], int] = arg.array.data_ptr
        return method
    address = interop.view(arg.array).address
    return lambda: address
