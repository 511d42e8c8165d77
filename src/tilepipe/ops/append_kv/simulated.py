"""append_kv of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

import numpy as np

from tilepipe.ir.arrays import share_memory
from tilepipe.kernels.append_kv import sm90 as kernel
from tilepipe.kernels.append_kv.validation import NAME
from tilepipe.ops.append_kv.call import OTHERS, AppendCall, checked
from tilepipe.ops.arrays import require_arrays, require_writable, shared
from tilepipe.ops.calls import Array, Progress


def append_kv(call: AppendCall[Array], seed: int, progress: Progress | None) -> None:
    """`ops.append_kv` of NumPy arrays, with all its options."""
    named = {"k_cache": call.k_cache, "v_cache": call.v_cache, "k": call.k, "v": call.v}
    caches = "k_cache", "v_cache"
    require_arrays(NAME, "k_cache, v_cache, k and v", *named.items())
    for name in caches:
        require_writable(NAME, name, named[name])
    found = checked(call)
    if found.empty:
        return
    others = {n: x for n in OTHERS if isinstance(x := getattr(call, n), np.ndarray)}
    for i, cache in enumerate(caches):
        for name, x in list((named | others).items())[i + 1 :]:
            if share_memory(named[cache], x):
                raise shared(NAME, cache, name, both=name in caches)
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
