"""An item that several CTAs share, with large scores, and its exact result."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp

TILE, D = 64, 64  # keys of a tile, elements of a head


def shared_item(
    score: float, counts: tuple[int, ...], heads: int, cache: tp.DType = tp.bfloat16
) -> tuple[dict[str, Any], float, float]:
    """A token of `heads` heads, and a tile of keys for each of `counts`, of which so many have the
    score, in base e, and the others its negative. Values are the number of the tile.

    Returns:
        The arguments of a call; every element of the result; the logarithm.
    """
    q = np.full((1, 1, heads, D), score / np.sqrt(D)).astype(tp.bfloat16.numpy)
    k, v = (np.empty((1, len(counts) * TILE, 1, D)) for _ in range(2))
    for i, count in enumerate(counts):
        tile = slice(i * TILE, (i + 1) * TILE)
        k[0, tile, 0] = np.where(np.arange(TILE) < count, 1, -1)[:, None]
        v[0, tile] = i
    given = {"q": q, "k_cache": k.astype(cache.numpy), "v_cache": v.astype(cache.numpy)}
    mean = sum(i * count for i, count in enumerate(counts)) / sum(counts)
    return given, mean, score + np.log(sum(counts))
