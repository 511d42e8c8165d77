"""Which configuration of the Blackwell GEMM for which product: the defaults, and CTAs that split K
where there are far fewer tiles than SMs. A rule, and no model of times as Hopper's: nothing has
been measured on a Blackwell GPU.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.gemm.config import Sm100GemmConfig
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm.model import Problem

SPLITS = (4, 2)
# An exchange of a tile's float32 sums moves about as many bytes as two of its K steps. Twice the
# stages of the ring are a part of K that is several times as long.
LEAST_RINGS = 2


def choose(problem: Problem, chip: tp.Chip = tp.B200) -> Sm100GemmConfig:
    """The defaults with a K tile of one swizzle span; of 2 and 4 CTAs that split K the most that
    all run at once, whatever the tile of whichever product of the batch, each with a part of K that
    takes the ring twice round.
    """
    cfg = Sm100GemmConfig(bk=SPAN // problem.dtype.nbytes)
    tiles = -(-problem.m // cfg.bm) * -(-problem.n // cfg.bn) * problem.batch
    steps = -(-problem.k // cfg.bk)
    for split_k in SPLITS:
        fits = tiles <= chip.resident_clusters(split_k)
        if fits and steps >= LEAST_RINGS * cfg.stages * split_k:
            return cfg.changed(split_k=split_k)
    return cfg
