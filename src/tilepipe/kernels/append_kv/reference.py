"""Writing to a cache in NumPy, and how far a cache is from what it should be: in no bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import tilepipe as tp
from tilepipe.kernels.attention.reference import Array
from tilepipe.kernels.attention_decode.reference import CacheArrays, Lengths

LARGEST = 448.0  # float8_e4m3


def appended(cache: CacheArrays, k: Array, v: Array, lengths: Lengths, room: int) -> CacheArrays:
    """The cache after the keys and values (batch, tokens, kv_heads, d) of the last tokens of each
    sequence have been written to it, new ones included in `lengths`, where there is room for them.
    A scale of 0 makes zeros.
    """
    made, tokens = [], k.shape[1]
    for old, new, scales in ((cache.k, k, cache.k_scales), (cache.v, v, cache.v_scales)):
        x = old.copy()
        for b, length in enumerate(lengths):
            for i, place in enumerate(range(int(length) - tokens, int(length))):
                if not 0 <= place < room:
                    continue
                row = new[b, i].astype(np.float32)
                if scales is not None:
                    by = scales[b][:, None]
                    row = np.divide(row, by, out=np.zeros_like(row), where=by != 0)
                if x.dtype.itemsize == 1:
                    row = row.clip(-LARGEST, LARGEST)
                if cache.table is None:
                    x[b, place] = row.astype(x.dtype)
                else:
                    page = x.shape[1]
                    x[cache.table[b, place // page], place % page] = row.astype(x.dtype)
        made.append(x)
    return replace(cache, k=made[0], v=made[1])


def compare(found: CacheArrays, want: CacheArrays) -> tp.testing.Comparison:
    """Whether two caches agree in every bit, NaN too.

    Returns:
        `rel_error`: NaN where one has a number and the other none. `worst`: infinite, for the bound
        is 0, unless they agree; `worst_at`: the first element that differs, after 0 for K or 1 for
        V. `wrong`: how many do.
    """
    wrong = [
        np.argwhere(x.view(f"u{x.itemsize}") != y.view(f"u{y.itemsize}"))
        for x, y in ((found.k, want.k), (found.v, want.v))
    ]
    count = sum(map(len, wrong))
    at = next(((side, *map(int, x[0])) for side, x in enumerate(wrong) if len(x)), ())
    got, right = (np.stack([x.k, x.v]).astype(np.float64) for x in (found, want))
    error = np.where(np.isnan(got) & np.isnan(right), 0.0, got - right)  # NaN where one is
    size = float(np.linalg.norm(np.nan_to_num(right))) or 1.0
    far = float(np.linalg.norm(error)) / size
    return tp.testing.Comparison(not count, far, np.inf if count else 0.0, at, count)
