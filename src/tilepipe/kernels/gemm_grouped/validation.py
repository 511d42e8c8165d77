"""What the grouped GEMM takes: dtypes, shapes and memory orders, each mistake one sentence."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.multicast import load_rows
from tilepipe.kernels.common.validation import (
    Array,
    check_array,
    check_arrays,
    check_product,
    mapped,
)
from tilepipe.kernels.gemm.validation import FP8, OUTPUTS, check_order, check_stage_bytes
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig

NAME = "gemm_grouped"
HALVES = (tp.bfloat16, tp.float16)


def check_arguments(
    a: Array,
    b: Array,
    c: Array,
    offsets: Array,
    a_scale: Array | None,
    b_scale: Array | None,
    cfg: GroupedGemmConfig,
) -> None:
    """Raises BindError where something is no array, has another dtype or order, or the shapes do
    not fit together.
    """
    rank = check_rank(NAME, a, (*HALVES, *FP8))
    scales = {"a_scale": (a_scale, 1, (tp.float32,)), "b_scale": (b_scale, 2, (tp.float32,))}
    if (a_scale is None) != (b_scale is None):
        missing = "a_scale" if a_scale is None else "b_scale"
        raise tp.BindError(f"{NAME}: a_scale and b_scale come together; {missing} is not given")
    check_arrays(
        NAME,
        {
            "b": (b, 3, (*HALVES, *FP8)),
            "c": (c, rank, OUTPUTS),
            "offsets": (offsets, 1, (tp.int32,)),
            **({} if a_scale is None else scales),
        },
    )
    if rank == 3 and a_scale is not None:
        raise tp.BindError(
            f"{NAME}: a {tuple(a.shape)} is a matrix for each group; scales of rows are for the"
            " rows of all groups, a (m, k)"
        )
    groups, n, _ = b.shape
    check_product(NAME, a, b, c, f"{groups} times ")
    wanted = {
        "offsets": (offsets, (groups,)),
        "a_scale": (a_scale, (a.shape[0],)),
        "b_scale": (b_scale, (groups, n)),
    }
    if rank == 3:
        wanted["a"], wanted["c"] = ((x, (groups, *x.shape[1:])) for x in (a, c))
    for name, (x, shape) in wanted.items():
        if x is not None and tuple(x.shape) != shape:
            raise tp.BindError(f"{NAME}: {name} must have shape {shape}, it has {tuple(x.shape)}")
    _check_operands(a, b, cfg)


def check_rank(kernel: str, a: Array, dtypes: tuple[tp.DType, ...]) -> int:
    """2 for a (m, k), rows of all groups, 3 for a (groups, m, k), a matrix for each.

    Raises:
        BindError: it is neither, or has another dtype.
    """
    check_array(kernel, "a", a, 0, dtypes)
    if len(a.shape) not in (2, 3):
        raise tp.BindError(
            f"{kernel}: a must be (m, k), rows of all groups, or (groups, m, k), a matrix for each"
            f" group; it has shape {tuple(a.shape)}"
        )
    return len(a.shape)


def _check_operands(a: Array, b: Array, cfg: GroupedGemmConfig) -> None:
    a_type, b_type = (mapped(NAME, name, x).dtype for name, x in (("a", a), ("b", b)))
    if a_type is not b_type and not {a_type, b_type} <= set(FP8):
        raise tp.BindError(
            f"{NAME} takes bfloat16 or float16, the same for A and B, or fp8; got {a_type} and"
            f" {b_type}"
        )
    if tp.tensor_map(a).order != "row":
        raise tp.BindError(
            f"{NAME}: A is contiguous along m. TMA copies from multiples of 16 bytes along the"
            " contiguous dimension, and groups begin at"
            " any row: pass a copy that is contiguous along k"
        )
    check_stage_bytes(cfg.bm, cfg.bn, cfg.bk, 1, a_type)
    check_order(
        "B",
        mapped(NAME, "b", b, (1, load_rows(cfg.bn // cfg.cluster), cfg.bk)),
        cfg.bn,
        "bn and cluster",
    )
