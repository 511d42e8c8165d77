"""append_kv of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

import numpy as np

from tilepipe.errors import BindError
from tilepipe.kernels.attention_decode import append as kernel
from tilepipe.kernels.attention_decode.append_validation import NAME
from tilepipe.ops.append_kv.call import AppendCall, checked
from tilepipe.ops.arrays import require_arrays, shared
from tilepipe.ops.calls import Array, Progress


def append_kv(call: AppendCall[Array], seed: int, progress: Progress | None) -> None:
    """`ops.append_kv` of NumPy arrays, with all its options."""
    named = {"k_cache": call.k_cache, "v_cache": call.v_cache, "k": call.k, "v": call.v}
    require_arrays(NAME, "k_cache, v_cache, k and v", *named.items())
    for name in ("k_cache", "v_cache"):
        if not named[name].flags.writeable:
            raise BindError(
                f"{NAME}: {name} is read-only, or a broadcast view; the new keys and values are"
                " written to it"
            )
    found = checked(call)
    if found.empty:
        return
    for i, cache in enumerate(named):
        for name in list(named)[i + 1 :]:
            if cache.endswith("cache") and np.shares_memory(named[cache], named[name]):
                raise shared(NAME, cache, name)
    program = kernel.bind(
        call.k_cache,
        call.v_cache,
        call.k,
        call.v,
        call.cache_seqlens,
        block_table=call.block_table,
        k_descale=call.k_descale,
        v_descale=call.v_descale,
    )
    program.run(seed=seed, progress=progress)
