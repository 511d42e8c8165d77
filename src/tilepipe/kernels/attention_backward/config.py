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


# In which order a CTA walks over the tiles of queries that see its keys, of all heads of its group:
WALKS = (
    "heads",  # one head after the other, each from its last query to its first
    "queries",  # from the last query to the first, and of each tile all heads before the next tile
    "alternate",  # as "queries", but in every other band of heads from the first query to the last
)


@dataclass(frozen=True)
class BackwardConfig(Settings):
    """Settings of the gradients of attention on Hopper.

    Attributes:
        group: heads of K and V in a band, whose tiles are dealt out together; what is read and
            written for them should stay in L2.
        walk: one of `WALKS`. Where dQ is added in a fixed order, it decides who waits for whom.
    """

    group: int = 1
    walk: str = "heads"

    def _rules(self) -> dict[str, bool]:
        return {f"walk is one of {', '.join(WALKS)}": self.walk in WALKS}


def tile(d: int, d_v: int) -> tuple[int, int]:
    """The (queries, elements of a head) of a tile for heads of d and d_v elements, up to 128."""
    depth = next(x for x in DEPTHS if x >= max(d, d_v))
    return QUERIES[depth], depth
