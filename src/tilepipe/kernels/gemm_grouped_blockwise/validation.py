"""What the grouped blockwise fp8 GEMM takes: dtypes, shapes and memory orders, each mistake one
sentence.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.multicast import MAX_BOX_ROWS, load_rows
from tilepipe.kernels.common.tiling import store_width
from tilepipe.kernels.common.validation import Array, check_arrays, check_product, mapped
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.validation import blocks_of, check_orders, scales_by_rows
from tilepipe.kernels.gemm_grouped.validation import check_rank

NAME = "gemm_grouped_blockwise"
SCALES_OF_16_BYTES = 4  # of float32: TMA copies begin at a multiple of so many
UNIT = 32  # of float32: tiles in shared memory begin at multiples of 128 bytes


def scales_of_block(cfg: BlockwiseGemmConfig) -> int:
    """Scales of A that a stage has room for, of a block of K: those of a tile's rows, and of three
    before them.
    """
    return -(-(cfg.bm + SCALES_OF_16_BYTES - 1) // UNIT) * UNIT


def scales_of_copy(cfg: BlockwiseGemmConfig) -> int:
    """Scales of one TMA copy: all of a block, or an equal part that a box can have."""
    whole = scales_of_block(cfg)
    return next(
        whole // parts
        for parts in range(1, whole)
        if whole % (parts * UNIT) == 0 and whole // parts <= MAX_BOX_ROWS
    )


def check_arguments(
    a: Array, b: Array, a_scales: Array, b_scales: Array, c: Array, offsets: Array
) -> None:
    """Checks arrays a (m, k), b (groups, n, k), c (m, n), a_scales (k blocks, m) or (m, k blocks),
    b_scales (groups, n blocks, k blocks), offsets (groups,); or a, c and a_scales with a matrix for
    each group.

    Raises:
        BindError: something is no array, has another dtype, or the shapes do not fit together.
    """
    rank = check_rank(NAME, a, (tp.float8_e4m3,))
    check_arrays(
        NAME,
        {
            "b": (b, 3, (tp.float8_e4m3,)),
            "a_scales": (a_scales, rank, (tp.float32,)),
            "b_scales": (b_scales, 3, (tp.float32,)),
            "c": (c, rank, OUTPUTS),
            "offsets": (offsets, 1, (tp.int32,)),
        },
    )
    groups, n, k = b.shape
    check_product(NAME, a, b, c, f"{groups} times ")
    wanted = {
        "offsets": (offsets, (groups,)),
        "b_scales": (b_scales, (groups, blocks_of(n), blocks_of(k))),
    }
    if rank == 3:
        wanted["a"], wanted["c"] = ((x, (groups, *x.shape[1:])) for x in (a, c))
    for name, (x, shape) in wanted.items():
        if tuple(x.shape) != shape:
            raise tp.BindError(
                f"{NAME}: {name} must have shape {shape}, it has {tuple(x.shape)}; B is {groups}"
                f" times {n}×{k}, its scales of blocks of {BLOCK}×{BLOCK}"
            )
    check_orders(NAME, a, b)


def maps(
    a: Array, b: Array, a_scales: Array, c: Array, cfg: BlockwiseGemmConfig
) -> list[tp.TensorMap]:
    """The tensor maps of A, B, the scales of A, and C, all in row order.

    Raises:
        BindError: TMA cannot take one; the message names the argument.
    """
    *batch, m, k = a.shape
    one = (1,) * len(batch)
    out = mapped(NAME, "c", c).dtype
    scales = scales_by_rows(a_scales, m, k, tuple(batch), NAME)
    stored = *one, cfg.block_rows, store_width(out, cfg)
    return [
        mapped(NAME, "a", a, (*one, load_rows(cfg.bm // cfg.cluster_n), BLOCK), order="row"),
        mapped(NAME, "b", b, (1, load_rows(cfg.bn // cfg.cluster), BLOCK), order="row"),
        mapped(NAME, "a_scales", scales, (*one, 1, scales_of_copy(cfg)), order="row"),
        mapped(NAME, "c", c, stored, order="row", ragged=True),
    ]
