"""attention of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilepipe.kernels.attention import sm90_bind as kernel
from tilepipe.kernels.attention.block_mask import bind_lists, lists_shape
from tilepipe.kernels.attention.validation import NAME
from tilepipe.kernels.attention.values import turned
from tilepipe.ops.arrays import check_memory, require_arrays
from tilepipe.ops.attention.call import (
    AttentionCall,
    checked,
    config,
    heads_third,
    lse_shape,
    result_shape,
)
from tilepipe.ops.attention.descales import array_of_heads, spread
from tilepipe.ops.calls import Array, Progress


def attention(
    call: AttentionCall[Array], seed: int, progress: Progress | None
) -> Array | tuple[Array, Array]:
    """`ops.attention` of NumPy arrays, with all its options."""
    require_arrays(NAME, "q, k and v", out=call.out)
    call = spread(call, array_of_heads)
    found = checked(call)
    if not found.empty:
        check_memory(NAME, {"q": call.q, "k": call.k, "v": call.v}, call.out)
    result = call.out
    if result is None:
        same = found.d_v == found.d
        shape = result_shape(found, call.layout)
        kind = found.out_dtype.numpy
        result = np.empty_like(call.q, kind) if same else np.empty(shape, kind)
    if found.sequences and call.out is None:
        result[...] = 0  # rows that are in no sequence
    lse = np.full(lse_shape(found), -np.inf, np.float32)
    if found.empty:
        bounds = call.cu_seqlens_q
        result[... if bounds is None else slice(int(bounds[0]), int(bounds[-1]))] = 0
        if call.sinks is not None:
            lse[...] = call.sinks[:, None]
    else:
        q, k, v, out = (heads_third(x, call.layout) for x in (call.q, call.k, call.v, result))
        written = lse if call.return_lse else None
        cfg = config(found, call)
        if "schedule" not in dict(call.settings) and cfg.schedule == "dynamic":
            # Nothing is gained here by drawing tiles, and CTAs that do are never repeated.
            cfg = replace(cfg, schedule="single")
        lists = None
        if call.block_mask is not None:
            lists = np.empty(lists_shape(call.block_mask, found, cfg), np.int32)
            given = call.block_mask, lists, found, call.seen, cfg, call.block_size
            bind_lists(*given).run(seed=seed)
        program = kernel.bind(
            q,
            k,
            turned(v) if found.narrow else v,
            out,
            written,
            cfg,
            causal=call.causal,
            window=call.window,
            scale=found.scale,
            softcap=call.softcap,
            slopes=call.slopes,
            sinks=call.sinks,
            score=call.score,
            align=call.align,
            cu_seqlens_q=call.cu_seqlens_q,
            cu_seqlens_k=call.cu_seqlens_k,
            key_lists=lists,
            q_scales=call.q_descale,
            k_scales=call.k_descale,
            v_scales=call.v_descale,
        )
        program.run(seed=seed, progress=progress)
    return (result, lse) if call.return_lse else result
