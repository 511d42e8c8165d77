"""What the block-scaled GEMM takes: dtypes, shapes and layouts of elements and scales, each mistake
one sentence.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.common.multicast import load_rows
from tilepipe.kernels.common.validation import Array, check_array, check_product, mapped
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.kernels.gemm_block_scaled.config import BlockScaledGemmConfig
from tilepipe.kernels.gemm_block_scaled.layout import blocked_shape

if TYPE_CHECKING:
    import torch

Scales: TypeAlias = "npt.NDArray[np.generic] | torch.Tensor"

NAME = "gemm_block_scaled"


def operand_map(name: str, x: Array, cfg: BlockScaledGemmConfig, rows: int) -> tp.TensorMap:
    """The tensor map of A or B, `rows` rows of one copy. fp4 comes packed, as uint8 (rows, k / 2)
    or PyTorch's float4_e2m1fn_x2.

    Raises:
        BindError: another dtype than the kind has, not a matrix, k not contiguous or no multiple of
            a block, or what TMA cannot take.
    """
    check_array(NAME, name, x, 2)
    elements = cfg.format.elements
    dtype = mapped(NAME, name, x).dtype
    packed = elements[0] if dtype is tp.uint8 and tp.dtype(elements[0]).bits < 8 else None
    found = packed or dtype.name
    if found not in elements:
        how = (
            ", packed as uint8: two numbers to a byte along k"
            if tp.dtype(elements[0]).bits < 8
            else ""
        )
        raise tp.BindError(
            f"{NAME}: {name} is {found}; {cfg.kind} has {' and '.join(elements)}{how}"
        )
    try:
        if tp.tensor_map(x, dtype=packed).order != "row":
            raise tp.BindError("k must be the contiguous dimension; pass a copy that is")
        made = tp.tensor_map(x, box=(rows, cfg.bk), order="row", dtype=packed)
    except tp.BindError as error:
        raise tp.BindError(f"{NAME}: {name}: {error}") from None
    if made.shape[1] % cfg.format.block:
        raise tp.BindError(
            f"{NAME}: {name} has k = {made.shape[1]}; a scale of {cfg.kind} is of"
            f" {cfg.format.block} elements along k"
        )
    return made


def scales_map(name: str, x: Scales, rows: int, k: int, cfg: BlockScaledGemmConfig) -> tp.TensorMap:
    """The tensor map of the scales of a matrix (rows, k), as (pieces along the rows, lines along K,
    256): an array of `layout.blocked_shape`, or of any shape with as many elements, one after the
    other.

    Raises:
        BindError: another dtype or number of elements, or gaps between them.
    """
    check_array(NAME, name, x)
    scale = tp.dtype(cfg.format.scale)
    found = mapped(NAME, name, x).dtype
    if found not in (scale, tp.uint8):
        raise tp.BindError(
            f"{NAME}: {name} is {found}; scales of {cfg.kind} are {scale}, or its bytes as uint8"
        )
    pieces = blocked_shape(rows, cfg.format.scales_of(k))
    if prod(x.shape) != prod(pieces):
        raise tp.BindError(
            f"{NAME}: {name} has shape {tuple(x.shape)}, {prod(x.shape):,} scales; those of"
            f" {rows}×{k} in pieces of 128 rows × 4 blocks of"
            f" {cfg.format.block} are {' · '.join(map(str, pieces))} = {prod(pieces):,}"
            " (tilepipe.kernels.gemm_block_scaled.layout.to_blocked makes them)"
        )
    layout = tp.scale_factor_k_major(rows, cfg.format.scales_of(k))
    try:
        flat = x.reshape((layout.row_pieces, *layout.box[1:]))
        if isinstance(x, np.ndarray) and not x.flags.c_contiguous:
            raise tp.BindError("its elements must lie one after the other; pass a contiguous copy")
        return tp.tensor_map(
            flat,
            box=tp.scale_factor_k_major(cfg.bm, cfg.blocks).box,
            swizzle=0,
            order="row",
            dtype=scale if found is tp.uint8 else None,
        )
    except tp.BindError as error:
        raise tp.BindError(f"{NAME}: {name}: {error}") from None


def maps(
    a: Array, b: Array, sfa: Scales, sfb: Scales, c: Array, cfg: BlockScaledGemmConfig
) -> tuple[tp.TensorMap, ...]:
    """The tensor maps of A, B and their scales, for arrays that fit together.

    Raises:
        BindError: what does not.
    """
    check_array(NAME, "c", c, 2, OUTPUTS)
    a_map = operand_map("a", a, cfg, load_rows(cfg.bm // cfg.cluster_n))
    b_map = operand_map("b", b, cfg, load_rows(cfg.b_rows // (cfg.cluster // cfg.cta_group)))
    check_product(NAME, a_map, b_map, c)
    (m, k), n = a_map.shape, b_map.shape[0]
    return a_map, b_map, scales_map("sfa", sfa, m, k, cfg), scales_map("sfb", sfb, n, k, cfg)
