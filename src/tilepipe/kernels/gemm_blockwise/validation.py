"""What the blockwise fp8 GEMM takes: dtypes, shapes and memory orders, each mistake one
sentence.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.multicast import load_rows
from tilepipe.kernels.common.tiling import OutputTiling, store_width
from tilepipe.kernels.common.validation import Array, check_arrays, check_product, mapped
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.kernels.gemm_blockwise.config import BLOCK

NAME = "gemm_blockwise"


def blocks_of(extent: int) -> int:
    """Blocks of 128 that an extent has, the last of them perhaps shorter."""
    return -(-extent // BLOCK)


def check_arguments(a: Array, b: Array, a_scales: Array, b_scales: Array, c: Array) -> None:
    """Checks arrays a (m, k), b (n, k), c (m, n), a_scales (k blocks, m) or (m, k blocks),
    b_scales (n blocks, k blocks).

    Raises:
        BindError: something is no array, has another dtype, or the shapes do not fit together.
    """
    check_arrays(
        NAME,
        {
            "a": (a, 2, (tp.float8_e4m3,)),
            "b": (b, 2, (tp.float8_e4m3,)),
            "a_scales": (a_scales, 2, (tp.float32,)),
            "b_scales": (b_scales, 2, (tp.float32,)),
            "c": (c, 2, OUTPUTS),
        },
    )
    check_product(NAME, a, b, c)
    n, k = b.shape
    wanted = blocks_of(n), blocks_of(k)
    if tuple(b_scales.shape) != wanted:
        raise tp.BindError(
            f"{NAME}: b_scales has shape {tuple(b_scales.shape)}; B is {n}×{k}, in blocks of"
            f" {BLOCK}×{BLOCK} {wanted}"
        )
    check_orders(NAME, a, b)


def check_orders(kernel: str, a: Array, b: Array) -> None:
    """Raises BindError unless A (..., m, k) and B (..., n, k) of fp8 are contiguous along k."""
    for name, x in (("a", a), ("b", b)):
        if mapped(kernel, name, x).order != "row":
            raise tp.BindError(
                f"{kernel}: {name.upper()} must be contiguous along k; tensor cores do not"
                " transpose fp8. Pass a copy that is"
            )


def scales_by_rows(
    a_scales: Array,
    m: int,
    k: int,
    batch: tuple[int, ...] = (),
    kernel: str = NAME,
    name: str = "a_scales",
    extent: str = "M",
) -> Array:
    """The scales of A as (*batch, k blocks, m) with M contiguous, as TMA reads them. `kernel`,
    `name`, `extent`: for messages, of other scales.

    Raises:
        BindError: another shape, or K contiguous.
    """
    shape, blocks = tuple(a_scales.shape), blocks_of(k)
    order = mapped(kernel, name, a_scales).order
    right, turned = (*batch, blocks, m), (*batch, m, blocks)
    if shape == right and (order == "row" or m == 1):
        return a_scales
    if shape == turned and (order == "col" or m == 1 or blocks == 1):
        view: Array = a_scales.swapaxes(-1, -2)
        return view
    raise tp.BindError(
        f"{kernel}: {name} has shape {shape}, its"
        f" {'last' if order == 'row' else 'second to last' if batch else 'first'}"
        " dimension contiguous. It must be"
        f" {right} in row order or {turned} in column order, with {extent} contiguous: a"
        f" scale for each of the {m} rows and"
        f" {blocks} blocks of {BLOCK} of K"
    )


def maps(
    a: Array, b: Array, a_scales: Array, c: Array, cfg: OutputTiling, parts: tuple[int, int]
) -> list[tp.TensorMap]:
    """The tensor maps of A, B, the scales of A, and C, all in row order.

    Args:
        parts: rows of the tiles of A and B that a CTA loads.

    Raises:
        BindError: TMA cannot take one; the message names the argument.
    """
    m, k = a.shape
    width = store_width(mapped(NAME, "c", c).dtype, cfg)
    boxes = {
        "a": (a, (load_rows(parts[0]), BLOCK)),
        "b": (b, (load_rows(parts[1]), BLOCK)),
        "a_scales": (scales_by_rows(a_scales, m, k), (1, cfg.bm)),
        "c": (c, (cfg.block_rows, width)),
    }
    return [mapped(NAME, name, x, box, order="row") for name, (x, box) in boxes.items()]
