"""Sums of rows up to each column, in the order in which printed code adds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir.fragment import VECTOR

Array = npt.NDArray[Any]


def scanned_rows(values: Array, threads: int) -> Array:
    """The sum of each row of (m, n) up to and with each column. `threads`: T of layout "rows:T", 0
    of the others, in which four lanes hold two columns of each eight.

    A thread adds its neighbouring columns in turn, lanes add what the lane 1, then 2, 4, ... before
    them has, and each result is (all rounds before + all lanes before) + its thread's own.
    """
    if values.dtype.kind != "f":
        wrapped: Array = np.add.accumulate(values, axis=1, dtype=values.dtype)
        return wrapped
    lanes, width = (threads, VECTOR) if threads else (4, 2)
    mine = values.reshape(len(values), -1, lanes, width)
    mine = np.add.accumulate(mine, axis=3)
    upto = mine[..., -1].copy()
    step = 1
    while step < lanes:
        upto[..., step:] = upto[..., step:] + upto[..., :-step]
        step *= 2
    rounds = np.zeros_like(upto[..., -1])
    rounds[:, 1:] = np.add.accumulate(upto[:, :-1, -1], axis=1)
    before = np.zeros_like(upto)
    before[..., 1:] = upto[..., :-1]
    found: Array = (rounds[..., None] + before)[..., None] + mine
    return found.reshape(values.shape)
