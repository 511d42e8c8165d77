"""What the GEMM of quantised weights takes: dtypes, shapes and memory orders, each mistake one
sentence.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.multicast import load_rows
from tilepipe.kernels.common.tiling import BLOCK_ROWS, store_width
from tilepipe.kernels.common.validation import Array, check_arrays, mapped
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.layout import BLOCK, bits_of

NAME = "gemm_quantised"
HALVES = (tp.bfloat16, tp.float16)
SMALL_GROUPS = (32, 64)


def check_group(name: str, group: object) -> int:
    """`group`, where scales may be of so many elements of K. Raises BindError otherwise."""
    if isinstance(group, bool) or not isinstance(group, int) or not _is_group(group):
        raise tp.BindError(
            f"{name}: group must be 32, 64 or a multiple of {BLOCK}: elements of K that share a"
            f" scale; got {group!r}"
        )
    return group


def _is_group(group: int) -> bool:
    return group in SMALL_GROUPS or (group > 0 and group % BLOCK == 0)


def check_arguments(a: Array, words: Array, scales: Array, c: Array, group: int) -> None:
    """Raises BindError where something has another rank or dtype, or the shapes do not fit
    together.
    """
    check_group(NAME, group)
    check_arrays(
        NAME,
        {
            "a": (a, 2, HALVES),
            "words": (words, 3, (tp.int32,)),
            "scales": (scales, 2, (tp.float32,)),
            "c": (c, 2, OUTPUTS),
        },
    )
    check_extents(NAME, a, words, scales, group)
    (m, _), n = a.shape, words.shape[1]
    if tuple(c.shape) != (m, n):
        raise tp.BindError(f"{NAME}: C must be {m}×{n}, it is {c.shape[0]}×{c.shape[1]}")


def check_extents(name: str, a: Array, words: Array, scales: Array, group: int) -> None:
    """Raises BindError unless the extents of matrix a (m, k), words and scales fit together."""
    k = a.shape[-1]
    blocks, n, width = words.shape
    if bits_of(width) is None:
        raise tp.BindError(
            f"{name}: the weights are words (⌈k / 128⌉, n, 16) of 4 bits or (⌈k / 128⌉, n, 32) of"
            f" 8 bits, as prepare_weights makes them; they have shape {tuple(words.shape)}"
        )
    if blocks != -(-k // BLOCK):
        raise tp.BindError(
            f"{name}: a has {k} columns, which are ⌈{k} / {BLOCK}⌉ = {-(-k // BLOCK)} blocks of K;"
            f" the weights have {blocks}"
        )
    wanted = -(-k // group), n
    if tuple(scales.shape) != wanted:
        raise tp.BindError(
            f"{name}: scales must be (⌈k / group⌉, n) = {wanted} for k = {k}, group = {group} and"
            f" n = {n}; they have shape {tuple(scales.shape)}"
        )


def maps(
    a: Array, words: Array, scales: Array, c: Array, cfg: QuantisedGemmConfig, group: int
) -> tuple[tp.TensorMap, tp.TensorMap, tp.TensorMap, tp.TensorMap]:
    """The tensor maps of a, words, scales and Cᵀ, checked."""
    rows = load_rows(cfg.bm)
    if rows != cfg.bm:
        raise tp.BindError(
            f"{NAME}: bm={cfg.bm} scales are one copy, which has at most 256 elements: lower bm"
        )
    turned = c.swapaxes(0, 1)
    width = store_width(mapped(NAME, "c", c).dtype, cfg)
    return (
        mapped(NAME, "a", a, (cfg.bn, BLOCK), order="row"),
        mapped(NAME, "words", words, (1, rows, words.shape[-1])),
        mapped(NAME, "scales", scales, (max(BLOCK // group, 1), rows), order="row", swizzle=0),
        mapped(NAME, "c", turned, (BLOCK_ROWS, width), order="col", given=c),
    )
