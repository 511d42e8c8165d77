"""Reductions of fragments, in the order in which printed code combines: first what a thread holds,
then the lanes of a warp, then warps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir.fragment import VECTOR

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
    chains = _in_turn(mine, 2)
    return _adjacent((chains[..., 0] + chains[..., 2]) + (chains[..., 1] + chains[..., 3]))


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
    total: Array = np.add.reduce(flat, axis=0, initial=np.float32(0))
    return total


def _adjacent(values: Array) -> Array:
    """The sums over the last axis, 2^k of it, as a butterfly of lanes adds: neighbours first."""
    while values.shape[-1] > 1:
        values = values[..., 0::2] + values[..., 1::2]
    return values
