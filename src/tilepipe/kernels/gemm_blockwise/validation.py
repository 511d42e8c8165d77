"""What the blockwise fp8 GEMM takes: dtypes, shapes and memory orders, each mistake one
sentence.
"""

from __future__ import annotations

from typing import Any

import tilepipe as tp
from tilepipe.kernels.common.validation import check_array, check_product, mapped
from tilepipe.kernels.gemm_blockwise.config import BLOCK

NAME = "gemm_blockwise"
OUTPUTS: tuple[tp.DType, ...] = (tp.bfloat16, tp.float16, tp.float32)


def blocks_of(extent: int) -> int:
    """Blocks of 128 that an extent has, the last of them perhaps shorter."""
    return -(-extent // BLOCK)


def check_arguments(a: Any, b: Any, a_scales: Any, b_scales: Any, c: Any) -> tuple[int, int, int]:
    """(m, n, k) of arrays a (m, k), b (n, k), c (m, n), a_scales (k blocks, m) or (m, k blocks),
    b_scales (n blocks, k blocks).

    Raises:
        BindError: something is no array, has another dtype, or the shapes do not fit together.
    """
    takes = {
        "a": (tp.float8_e4m3,),
        "b": (tp.float8_e4m3,),
        "a_scales": (tp.float32,),
        "b_scales": (tp.float32,),
        "c": OUTPUTS,
    }
    for (name, dtypes), x in zip(takes.items(), (a, b, a_scales, b_scales, c), strict=True):
        check_array(NAME, name, x, 2, dtypes)
    check_product(NAME, a, b, c)
    (m, k), n = a.shape, b.shape[0]
    wanted = blocks_of(n), blocks_of(k)
    if tuple(b_scales.shape) != wanted:
        raise tp.BindError(
            f"{NAME}: b_scales has shape {tuple(b_scales.shape)}; B is {n}×{k}, in blocks of"
            f" {BLOCK}×{BLOCK} {wanted}"
        )
    for name, x in (("A", a), ("B", b)):
        if tp.tensor_map(x).order != "row":
            raise tp.BindError(
                f"{NAME}: {name} must be contiguous along k; tensor cores do not transpose fp8."
                " Pass a copy that is"
            )
    return m, n, k


def scales_by_rows(a_scales: Any, m: int, k: int) -> Any:
    """The scales of A as (k blocks, m) with M contiguous, as TMA reads them.

    Raises:
        BindError: another shape, or K contiguous.
    """
    shape, blocks = tuple(a_scales.shape), blocks_of(k)
    order = mapped(NAME, "a_scales", a_scales).order
    if shape == (blocks, m) and (order == "row" or m == 1):
        return a_scales
    if shape == (m, blocks) and (order == "col" or m == 1 or blocks == 1):
        return a_scales.swapaxes(0, 1)
    raise tp.BindError(
        f"{NAME}: a_scales has shape {shape}, its {'last' if order == 'row' else 'first'}"
        " dimension contiguous. It must be"
        f" ({blocks}, {m}) in row order or ({m}, {blocks}) in column order, with M contiguous: a"
        f" scale for each of the {m} rows and"
        f" {blocks} blocks of {BLOCK} of K"
    )


def boxed(name: str, x: Any, box: tuple[int, int]) -> tp.TensorMap:
    """The tensor map of an argument in row order.

    Raises:
        BindError: TMA cannot take it; the message names the argument.
    """
    return mapped(NAME, name, x, box, order="row")
