"""What the blockwise fp8 GEMM with groups along K takes: dtypes, shapes and memory orders, each
mistake one sentence.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.multicast import load_rows
from tilepipe.kernels.common.tiling import store_width
from tilepipe.kernels.common.validation import Array, check_arrays, mapped
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.kernels.gemm_blockwise.config import BLOCK
from tilepipe.kernels.gemm_blockwise.validation import check_orders, scales_by_rows
from tilepipe.kernels.gemm_k_grouped.validation import check_groups
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig

NAME = "gemm_k_grouped_blockwise"


def check_arguments(
    a: Array, b: Array, a_scales: Array, b_scales: Array, c: Array, offsets: Array
) -> None:
    """Checks arrays a (m, k), b (n, k), c (groups, m, n), offsets (groups,), and the dtypes and
    ranks of scales.

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
            "c": (c, 3, OUTPUTS),
            "offsets": (offsets, 1, (tp.int32,)),
        },
    )
    check_groups(NAME, a, b, c, offsets)
    check_orders(NAME, a, b)


def maps(
    a: Array,
    b: Array,
    a_scales: Array,
    b_scales: Array,
    c: Array,
    cfg: KGroupedBlockwiseGemmConfig,
) -> tuple[tp.TensorMap, tp.TensorMap, tp.TensorMap, tp.TensorMap, tp.TensorMap]:
    """The tensor maps of A, B, the scales of A, those of B (k blocks, n), and C, in row order.

    Raises:
        BindError: TMA cannot take one, or scales of another shape; the message names the argument.
    """
    (m, k), n = a.shape, b.shape[0]
    out = mapped(NAME, "c", c).dtype
    rows = scales_by_rows(a_scales, m, k, kernel=NAME)
    columns = scales_by_rows(b_scales, n, k, kernel=NAME, name="b_scales", extent="N")
    stored = 1, cfg.block_rows, store_width(out, cfg)
    return (
        mapped(NAME, "a", a, (load_rows(cfg.bm // cfg.cluster_n), BLOCK), order="row"),
        mapped(NAME, "b", b, (load_rows(cfg.bn // cfg.cluster), BLOCK), order="row"),
        mapped(NAME, "a_scales", rows, (1, cfg.bm), order="row"),
        # Read by ordinary loads: what is known of a map's addresses lets a load take two numbers.
        # What that saves is not measured.
        mapped(NAME, "b_scales", columns, (1, cfg.bn), order="row"),
        mapped(NAME, "c", c, stored, order="row"),
    )
