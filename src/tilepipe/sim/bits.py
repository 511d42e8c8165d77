"""The bits of values as other dtypes, and the order of a fragment's columns whose elements are
split (`ir.expressions.Bitcast`, `Interleave`); generated code calls them.

Values are in storage form: floats of up to 32 bits are float32, integers may be in wider arrays.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import split_columns
from tilepipe.ir.fragment import FOURS_ORDER
from tilepipe.machine.memory.storage import storage

Array = npt.NDArray[Any]


def bitcast(values: Array, source: DType, target: DType) -> Array:
    """The bits of `values`, elements of `source`, as elements of `target`; where that is smaller,
    each row's elements are split, where it is larger they are joined.
    """
    exact = np.ascontiguousarray(values.astype(source.numpy))
    if source.bits == target.bits:
        return exact.view(target.numpy).astype(storage(target), copy=False).reshape(values.shape)
    rows, cols = values.shape
    if source.bits < target.bits:
        parts = target.bits // source.bits
        joined = _gathered(exact, parts).view(target.numpy)
        return joined.astype(storage(target), copy=False).reshape(rows, cols // parts)
    parts = source.bits // target.bits
    split = exact.view(target.numpy).astype(storage(target)).reshape(rows, cols, parts)
    return _ordered(split)


def interleaved(low: Array, high: Array, shape: tuple[int, int]) -> Array:
    """Two values of `shape` as the parts of split elements."""
    pair = [np.broadcast_to(half, shape) for half in (low, high)]
    return _ordered(np.stack(pair, axis=-1))


def in_fours(values: Array) -> Array:
    """A value with the columns of each 16 in the order of layout "fours"."""
    rows, cols = values.shape
    out: Array = values.reshape(rows, cols // 16, 16)[:, :, list(FOURS_ORDER)]
    return out.reshape(rows, cols)


def _ordered(split: Array) -> Array:
    """The parts of elements, (rows, columns, parts), as the columns of a fragment."""
    rows, cols, parts = split.shape
    column, part = _places(parts)
    eights = split.reshape(rows, cols // 8, 8, parts)
    out: Array = eights[:, :, column, part].reshape(rows, cols * parts)
    return out


def _gathered(values: Array, parts: int) -> Array:
    """The columns of a fragment as the parts of elements, (rows, columns, parts): what `_ordered`
    has put apart.
    """
    rows, cols = values.shape
    column, part = _places(parts)
    out = np.empty((rows, cols // (8 * parts), 8, parts), values.dtype)
    out[:, :, column, part] = values.reshape(rows, -1, 8 * parts)
    return out.reshape(rows, cols // parts, parts)


@cache
def _places(parts: int) -> tuple[Array, Array]:
    columns, of_it = zip(*split_columns(parts), strict=True)
    return np.array(columns), np.array(of_it)
