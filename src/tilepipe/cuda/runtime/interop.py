"""Arrays in GPU memory and streams of other frameworks: PyTorch, CuPy, Numba, JAX.

The place of an array comes from PyTorch's own methods, `__cuda_array_interface__` or DLPack.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilepipe.errors import BindError, UnavailableError
from tilepipe.ir.arrays import byte_strides, item_bytes
from tilepipe.ir.host_tensors import is_tensor

_DLPACK_CUDA = 2  # DLDeviceType kDLCUDA


@dataclass(frozen=True, slots=True)
class DeviceView:
    """The place of an array: address, strides in bytes (outermost first), device ordinal."""

    address: int
    byte_strides: tuple[int, ...]
    ordinal: int


def is_device_array(x: Any) -> bool:
    """True if `x` lies in the memory of a CUDA device."""
    if isinstance(x, np.ndarray | np.generic):
        return False
    if is_tensor(x):
        return bool(x.is_cuda)
    if hasattr(x, "__cuda_array_interface__"):
        return True
    return hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] == _DLPACK_CUDA


def view(x: Any) -> DeviceView:
    """The place of an array in GPU memory.

    Raises:
        BindError: the array is not in GPU memory, or its address is not one of a GPU.
        UnavailableError: reading the array needs a package that is not installed.
    """
    if not is_device_array(x):
        raise BindError(
            f"a launch takes arrays in GPU memory, got {type(x).__name__}; move it to the GPU"
        )
    if is_tensor(x):
        return DeviceView(x.data_ptr(), byte_strides(x), x.device.index)
    if hasattr(x, "__cuda_array_interface__"):
        address = int(x.__cuda_array_interface__["data"][0])
        return DeviceView(address, byte_strides(x), _ordinal(x, address))
    return _from_dlpack(x)


def address(x: Any) -> int:
    """The address of an array in GPU memory. Raises what `view` does."""
    return int(x.data_ptr()) if is_tensor(x) and x.is_cuda else view(x).address


def _ordinal(x: Any, address: int) -> int:
    """The device that an array is on: its own `device.id` (CuPy) or `device.index` (PyTorch), else
    the device that CUDA finds for the address.
    """
    device = getattr(x, "device", None)
    for name in ("id", "index"):
        ordinal = getattr(device, name, None)
        if isinstance(ordinal, int):
            return ordinal
    if not address:
        return 0
    from cuda.bindings import runtime

    # Not the driver's CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: cuda-bindings 13.3 returns 0 for it on
    # every device.
    status, found = runtime.cudaPointerGetAttributes(address)
    if int(status):
        raise BindError(
            f"an array of type {type(x).__name__} gives its address as {address:#x}, which is not"
            f" in the memory of a GPU ({status.name})"
        )
    return int(found.device)


def _from_dlpack(x: Any) -> DeviceView:
    try:
        from cuda.core.utils import StridedMemoryView
    except ImportError:
        raise UnavailableError(
            "arrays that offer DLPack alone need cuda-core: pip install tilepipe[cuda]"
        ) from None
    try:
        # -1 asks for no synchronisation (DLPack, `__dlpack__`): the launch is on the stream that
        # the caller names.
        found = StridedMemoryView.from_dlpack(x, stream_ptr=-1)
    # JAX takes -1 for a stream and refuses it. 1 is the default stream, which then waits for the
    # work that JAX has queued.
    except Exception:
        found = StridedMemoryView.from_dlpack(x, stream_ptr=1)
    strides = tuple(s * item_bytes(x) for s in found.strides) if found.strides else byte_strides(x)
    return DeviceView(int(found.ptr), strides, int(found.device_id))


def device_of(arrays: Iterable[Any]) -> int | None:
    """The device that holds all arrays; None when none of them is in GPU memory.

    Raises:
        BindError: the arrays are on several devices, or only some are in GPU memory.
    """
    everything = list(arrays)
    ordinals = {view(x).ordinal for x in everything if is_device_array(x)}
    if len(ordinals) > 1:
        raise BindError(
            f"the arrays are on devices {', '.join(map(str, sorted(ordinals)))}; a launch is on"
            " one: move them"
        )
    if ordinals and not all(map(is_device_array, everything)):
        raise BindError(
            "some arrays are in GPU memory and some in the host's: move them to the GPU"
        )
    return next(iter(ordinals), None)


def stream_handle(stream: Any, arrays: Iterable[Any], ordinal: int) -> int:
    """The CUstream to launch on, as an integer.

    `stream`: an integer, a stream of PyTorch, CuPy, Numba or cuda.core, or None. None stands for
    the current stream, on device `ordinal`, of the framework that the first GPU array belongs to,
    or for the default stream where that framework has no current stream.

    Raises:
        BindError: `stream` is none of these.
    """
    if stream is None:
        return _current_stream(next((x for x in arrays if is_device_array(x)), None), ordinal)
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if (handle := getattr(stream, name, None)) is not None:
            return int(getattr(handle, "value", handle) or 0)
    raise BindError(
        f"stream= takes an integer, or a stream of PyTorch, CuPy or cuda.core; got {stream!r}"
    )


def _current_stream(array: Any, ordinal: int) -> int:
    if is_tensor(array):
        return int(sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream)
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        with cupy.cuda.Device(ordinal):  # each device has its own current stream
            return int(cupy.cuda.get_current_stream().ptr)
    return 0
