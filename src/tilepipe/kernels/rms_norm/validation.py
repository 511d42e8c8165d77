"""What the RMS norm takes: dtypes and shapes, each mistake one sentence."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.validation import Array, check_array
from tilepipe.kernels.rms_norm.config import MOST_ELEMENTS, WARPGROUP, RmsNormConfig

NAME = "rms_norm"
ELEMENTS = (tp.bfloat16, tp.float16, tp.float32)
# by bytes of an element of x
MOST_COLUMNS = {2: WARPGROUP * MOST_ELEMENTS, 4: WARPGROUP * MOST_ELEMENTS // 2}


def check_arguments(x: Array, weight: Array | None, y: Array) -> None:
    """Raises BindError where something is no array, has another dtype, or the shapes do not fit
    together.
    """
    check_array(NAME, "x", x, 2, ELEMENTS)
    check_array(NAME, "y", y, 2, ELEMENTS)
    rows, columns = x.shape
    if tuple(y.shape) != (rows, columns):
        raise tp.BindError(f"{NAME}: x is {rows}×{columns}, y {y.shape[0]}×{y.shape[1]}")
    if weight is not None:
        check_array(NAME, "weight", weight, 1, ELEMENTS)
        if tuple(weight.shape) != (columns,):
            raise tp.BindError(
                f"{NAME}: x has {columns} columns, weight {weight.shape[0]} elements"
            )
    most = MOST_COLUMNS[tp.tensor_map(x).dtype.nbytes]
    if columns > most:
        raise tp.BindError(
            f"{NAME}: a row of {columns} columns of {tp.tensor_map(x).dtype} does not fit in the"
            f" registers of a warpgroup; it may have {most}"
        )


def check_width(columns: int, nbytes: int, cfg: RmsNormConfig) -> None:
    """Raises BindError where the threads of a row hold too much of it."""
    held, most = cfg.width(columns) // cfg.threads * cfg.blocks, MOST_COLUMNS[nbytes] // WARPGROUP
    if held > most:
        raise tp.BindError(
            f"{NAME}: {columns} columns / {cfg.threads} threads · {cfg.blocks} blocks are {held}"
            f" elements a thread; its registers have room for {most}"
        )
