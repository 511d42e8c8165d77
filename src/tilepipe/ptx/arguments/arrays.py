"""Arrays of any library as views of NumPy that share their memory."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.ir.host_tensors import host_memory, is_tensor

Array = npt.NDArray[Any]
_HOST = (1, 3)  # DLPack's device types for memory of the CPU, pinned or not


class HostArray(Protocol):
    """An array of any library: of NumPy, PyTorch, or another that has DLPack."""

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


def host_array(x: object, what: str) -> Array | None:
    """The memory of an array: of NumPy, of PyTorch on the CPU, or of a library that has
    `__array_interface__` or DLPack. None for anything that is no array. `what`: of which
    parameter, for messages.

    Raises:
        BindError: the array is in a GPU's memory, or NumPy cannot view its memory.
    """
    if isinstance(x, np.ndarray):
        if x.dtype.hasobject:
            raise BindError(f"{what}: an array of Python objects has no bytes that a kernel reads")
        return x
    if isinstance(x, np.generic):
        return None
    if is_tensor(x):
        return _of_torch(x, what)
    if hasattr(x, "__cuda_array_interface__"):
        _on_gpu(x, what, "copy it to the host")
    if hasattr(x, "__dlpack_device__") and hasattr(x, "__dlpack__"):
        if x.__dlpack_device__()[0] not in _HOST:
            _on_gpu(x, what, "copy it to the host")
        try:
            found: Array = np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise BindError(
                f"{what}: NumPy cannot view the memory of {type(x).__name__} ({error}); pass a"
                " NumPy array"
            ) from None
        return found
    if hasattr(x, "__array_interface__"):
        return np.asarray(x)
    return None


def _of_torch(x: Any, what: str) -> Array:
    if x.device.type != "cpu":
        _on_gpu(x, what, "pass `x.cpu()`, and copy what the kernel has written back", str(x.device))
    return host_memory(x, what)


def _on_gpu(x: object, what: str, cure: str, device: str = "a GPU") -> NoReturn:
    raise BindError(
        f"{what}: {type(x).__name__} is in the memory of {device}; the reader of PTX runs on the"
        f" CPU: {cure}"
    )
