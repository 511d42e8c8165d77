"""Arrays of NumPy, PyTorch, CuPy and JAX: element type, strides and order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware.tma import takes_stride

Strides = Callable[[Any], tuple[int, ...]]
# Work of np.shares_memory: a millisecond at most. NumPy's annotation knows its constants alone.
MAX_WORK: Any = 100_000


def array_dtype(array: Any) -> DType:
    """The element type of a NumPy or DLPack-style array (`torch.bfloat16` by its name).

    Raises:
        BindError: it has no dtype, or one that tilepipe does not support.
    """
    raw = getattr(array, "dtype", None)
    if raw is None:
        raise BindError(f"expected an array, got {type(array).__name__}")
    if isinstance(raw, np.dtype):
        return dtypes.dtype(raw)
    return dtypes.dtype(str(raw).removeprefix("torch."))


def item_bytes(array: Any) -> int:
    """Bytes of an element as the array's framework counts them; a byte of two packed 4-bit elements
    is one.
    """
    return max(array_dtype(array).bits // 8, 1)


def byte_strides(array: Any) -> tuple[int, ...]:
    """Strides in bytes, of an array of NumPy or CuPy (`.strides`), of PyTorch (`.stride()`), or of
    a framework whose arrays are contiguous and have neither (JAX).
    """
    size = item_bytes(array)
    if callable(getattr(array, "stride", None)):
        return tuple(s * size for s in array.stride())
    if (found := getattr(array, "strides", None)) is not None:
        return tuple(found)
    strides = [size]
    for extent in array.shape[:0:-1]:
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides[: len(array.shape)]))


def span(shape: Sequence[int], strides: Sequence[int], size: int) -> tuple[int, int]:
    """How many bytes of an array lie before its element 0, and how many from the start of its
    lowest element to the end of its highest. `strides`: in bytes. `size`: of an element.
    """
    steps = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    if 0 in shape:
        return 0, 0
    return -sum(min(x, 0) for x in steps), sum(map(abs, steps)) + size


def shared_elements(shape: Sequence[int], strides: Sequence[int], size: int) -> str | None:
    """Why two elements of an array share bytes, in words about its strides; None: each has bytes of
    its own. `strides`: in bytes. `size`: of an element.
    """
    inner: list[tuple[int, int]] = []  # extents and strides of the dimensions with smaller strides
    reach = size  # bytes from the first of what these hold to the end of its last
    if 0 in shape:
        return None
    for stride, extent, axis in sorted(
        (abs(stride), extent, axis)
        for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True))
        if extent > 1
    ):
        if not stride:
            return f"dimension {axis} has a stride of 0, as that of an expanded or broadcast view"
        near = range(stride, min(reach, stride * extent), stride)
        if any(_meet(inner, apart, size) for apart in near):
            return (
                f"dimension {axis} has a stride of {stride} bytes, and what it steps over takes"
                f" {reach}"
            )
        inner.append((extent, stride))
        reach += (extent - 1) * stride
    return None


def refuse_shared_memory(
    kernel: str, writes: Iterable[str], arrays: Mapping[str, Any], strides: Strides
) -> None:
    """Raises BindError when an array that a kernel writes overlaps another one, or itself: each
    element is taken for memory of its own.

    Args:
        kernel: its name, for the message. writes: the names of arrays that it writes.
        strides: gives those of an array, in bytes.
    """
    written = sorted(set(writes) & arrays.keys())
    for name in written:
        x = arrays[name]
        if why := shared_elements(tuple(x.shape), strides(x), item_bytes(x)):
            raise BindError(
                f"argument '{name}', which kernel '{kernel}' writes, has elements that share"
                f" memory: {why}. Each is taken for memory of its own; pass a copy"
            )
    here = {name: x for name, x in arrays.items() if isinstance(x, np.ndarray)}
    for name in written:
        for other, x in here.items():
            if name in here and other != name and share_memory(here[name], x):
                raise BindError(
                    f"arguments '{name}', which kernel '{kernel}' writes, and '{other}' share"
                    " memory: accesses through the two would not be ordered against each other."
                    " Pass one argument for both, or a copy."
                )


def _meet(dimensions: Sequence[tuple[int, int]], apart: int, size: int) -> bool:
    """True if two arrays of these extents and strides that begin `apart` bytes apart share any."""
    shape, strides = zip(*dimensions, strict=True) if dimensions else ((), ())
    first, second = (described(at, shape, strides, size) for at in (size, size + apart))
    return share_memory(first, second)


def share_memory(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    """True if two arrays share bytes; those side by side in the same rows do not. Strides that make
    it a puzzle are taken for shared.
    """
    try:
        return bool(np.shares_memory(x, y, max_work=MAX_WORK))
    except np.exceptions.TooHardError:
        return True


def described(
    address: int, shape: Sequence[int], strides: Sequence[int], size: int
) -> npt.NDArray[np.void]:
    """An array of these addresses, which may be a GPU's or nobody's: nothing is read there.

    Args:
        strides: in bytes. size: bytes of an element.
    """
    return np.asarray(
        _Interface(
            {
                "shape": tuple(shape),
                "strides": tuple(strides),
                "typestr": f"|V{size}",
                "data": (address, True),
                "version": 3,
            }
        )
    )


class _Interface:
    """An object that NumPy takes for an array."""

    def __init__(self, described: dict[str, object]) -> None:
        self.__array_interface__ = described


def array_order(array: Any, by_tma: bool = True) -> str:
    """Which of the last two dimensions is contiguous: "row", the last, or "col", the one before it.

    Where both are possible, because one of them has extent 1: the first whose other strides TMA
    accepts. `by_tma`: TMA is to move it, for the message.

    Raises:
        BindError: neither is.
    """
    size = item_bytes(array)
    strides = byte_strides(array)
    shape = tuple(array.shape)
    axes = {"row": len(shape) - 1, "col": len(shape) - 2}
    able = [
        order
        for order, axis in axes.items()
        if axis >= 0 and (strides[axis] == size or shape[axis] == 1)
    ]
    fit = [
        order
        for order in able
        if all(takes_stride(shape[i], strides[i]) for i in range(len(shape)) if i != axes[order])
    ]
    if able:
        return (fit or able)[0]
    copy = "Make a contiguous copy: np.ascontiguousarray(x), or x.contiguous() of PyTorch."
    if len(shape) == 1:
        raise BindError(
            f"an array of shape {shape} with strides {strides} bytes is not contiguous;"
            f" {'TMA' if by_tma else 'a kernel'} needs a stride of one element ({size} bytes)."
            f" {copy}"
        )
    raise BindError(
        f"an array of shape {shape} with strides {strides} bytes is contiguous in neither of its"
        f" last two dimensions; {'TMA' if by_tma else 'a kernel'} needs a stride of one element"
        f" ({size} bytes) in one of them. {copy}"
    )
