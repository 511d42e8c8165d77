"""Reductions of fragments, in the order in which printed code combines: first what a thread holds,
then the lanes of a warp, then warps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir.dtypes import DType
from tilepipe.ir.fragment import VECTOR, row_threads
from tilepipe.machine.memory.storage import rounded

Array = npt.NDArray[Any]

_LANES = 4  # lanes that hold a row of a wgmma accumulator, two of each eight columns
_CHAINS = 4  # sums of a thread of layout "rows:T" that do not depend on each other


def reduced_rows(values: Array, op: str, threads: int) -> Array:
    """The sum ("add"), maximum or minimum of each row of (m, n), as (m, 1). `threads`: T of layout
    "rows:T", 0 of the others.
    """
    if values.shape[1] == 1:
        return values
    if op != "add":
        return extremes(values, op, 1)
    if values.dtype.kind != "f":
        return np.add.reduce(values, axis=1, keepdims=True, dtype=values.dtype)
    rows, cols = values.shape
    if not threads:
        mine = values.reshape(rows, cols // 8, _LANES, 2).transpose(1, 3, 0, 2)
        return _adjacent(_in_turn(mine, 2))
    mine = values.reshape(rows, -1, threads, VECTOR // _CHAINS, _CHAINS).transpose(1, 3, 0, 2, 4)
    return _adjacent(_of_chains(_in_turn(mine, 2)))


def reduced_columns(values: Array, op: str, layout: str, threads: int) -> Array:
    """The sum, maximum or minimum of each column of (m, n), as (1, n), by an agent of so many
    threads.
    """
    if values.shape[0] == 1:
        return values
    if op != "add":
        return extremes(values, op, 0)
    if values.dtype.kind != "f":
        return np.add.reduce(values, axis=0, keepdims=True, dtype=values.dtype)
    holders = _holders(layout, threads)
    mine = _by_holder(values, layout, threads).reshape(-1, holders, values.shape[1])
    return _adjacent(_in_turn(mine, 1).T).T


def reduced(values: Array, op: str, layout: str, threads: int, dtype: DType) -> Any:
    """The sum, maximum or minimum of all elements of (m, n), as a scalar of a dtype: of integers a
    number of Python, since those of NumPy wrap round; a sum of signed ones is exact.
    """
    rows, cols = values.shape
    if op != "add":
        found = extremes(values.reshape(1, -1), op, 1)[0, 0]
        return found if dtype.is_float else int(found)
    if not dtype.is_float:
        exact = int(np.add.reduce(values, axis=None, dtype=np.int64))
        return exact if dtype.kind == "int" else exact % (1 << dtype.bits)
    if rows == 1:
        total = reduced_rows(values, op, row_threads(layout))
    elif cols == 1:
        total = reduced_columns(values, op, layout, threads)
    else:
        total = _reduced_matrix(_by_holder(values, layout, threads), row_threads(layout))
    return rounded(total.reshape(1), dtype)[0]


def _reduced_matrix(values: Array, threads: int) -> Array:
    """The sum of a matrix, of which each thread has four."""
    *_, cols = values.shape
    if not threads:
        # block, half, lane / 4, pair of columns, lane % 4, column of the pair
        split = values.reshape(-1, 2, 32, cols // 8, _LANES, 2)
        mine = split.transpose(0, 3, 2, 4, 1, 5).reshape(-1, 128, _CHAINS)
    else:
        groups = values.shape[1]
        split = values.reshape(-1, groups, cols // VECTOR // threads, threads, 2, _CHAINS)
        mine = split.transpose(0, 2, 4, 1, 3, 5).reshape(-1, groups * threads, _CHAINS)
    return _adjacent(_of_chains(_in_turn(mine, 1)))


def _holders(layout: str, threads: int) -> int:
    """The threads that hold different rows of a column."""
    return threads // row_threads(layout) if row_threads(layout) else 32


def _by_holder(values: Array, layout: str, threads: int) -> Array:
    """(m, n) as (rows of a thread, threads that hold different rows, n); of layouts other than
    "rows:T" the first axis is two: row block and half.
    """
    rows, cols = values.shape
    if row_threads(layout):
        return values.reshape(-1, _holders(layout, threads), cols)
    # warps hold 8 h + lane / 4 of each block of 16 rows
    if layout == "tmem":
        blocks = values.reshape(4, rows // 64, 2, 8, cols).transpose(1, 2, 0, 3, 4)
    else:
        blocks = values.reshape(rows // 64, 4, 2, 8, cols).transpose(0, 2, 1, 3, 4)
    return blocks.reshape(rows // 64, 2, 32, cols)


def extremes(values: Array, op: str, axis: int) -> Array:
    """The maximum or minimum along an axis, of which the result keeps one.

    Of floats as fmaxf and fminf from an infinity on (PTX ISA, max and min): a NaN gives way to a
    number, NaNs alone give the infinity, and -0 is less than +0.
    """
    if values.dtype.kind != "f":
        least: Array = (np.maximum if op == "max" else np.minimum).reduce(
            values, axis=axis, keepdims=True
        )
        return least
    start = np.float32(-np.inf if op == "max" else np.inf)
    found: Array = (np.fmax if op == "max" else np.fmin).reduce(
        values, axis=axis, keepdims=True, initial=start
    )
    if not found.all():  # NumPy takes either of two zeros
        zero = np.float32(0.0 if op == "max" else -0.0)
        there = (values == 0) & (np.signbit(values) == np.signbit(zero))
        found = np.where(
            found == 0, np.where(there.any(axis=axis, keepdims=True), zero, -zero), found
        )
    return found


def found_in_rows(values: Array, op: str) -> tuple[Array, Array]:
    """The maximum or minimum of each row of (m, n), and the least column that has it, (m, 1) each.
    A NaN counts as the infinity that any number beats.
    """
    best = extremes(values, op, 1)
    has = values == best
    if values.dtype.kind == "f":
        has |= np.isnan(values) & np.isinf(best) & (np.signbit(best) == (op == "max"))
    return best, np.argmax(has, axis=1, keepdims=True).astype(np.int32)


def _in_turn(values: Array, axes: int) -> Array:
    """The sum over the first axes, one element after the other, from 0 on. NumPy adds in turn where
    it reduces the outermost axis of an array that lies in its order in memory.
    """
    flat = np.ascontiguousarray(values).reshape(-1, *values.shape[axes:])
    if flat[0].size == 1:  # one number after the other in memory, which NumPy adds in pairs
        total: Array = np.add.accumulate(np.concatenate([np.zeros_like(flat[:1]), flat]))[-1]
    else:
        total = np.add.reduce(flat, axis=0, initial=np.float32(0))
    return total


def _of_chains(sums: Array) -> Array:
    """The four sums of each thread, joined."""
    joined: Array = (sums[..., 0] + sums[..., 2]) + (sums[..., 1] + sums[..., 3])
    return joined


def _adjacent(values: Array) -> Array:
    """The sums over the last axis, 2^k of it, as a butterfly of lanes adds: neighbours first."""
    while values.shape[-1] > 1:
        values = values[..., 0::2] + values[..., 1::2]
    return values
