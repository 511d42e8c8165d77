"""The arguments of one call of `ops.append_kv`, and what is asked of them, for both kinds of
arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tilepipe.kernels.append_kv.validation import Extents, check_append
from tilepipe.ops import caches
from tilepipe.ops.calls import ArrayT

ELSEWHERE = caches.ELSEWHERE | {
    "out": "k_cache and v_cache are written in place",
    "key": "write k=",
    "value": "write v=",
    "key_cache": "write k_cache=",
    "value_cache": "write v_cache=",
    "kv_cache_dtype": "it is the dtype of k_cache and v_cache",
}


OTHERS = "cache_seqlens", "block_table", "k_descale", "v_descale"  # arrays beside K and V


@dataclass
class AppendCall(Generic[ArrayT]):
    """New keys and values of each sequence; `ops.append_kv` says what each may be."""

    k_cache: ArrayT
    v_cache: ArrayT
    k: ArrayT
    v: ArrayT
    cache_seqlens: ArrayT
    block_table: ArrayT | None
    k_descale: ArrayT | float | None
    v_descale: ArrayT | float | None


def checked(call: AppendCall[ArrayT]) -> Extents:
    """The extents of a call.

    Raises:
        BindError: arrays that do not fit together.
    """
    return check_append(
        call.k_cache,
        call.v_cache,
        call.k,
        call.v,
        call.cache_seqlens,
        block_table=call.block_table,
        k_descale=call.k_descale,
        v_descale=call.v_descale,
        empty=True,
    )
