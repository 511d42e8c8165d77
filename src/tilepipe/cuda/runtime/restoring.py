"""Launching a kernel again from the same state: what it reads and writes, as counters and sums, is
copied on the device before the first launch, and copied back before the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tilepipe.cuda.runtime import driver
from tilepipe.errors import LaunchError
from tilepipe.ir.arrays import byte_strides, item_bytes, span
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import Launch, TensorArg


@contextmanager
def restorable(
    launch: Launch, places: Mapping[str, int], stream: int, advice: str
) -> Iterator[Callable[[], None]]:
    """Copies the tensors that a kernel both reads and writes, in the order of a CUstream of the
    current device, and yields what copies them back. `places`: the address of element 0 of each
    tensor.

    Raises:
        LaunchError: there is no memory for the copies; the message ends with `advice`.
    """
    copies: list[tuple[_Part, int]] = []
    parts = _read_and_written(launch, places)

    def restore() -> None:
        for part, copy in copies:
            driver.call("cuMemcpyDtoDAsync", part.low, copy, part.nbytes, stream)

    try:
        for part in parts:
            try:
                copy = int(driver.call("cuMemAlloc", part.nbytes))
            except LaunchError as error:
                names = ", ".join(f"'{x.name}' ({x.nbytes:,} bytes)" for x in parts)
                raise LaunchError(
                    f"'{launch.kernel.name}' reads and writes {names}; for more than one launch"
                    f" from the same state a copy of that is kept on the GPU, and {error}. {advice}"
                ) from None
            copies.append((part, copy))
            driver.call("cuMemcpyDtoDAsync", copy, part.low, part.nbytes, stream)
        yield restore
    finally:
        for _, copy in copies:
            # After a failed launch this fails too, and would hide the first error.
            driver.api().cuMemFree(copy)


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
