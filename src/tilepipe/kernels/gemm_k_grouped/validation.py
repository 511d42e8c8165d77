"""What the GEMM with groups along K takes: dtypes, shapes and memory orders, each mistake one
sentence.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.multicast import load_rows
from tilepipe.kernels.common.tiling import BLOCK_ROWS, store_width
from tilepipe.kernels.common.validation import Array, check_arrays, mapped
from tilepipe.kernels.gemm.validation import OUTPUTS, check_order, check_stage_bytes
from tilepipe.kernels.gemm_grouped.validation import HALVES
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig

NAME = "gemm_k_grouped"


def check_arguments(a: Array, b: Array, c: Array, offsets: Array) -> None:
    """Raises BindError where something is no array, has another dtype or order, or the shapes do
    not fit together.
    """
    check_arrays(
        NAME,
        {
            "a": (a, 2, HALVES),
            "b": (b, 2, HALVES),
            "c": (c, 3, OUTPUTS),
            "offsets": (offsets, 1, (tp.int32,)),
        },
    )
    check_groups(NAME, a, b, c, offsets)
    a_type, b_type = (mapped(NAME, name, x).dtype for name, x in (("a", a), ("b", b)))
    if a_type is not b_type:
        raise tp.BindError(
            f"{NAME} takes bfloat16 or float16, the same for A and B; got {a_type} and {b_type}"
        )


def check_groups(kernel: str, a: Array, b: Array, c: Array, offsets: Array) -> None:
    """Raises BindError unless A (m, k), B (n, k), C (groups, m, n) and offsets (groups,) fit
    together.
    """
    (m, k), (n, kb), groups = a.shape, b.shape, offsets.shape[0]
    if kb != k or tuple(c.shape) != (groups, m, n):
        raise tp.BindError(
            f"{kernel}: A is {m}×{k}, B {n}×{kb} (n, k), and offsets has {groups} elements; C must"
            f" be {groups}×{m}×{n} and both k equal, C is {'×'.join(map(str, c.shape))}"
        )


def maps(a: Array, b: Array, c: Array, cfg: KGroupedGemmConfig) -> list[tp.TensorMap]:
    """The tensor maps of A and B, in column order and ragged along K, and of C.

    Raises:
        BindError: TMA cannot take one; the message names the argument.
    """
    found = []
    for name, x, axis, rows, parts, what in (
        ("a", a, "m", cfg.bm, cfg.cluster_n, "bm and cluster_n"),
        ("b", b, "n", cfg.bn, cfg.cluster, "bn and cluster"),
    ):
        if mapped(NAME, name, x).order != "col" and min(x.shape) > 1:
            raise tp.BindError(
                f"{NAME}: {name.upper()} is contiguous along k. TMA copies from multiples of 16"
                " bytes along the contiguous dimension, and groups begin at any element of k: pass"
                f" a copy that is contiguous along {axis}"
            )
        box = load_rows(rows // parts), cfg.bk
        found.append(mapped(NAME, name, x, box, order="col", ragged=True))
        check_order(name.upper(), found[-1], rows, what)
    out = mapped(NAME, "c", c).dtype
    check_stage_bytes(cfg.bm, cfg.bn, cfg.bk, 1, found[0].dtype)
    stored = 1, BLOCK_ROWS, store_width(out, cfg)
    return [*found, mapped(NAME, "c", c, stored, order="row")]
