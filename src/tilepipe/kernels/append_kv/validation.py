"""What writing to a cache of keys and values takes, each mistake one sentence."""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.attention_decode.pages import check_places
from tilepipe.kernels.attention_decode.validation import (
    LARGEST_HEAD,
    NARROW,
    check_descale,
    check_ints,
    check_table,
)
from tilepipe.kernels.common.validation import Array, check_array, dtype_of

NAME = "append_kv"
NEW = (tp.bfloat16, tp.float16, tp.float32)  # dtypes of new keys and values
CACHES = (tp.bfloat16, tp.float16, NARROW)


@dataclass(frozen=True)
class Extents:
    """What `check_append` found.

    Attributes:
        heads: of K and V. page: keys of a page; 0: the caches have none. empty: whether there is
            nothing to write, or no place for any of it.
    """

    heads: int
    d: int
    page: int
    empty: bool


def check_append(
    k_cache: Array,
    v_cache: Array,
    k: Array,
    v: Array,
    cache_seqlens: Array,
    *,
    block_table: Array | None = None,
    k_descale: Array | float | None = None,
    v_descale: Array | float | None = None,
    empty: bool = False,
) -> Extents:
    """The extents of k, v (batch, tokens, kv_heads, d) and of k_cache, v_cache (batch, s, kv_heads,
    d), or with a block_table (batch, pages of a sequence) int32 (pages, page_size, kv_heads, d).

    Args:
        empty: whether there may be nothing to write.

    Raises:
        BindError: something is no array, has another dtype, or the shapes do not fit together.
    """
    new, caches = {"k": k, "v": v}, {"k_cache": k_cache, "v_cache": v_cache}
    paged = block_table is not None
    of_cache = "pages, page_size, kv_heads, d" if paged else "batch, s, kv_heads, d"
    for pair, takes, said in (
        (new, NEW, "batch, tokens, kv_heads, d"),
        (caches, CACHES, of_cache),
    ):
        found = {}
        for name, x in pair.items():
            check_array(NAME, name, x)
            found[name] = dtype_of(NAME, name, x)
            if len(x.shape) != 4:
                raise tp.BindError(
                    f"{NAME}: {name} has 4 dimensions ({said}), it has shape {tuple(x.shape)}"
                )
        # no set: Dynamo of PyTorch 2.11 has no hashes of dtypes
        dtype, other = found.values()
        if dtype is not other or not any(dtype is t for t in takes):
            raise tp.BindError(
                f"{NAME}: {' and '.join(pair)} are both {', '.join(t.name for t in takes[:-1])} or"
                f" {takes[-1]}; got {', '.join(f'{n} {t}' for n, t in found.items())}"
            )
        first, second = pair.values()
        if tuple(first.shape) != tuple(second.shape):
            raise tp.BindError(
                f"{NAME}: {' and '.join(pair)} have one shape; they have {tuple(first.shape)} and"
                f" {tuple(second.shape)}"
            )
    (batch, tokens, heads, d), (outer, rows, kv_heads, cache_d) = k.shape, k_cache.shape
    if (heads, d) != (kv_heads, cache_d) or d > LARGEST_HEAD:
        raise tp.BindError(
            f"{NAME}: k and k_cache have the same heads, of the same d up to {LARGEST_HEAD}; they"
            f" have {heads} of {d} and {kv_heads} of {cache_d}"
        )
    if cache_seqlens is None:
        raise tp.BindError(
            f"{NAME}: cache_seqlens says where the new keys go: int32 ({batch},), the keys of each"
            " sequence, with the new ones"
        )
    check_ints(NAME, "cache_seqlens", cache_seqlens, (batch,), "the keys of each sequence")
    page, capacity = 0, rows
    if block_table is not None:
        page = rows
        capacity = check_table(NAME, block_table, batch, k_cache) * rows
    elif outer != batch:
        raise tp.BindError(
            f"{NAME}: k has {batch} sequences and the cache {outer}; pass block_table= where the"
            " cache has pages"
        )
    narrow = dtype_of(NAME, "k_cache", k_cache) is NARROW
    for name, factor in {"k_descale": k_descale, "v_descale": v_descale}.items():
        check_descale(NAME, name, factor, narrow, (batch, kv_heads))
    nothing = 0 in (batch, tokens, heads, d, outer, capacity)
    if nothing and not empty:
        raise tp.BindError(
            f"{NAME}: k {tuple(k.shape)} or the cache {tuple(k_cache.shape)} has no elements, so"
            " there is nothing to launch; ops.append_kv does nothing then"
        )
    if 0 not in (batch, tokens, heads, d, capacity):
        check_places(NAME, block_table, cache_seqlens, k_cache, tokens)
    return Extents(heads, d, page, nothing)
