"""Settings of the gradients of attention on Hopper, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.kernels.common.settings import Settings

ROWS = 64  # keys of a warpgroup
CONSUMERS = 2
KEYS = ROWS * CONSUMERS  # of a CTA's tile
REGISTERS = (24, 240)  # of a thread of the load warp's warpgroup, and of a consumer
STAGES = 2  # tiles of Q, dO and dS: one is multiplied while the next comes
COLUMNS = 16  # of scores whose statistics are in registers at once
# Queries of a tile, by the elements of a head that tiles have: as many as there are registers for.
QUERIES = {64: 128, 128: 80}
DEPTHS = tuple(QUERIES)


@dataclass(frozen=True)
class BackwardConfig(Settings):
    """Settings of the gradients of attention on Hopper.

    Attributes:
        group: heads of K and V whose tiles are dealt out together; what is read and written for
            them should stay in L2.
    """

    group: int = 1

    def _rules(self) -> dict[str, bool]:
        return {}


def tile(d: int, d_v: int) -> tuple[int, int]:
    """The (queries, elements of a head) of a tile for heads of d and d_v elements, up to 128."""
    depth = next(x for x in DEPTHS if x >= max(d, d_v))
    return QUERIES[depth], depth
