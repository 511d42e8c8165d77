"""Sets of threads of an agent, as masks: bit i is thread i, and a warp has 32 bits."""

from __future__ import annotations

from functools import lru_cache

WARP_MASK = 0xFFFFFFFF


@lru_cache(maxsize=4096)
def warps_of(mask: int) -> tuple[tuple[int, int], ...]:
    """(warp, its threads in the mask) for each warp that has threads in the mask."""
    parts = ((w, mask & (WARP_MASK << (32 * w))) for w in range((mask.bit_length() + 31) // 32))
    return tuple((w, m) for w, m in parts if m)


def lanes_in(mask: int) -> list[int]:
    """The numbers of the threads in a mask."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
