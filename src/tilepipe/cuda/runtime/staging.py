"""NumPy arguments of a launch: copied to the GPU before it, and copied back after it where the
kernel writes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from tilepipe.cuda.runtime import driver
from tilepipe.cuda.runtime.launching import wait_for
from tilepipe.errors import BindError
from tilepipe.ir.arrays import span
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import Launch, TensorArg

_GUARD = 256  # bytes; the alignment of cuMemAlloc, which the copy keeps


@contextmanager
def staged(
    launch: Launch, ordinal: int, written: Collection[str] | None = None
) -> Iterator[dict[str, int]]:
    """Copies the tensors of a launch to device memory, and yields the address of element 0 of each
    by name. When the block ends without an error, waits for the device and copies back the tensors
    that the kernel writes: those that its ops write unless `written` names them.

    The memory of an array is copied as it is, with the gaps between its rows, so that its strides
    are valid on the GPU too.
    """
    arrays = {name: arg.array for name, arg in launch.args.items() if isinstance(arg, TensorArg)}
    changed = tensor_uses(launch.kernel)[0] if written is None else set(written)
    places: dict[str, tuple[int, int]] = {}  # name -> allocation, bytes from its start to element 0
    with driver.current(ordinal):
        try:
            for name, array in arrays.items():
                low, high = _bounds(name, array)
                memory = int(driver.call("cuMemAlloc", max(high - low, 1) + _GUARD))
                places[name] = memory, array.ctypes.data - low
                driver.call("cuMemcpyHtoD", memory, low, high - low)
            # cuMemcpyHtoD may return before the last part of a copy has arrived, and a kernel on a
            # stream of its own does not wait for the default stream.
            driver.call("cuStreamSynchronize", 0)
            yield {name: memory + start for name, (memory, start) in places.items()}
            wait_for(launch.kernel.name)
            for name in sorted(changed & places.keys()):
                _copy_back(arrays[name], *places[name])
        finally:
            for memory, _ in places.values():
                # After a failed launch this fails too, and would hide the first error.
                driver.api().cuMemFree(memory)


def _bounds(name: str, array: object) -> tuple[int, int]:
    """The lowest address of an array's elements, and the one after the highest."""
    if not isinstance(array, np.ndarray):
        raise BindError(
            f"argument '{name}': expected a NumPy array like the others, got {type(array).__name__}"
        )
    before, nbytes = span(array.shape, array.strides, array.itemsize)
    low = array.ctypes.data - before
    return low, low + nbytes


def _copy_back(array: npt.NDArray[np.generic], memory: int, start: int) -> None:
    low, high = _bounds("", array)
    raw = np.empty(high - low, np.uint8)
    driver.call("cuMemcpyDtoH", raw.ctypes.data, memory, high - low)
    array[...] = np.ndarray(array.shape, array.dtype, raw, start, array.strides)
