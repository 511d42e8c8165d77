"""Every configuration of the GEMM that may be worth measuring: more than those that it is chosen
from, which are the ones that were measured and did well (`gemm_fit.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import tilepipe as tp
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import deeper, fitted
from tilepipe.kernels.gemm.tiles import Shape, worth_a_look

# cluster, cluster_n, split_k, k_parts
CLUSTERS = (
    (1, 1, 1, 1),
    (2, 1, 1, 1),
    (1, 2, 1, 1),
    (4, 1, 1, 1),
    (1, 4, 1, 1),
    (1, 1, 2, 1),
    (1, 1, 3, 1),
    (1, 1, 4, 1),
    *(
        (*shares, 1, parts)
        for parts in (2, 3, 4, 6, 8)
        for shares in ((2, 1), (1, 2), (4, 1), (1, 4))
    ),
)


@functools.cache
def pool(chip: tp.Chip = tp.H200) -> tuple[GemmConfig, ...]:
    """All of them, for products of bfloat16, with as many stages as the chip has room for."""
    found: list[GemmConfig] = []
    for shape in _shapes():
        for clusters in CLUSTERS:
            for swap in ("none", "ab"):
                given = worth_a_look(shape, clusters, swap, GemmConfig.bk)
                cfg = given and fitted(given, tp.bfloat16, chip)
                if cfg is not None:
                    found += [cfg, *deeper(cfg, tp.bfloat16, chip)]
    return tuple(found)


def _shapes() -> Iterator[Shape]:
    """(schedule, consumers, bm, bn)"""
    yield from (("cooperative", 2, 128, bn) for bn in (*range(16, 209, 8), 224, 240, 256, 320))
    yield from (("cooperative", 2, 256, bn) for bn in range(64, 193, 8))
    yield from (("cooperative", 3, 192, bn) for bn in (*range(64, 201, 8), *range(208, 257, 16)))
    yield from (("cooperative", 1, 64, bn) for bn in (*range(16, 209, 8), 224, 240, 256))
    yield from (("pingpong", 2, 128, bn) for bn in range(64, 193, 8))
    yield from (("pingpong", 2, 64, bn) for bn in range(64, 257, 16))
