"""The tiles from which the GEMM's configuration is chosen by `times`: those that were among the
fastest for some product that was measured. How the others fare nobody knows, and the fastest of a
thousand guesses is a wrong one too often.
"""

from __future__ import annotations

import functools

from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.tiles_data import TILES


@functools.cache
def measured(bk: int) -> tuple[GemmConfig, ...]:
    """Configurations without their stages."""
    return tuple(
        GemmConfig(
            bm=bm,
            bn=bn,
            bk=bk,
            stages=2,
            consumers=consumers,
            schedule=schedule,
            swap=swap,
            cluster=cluster,
            cluster_n=cluster_n,
            split_k=split_k,
            k_parts=k_parts,
        )
        for (schedule, consumers, bm), shared in TILES.items()
        for (cluster, cluster_n, split_k, k_parts), widths in shared.items()
        for swap, every in zip(("none", "ab"), widths, strict=True)
        for bn in every
    )
