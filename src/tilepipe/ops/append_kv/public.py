"""append_kv(k_cache, v_cache, k, v, cache_seqlens): new keys and values of each sequence go into a
cache; on the GPU for CUDA tensors, on the simulator for NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from typing import Never

import numpy as np

from tilepipe.host_arguments import plain
from tilepipe.kernels.append_kv.validation import NAME
from tilepipe.ops.append_kv.call import ELSEWHERE, AppendCall
from tilepipe.ops.calls import (
    ArrayT,
    Progress,
    check_settings,
    gpu_module,
    refuse_elsewhere,
    unnamed_error,
)


def append_kv(
    k_cache: ArrayT,
    v_cache: ArrayT,
    k: ArrayT,
    v: ArrayT,
    cache_seqlens: ArrayT,
    *unnamed: Never,
    block_table: ArrayT | None = None,
    k_descale: ArrayT | float | None = None,
    v_descale: ArrayT | float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **unknown: Never,
) -> None:
    """Writes the keys and values of the last tokens of each sequence to the cache that
    `attention_decode` reads, in place: token i of sequence b becomes key cache_seqlens[b] - tokens
    + i. Both take the same `cache_seqlens`, in which the new tokens are counted.

    Args:
        k_cache, v_cache: (batch, s, kv_heads, d), or with a `block_table` (pages, page_size,
            kv_heads, d), both bfloat16, float16 or float8_e4m3fn; CUDA tensors of PyTorch, or
            tensors on the CPU or NumPy arrays, which run on the simulated GPU. d is contiguous, and
            256 at most.
        k, v: (batch, tokens, kv_heads, d), both bfloat16, float16 or float32, on the same device,
            d contiguous. Elements are rounded to the dtype of the cache; of float8_e4m3fn those
            beyond 448 become 448.
        cache_seqlens: int32 (batch,): how many keys each sequence has, with the new ones. On a GPU
            only the kernel reads them, so a captured CUDA graph takes those of the moment of its
            replay. A token whose place would be before the first key or after the room of the
            cache is not written: none of a sequence of length 0, which may be an empty slot.
        block_table: int32 (batch, most): as of `attention_decode`; only the entries of pages that
            are written are used.
        k_descale, v_descale: of a cache of float8_e4m3fn, what keys and values are divided by, as
            `attention_decode` multiplies with them: float32 (batch, kv_heads), or a number; 1
            unless given. Where one is 0, zeros are stored: that of a head of zeros may be 0.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        unnamed, unknown: refused; of arguments of other libraries the message says what there is
            instead.

    Raises:
        BindError: shapes, dtypes, strides or devices that do not fit, a cache whose elements share
            memory with each other or with another argument, tensors that require a gradient: there
            is none.
        UnavailableError: the device is no Hopper GPU, or a package is missing.

    CUDA tensors: safe in CUDA graphs (call once before capturing), from several threads and under
    `torch.compile`; see docs/reference/ops.md.
    """
    if unnamed:
        raise unnamed_error(append_kv, unnamed)
    refuse_elsewhere(NAME, unknown, ELSEWHERE)
    check_settings(NAME, AppendCall, tuple(unknown.items()), ())
    call = AppendCall(
        k_cache, v_cache, k, v, cache_seqlens, block_table, plain(k_descale), plain(v_descale)
    )
    if all(isinstance(x, np.ndarray) for x in (k_cache, v_cache, k, v)):
        from tilepipe.ops.append_kv import simulated

        simulated.append_kv(call, seed, progress)
        return
    names = "k_cache", "v_cache", "k", "v"
    where = "tilepipe.ops.append_kv.gpu"
    tensors = gpu_module(where, NAME, seed, progress, names, k_cache, v_cache, k, v)
    if seed or progress is not None:
        tensors.with_options(tensors.append_kv, call, seed, progress)
        return
    tensors.append_kv(call)
