"""What the kernels of rows take: dtypes and shapes, each mistake one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tilepipe as tp
from tilepipe.kernels.common.validation import Array, check_array, check_config
from tilepipe.kernels.rows.config import RowConfig

ELEMENTS = (tp.bfloat16, tp.float16, tp.float32)
LABELS = (tp.int32, tp.int64)
# Bytes of one operand's row that a thread holds, in 64 registers.
MOST_BYTES = 256
MOST_COLUMNS = {2: 262144, 4: 131072}  # by bytes of an element
MOST_TWICE = {2: 131072, 4: 65536}  # where a thread holds two rows
MOST_BACKWARD = {2: 65536, 4: 32768}  # of a norm's backward pass, which holds two rows and sums


def check_rows(
    kernel: str, matrices: Mapping[str, Array], vectors: Mapping[str, Array | None]
) -> None:
    """Raises BindError where something is no array, has another dtype, or the shapes do not fit
    together: matrices (m, n), all alike, and vectors (n,), which may be None.
    """
    for name, x in matrices.items():
        check_array(kernel, name, x, 2, ELEMENTS)
    (first, x), *others = matrices.items()
    rows, columns = x.shape
    for name, y in others:
        if tuple(y.shape) != (rows, columns):
            raise tp.BindError(
                f"{kernel}: {first} is {rows}×{columns}, {name} {y.shape[0]}×{y.shape[1]}"
            )
    for name, v in vectors.items():
        if v is None:
            continue
        check_array(kernel, name, v, 1, ELEMENTS)
        if tuple(v.shape) != (columns,):
            raise tp.BindError(
                f"{kernel}: {first} has {columns} columns, {name} {v.shape[0]} elements"
            )


def check_values(kernel: str, x: Array, dtypes: tuple[tp.DType, ...], **given: Array) -> None:
    """Raises BindError for what is not one value of these dtypes for each row of `x`."""
    for name, v in given.items():
        check_array(kernel, name, v, 1, dtypes)
        if tuple(v.shape) != tuple(x.shape[:1]):
            raise tp.BindError(
                f"{kernel}: there are {x.shape[0]} rows, and {name} has {v.shape[0]} elements"
            )


def nbytes_of(*arrays: Array | None) -> int:
    """Bytes of the widest element."""
    return max(tp.tensor_map(x).dtype.nbytes for x in arrays if x is not None)


def checked(
    kernel: str,
    cfg: RowConfig | None,
    choose: Callable[[int, int], RowConfig],
    x: Array,
    *vectors: Array | None,
    most_columns: Mapping[int, int] = MOST_COLUMNS,
) -> RowConfig:
    """The configuration, chosen unless it is given.

    Raises:
        BindError: it is none, the row is too long, or its threads hold too much of it.
    """
    columns, own = x.shape[1], nbytes_of(x)
    if columns > most_columns[own]:
        raise tp.BindError(
            f"{kernel}: a row of {columns} columns of {tp.tensor_map(x).dtype} does not fit in the"
            f" registers of a cluster; it may have {most_columns[own]}"
        )
    if cfg is None:
        return choose(columns, nbytes_of(x, *vectors))
    check_config(kernel, cfg, RowConfig, "a RowConfig")
    held, most = cfg.width(columns) // cfg.threads * cfg.blocks, MOST_BYTES // own
    if held > most:
        raise tp.BindError(
            f"{kernel}: {columns} columns / {cfg.threads} threads / {cfg.members} members ·"
            f" {cfg.blocks} blocks are {held} elements a thread; its registers have room for {most}"
        )
    return cfg


def check_parts(kernel: str, parts: Array | None, count: int, x: Array, cfg: RowConfig) -> None:
    """Raises BindError unless `parts` has room for `count` partial sums of each column."""
    if parts is None:
        return
    check_array(kernel, "parts", parts, 3, (tp.float32,))
    groups, rows, columns = parts.shape
    if (groups, columns) != (count, x.shape[1]) or rows % cfg.cta_rows:
        raise tp.BindError(
            f"{kernel}: parts must have shape ({count}, p, {x.shape[1]}), p a multiple of the"
            f" {cfg.cta_rows} rows of a CTA, it has {tuple(parts.shape)}"
        )
