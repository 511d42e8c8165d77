"""Checks that every kernel makes of its arguments; messages name the kernel and the argument."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import tilepipe as tp

# float32 holds them, and what is left of them times a score
SMALLEST_SCALE, LARGEST_SCALE = 2.0**-100, 2.0**100


class Array(Protocol):
    """What a kernel is bound to: an array of NumPy, PyTorch, or another framework."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""

    @property
    def dtype(self) -> Any:
        """The framework's dtype."""

    def swapaxes(self, axis0: int, axis1: int, /) -> Any:
        """A view with two dimensions exchanged."""


def check_config(kernel: str, cfg: object, wanted: type, name: str) -> None:
    """Raises BindError for a configuration that is of another kernel, or none. `name`: of the class
    that is wanted, with its article.
    """
    if not isinstance(cfg, wanted):
        raise tp.BindError(f"{kernel}: cfg is {name}, got {cfg!r}")


def mapped(
    kernel: str,
    name: str,
    x: Array,
    box: tuple[int, ...] | None = None,
    order: str | None = None,
    *,
    given: Array | None = None,
    **rest: Any,
) -> tp.TensorMap:
    """`tp.tensor_map(x, box, order=order, **rest)` of the argument `name` of `kernel`.

    Args:
        given: the argument, rows along its last dimension, where `x` is another view of it.

    Raises:
        BindError: it cannot be; the message names both, and speaks of what was given.
    """
    try:
        return tp.tensor_map(x, box=box, order=order, **rest)
    except tp.BindError as error:
        found = error if given is None else _of_given(kernel, name, given, error)
        message, array = f"{kernel}: {name}: {found}", x if given is None else given
        wants, copy = found.padding, ""
        if wants is not None and isinstance(array, np.ndarray):
            copy = _padded_copy(name, array, wants.extent, wants.padded)
        told = tp.BindError(message + copy)
        told.rule, told.padding = message, None if wants is None else replace(wants, operand=name)
        raise told from None


def _of_given(kernel: str, name: str, given: Array, error: tp.BindError) -> tp.BindError:
    """Why TMA takes no view of an array, said of the array; `error`, where the view is why."""
    box = (*(1,) * (len(given.shape) - 1), 128 // dtype_of(kernel, name, given).bits)
    try:
        tp.tensor_map(given, box, swizzle=0, order="row")
    except tp.BindError as found:
        return found
    return error


def unboxed(kernel: str, name: str, x: Array | None) -> tp.TensorMap | None:
    """An argument that may be None, for ordinary loads and stores.

    Raises:
        BindError: its elements lie apart; the message has the name that the user knows.
    """
    return None if x is None else mapped(kernel, name, x)


def _padded_copy(name: str, x: npt.NDArray[Any], extent: int, padded: int) -> str:
    """Advice: a copy that TMA takes, in the order of the array; `padded`: the elements of its
    contiguous dimension, `extent` in the array.
    """
    turned = x.shape[-1] > 1 and x.strides[-1] != x.itemsize  # columns are contiguous
    outer = (x.swapaxes(-1, -2) if turned else x).shape[:-1]
    copy = f"np.zeros({(*outer, padded)}, {name}.dtype)[..., :{extent}]"
    return (
        f" {name} has strides of {x.strides} bytes. A copy that TMA takes: padded ="
        f" {copy}{'.swapaxes(-1, -2)' if turned else ''}; padded[...] = {name}"
    )


def check_array(
    kernel: str, name: str, x: object, rank: int = 0, dtypes: tuple[tp.DType, ...] = ()
) -> None:
    """Raises BindError for what is not an array, or, where they are given, of another rank or
    dtype. With dtypes, also for an array that no kernel takes: without elements, or strided.
    """
    shape = getattr(x, "shape", None)
    if shape is None or not hasattr(x, "dtype"):
        raise tp.BindError(f"{kernel}: {name} must be an array, got {x!r:.40}")
    if rank and len(shape) != rank:
        said = {1: "have 1 dimension", 2: "be a matrix"}.get(rank, f"have {rank} dimensions")
        raise tp.BindError(f"{kernel}: {name} must {said}, it has shape {tuple(shape)}")
    if dtypes and tuple(shape):
        found = mapped(kernel, name, x).dtype  # type: ignore[arg-type]
        if found not in dtypes:
            takes = ", ".join(t.name for t in dtypes)
            verb = "must" if len(dtypes) == 1 else "may"
            raise tp.BindError(f"{kernel}: {name} is {found}; it {verb} be {takes}")


def check_arrays(
    kernel: str, takes: Mapping[str, tuple[object, int, tuple[tp.DType, ...]]]
) -> None:
    """`check_array` of each argument: its array, rank and dtypes."""
    for name, (x, rank, dtypes) in takes.items():
        check_array(kernel, name, x, rank, dtypes)


def dtype_of(kernel: str, name: str, x: Any) -> tp.DType:
    """The dtype of an array, which may have no elements, or of a tensor map.

    Raises:
        BindError: one that tilepipe does not know.
    """
    if isinstance(x, tp.TensorMap):
        return x.dtype
    kind = x.dtype if isinstance(x.dtype, np.dtype) else str(x.dtype).removeprefix("torch.")
    try:
        return tp.dtype(kind)
    except tp.BindError as error:
        raise tp.BindError(f"{kernel}: {name}: {error}") from None


def check_product(
    kernel: str, a: Array | tp.TensorMap, b: Array | tp.TensorMap, c: Array, times: str = ""
) -> None:
    """Raises BindError unless A (m, k), B (n, k) and C (m, n) fit together. `times`: of B, in
    words.
    """
    (m, k), (n, kb), out = a.shape[-2:], b.shape[-2:], tuple(c.shape[-2:])
    if kb != k or out != (m, n):
        raise tp.BindError(
            f"{kernel}: A is {m}×{k} and B {times}{n}×{kb} (n, k); C must be {m}×{n} and both k"
            f" equal, C is {'×'.join(map(str, out))}"
        )


def check_scale(kernel: str, scale: object, d: int) -> float:
    """The factor of the scores of heads of d elements; None: 1/sqrt(d).

    Raises:
        BindError: it is no positive number that float32 holds, with room for a score.
    """
    if scale is None:
        return 1.0 / math.sqrt(d)
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise tp.BindError(f"{kernel}: scale must be a number, got {scale!r}")
    value = float(scale)
    if not SMALLEST_SCALE <= value <= LARGEST_SCALE:
        raise tp.BindError(
            f"{kernel}: scale must be positive and finite, 2^-100 to 2^100, got {value}; for a"
            " negative one pass -q"
        )
    return value


def check_descale_values(kernel: str, name: str, x: Array) -> None:
    """Asserts that descales (batch, kv_heads) are numbers from 0 to 2^100. Only NumPy arrays are
    read.

    Raises:
        BindError: one is negative, NaN, or more.
    """
    if not isinstance(x, np.ndarray):
        return
    bad = np.argwhere(~((x >= 0) & (x <= LARGEST_SCALE)))
    if len(bad):
        at = tuple(map(int, bad[0]))
        raise tp.BindError(
            f"{kernel}: {name} has numbers from 0 to 2^100; of {at}, (batch, kv_head), it is"
            f" {x[at]}"
        )


def check_score_factor(kernel: str, scale: float, factors: Mapping[str, Array | float]) -> None:
    """Asserts that scale times descales, which have been checked, is at most 2^100, where the host
    knows it: numbers and NumPy arrays of one shape are read; of others nothing is asked.

    Raises:
        BindError: it is more than float32 holds beside a score.
    """
    given = list(factors.values())
    numbers = [x for x in given if isinstance(x, float)]
    arrays = [x for x in given if isinstance(x, np.ndarray)]
    if len(numbers) == len(given):
        most = scale  # not by NumPy, which torch.compile would trace
        for number in numbers:
            most *= number
    elif len(arrays) == len(given):
        wide = np.full(arrays[0].shape, scale, np.float64)
        for array in arrays:
            wide *= array
        most = float(wide.max(initial=0))
    else:
        return
    if most > LARGEST_SCALE:
        raise tp.BindError(
            f"{kernel}: {' · '.join(('scale', *factors))} is what scores are multiplied with, at"
            f" most 2^100; scale is {scale:.4g} here, and the product {most:.4g}: lower"
            f" {' or '.join(factors)}"
        )
