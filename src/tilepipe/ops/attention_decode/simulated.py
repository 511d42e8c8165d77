"""attention_decode of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

import numpy as np

from tilepipe.kernels.attention_decode import sm90 as kernel
from tilepipe.kernels.attention_decode.validation import NAME
from tilepipe.ops.arrays import check_memory, require_arrays
from tilepipe.ops.attention_decode.call import DecodeCall, checked, config
from tilepipe.ops.calls import Array, Progress


def attention_decode(
    call: DecodeCall[Array], seed: int, progress: Progress | None
) -> Array | tuple[Array, Array]:
    """`ops.attention_decode` of NumPy arrays, with all its options."""
    require_arrays(NAME, "q, k_cache and v_cache", out=call.out)
    found = checked(call)
    if not found.empty:
        operands = {"q": call.q, "k_cache": call.k_cache, "v_cache": call.v_cache}
        check_memory(NAME, operands, call.out)
    result = np.empty_like(call.q) if call.out is None else call.out
    lse = np.empty((found.batch, found.heads, found.tokens), np.float32)
    if found.empty:
        result[...], lse[...] = 0, -np.inf
        return (result, lse) if call.return_lse else result
    program = kernel.bind(
        call.q,
        call.k_cache,
        call.v_cache,
        result,
        lse if call.return_lse else None,
        config(found, call),
        cache_seqlens=call.cache_seqlens,
        block_table=call.block_table,
        causal=call.causal,
        window=call.window,
        scale=call.scale,
        k_descale=call.k_descale,
        v_descale=call.v_descale,
    )
    program.run(seed=seed, progress=progress)
    return (result, lse) if call.return_lse else result
