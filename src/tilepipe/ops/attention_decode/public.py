"""attention_decode(q, k_cache, v_cache): attention of a few query tokens over a cache of keys and
values; on the GPU for CUDA tensors, on the simulator for NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from typing import Literal, Never, overload

import numpy as np

from tilepipe.host_arguments import plain, require_bool
from tilepipe.kernels.attention_decode.validation import NAME
from tilepipe.ops.attention_decode.call import DecodeCall
from tilepipe.ops.calls import ArrayT, Progress, Setting, gpu_module, unnamed_error


@overload
def attention_decode(
    q: ArrayT,
    k_cache: ArrayT,
    v_cache: ArrayT,
    *,
    cache_seqlens: ArrayT | None = None,
    block_table: ArrayT | None = None,
    causal: bool = True,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    k_descale: ArrayT | float | None = None,
    v_descale: ArrayT | float | None = None,
    out: ArrayT | None = None,
    return_lse: Literal[False] = False,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT: ...
@overload
def attention_decode(
    q: ArrayT,
    k_cache: ArrayT,
    v_cache: ArrayT,
    *,
    cache_seqlens: ArrayT | None = None,
    block_table: ArrayT | None = None,
    causal: bool = True,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    k_descale: ArrayT | float | None = None,
    v_descale: ArrayT | float | None = None,
    out: ArrayT | None = None,
    return_lse: Literal[True],
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> tuple[ArrayT, ArrayT]: ...
@overload
def attention_decode(
    q: ArrayT,
    k_cache: ArrayT,
    v_cache: ArrayT,
    *,
    cache_seqlens: ArrayT | None = None,
    block_table: ArrayT | None = None,
    causal: bool = True,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    k_descale: ArrayT | float | None = None,
    v_descale: ArrayT | float | None = None,
    out: ArrayT | None = None,
    return_lse: bool,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT | tuple[ArrayT, ArrayT]: ...
def attention_decode(
    q: ArrayT,
    k_cache: ArrayT,
    v_cache: ArrayT,
    *unnamed: Never,
    cache_seqlens: ArrayT | None = None,
    block_table: ArrayT | None = None,
    causal: bool = True,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    k_descale: ArrayT | float | None = None,
    v_descale: ArrayT | float | None = None,
    out: ArrayT | None = None,
    return_lse: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """softmax(scale · q · kᵀ) · v for each head, of the last tokens of each sequence over a cache
    of all its keys and values: scores and sums in float32, probabilities rounded to the operands'
    16 bits, or to float16 for a cache of 8 bits.

    Args:
        q: (batch, tokens, heads, d). k_cache, v_cache: (batch, s, kv_heads, d), or with a
            `block_table` (pages, page_size, kv_heads, d). All bfloat16 or all float16; CUDA tensors
            of PyTorch, or tensors on the CPU or NumPy arrays, which run on the simulated GPU.
            Head h of q reads head h // (heads // kv_heads) of the cache; tokens · heads / kv_heads
            is 64 at most, d a multiple of 8 up to 256. The cache may be float8_e4m3fn instead, with
            d a multiple of 16. They are read where they lie, never copied: d must be contiguous,
            addresses and the other strides multiples of 16 bytes.
        cache_seqlens: int32 (batch,): how many keys each sequence has, those of the query tokens
            included; all of the cache unless given. On a GPU only the kernel reads them, so a
            captured CUDA graph takes those of the moment of its replay. The cache may hold anything
            after a sequence's last key.
        block_table: int32 (batch, most): page block_table[b, i] has the keys i · page_size to (i +
            1) · page_size - 1 of sequence b; page_size is a power of two from 8. Entries that a
            sequence does not need may be anything; the others are checked on the CPU only.
        causal: query token i sees the keys j <= i + cache_seqlens - tokens; False: all of its
            sequence. For one token both agree. FlashAttention's default is False.
        window: (left, right): query token i sees no key before i + cache_seqlens - tokens - left;
            tiles of keys that none sees are not read. None or -1 is no bound; right may be that, or
            0, which is `causal`; with `causal`, 0 stands in for any right.
        scale: of the scores, positive; 1/sqrt(d) unless given.
        k_descale, v_descale: what keys and values of float8_e4m3fn are multiplied with,
            from 0 to 2^100: float32 (batch, kv_heads), or a number, which is prepared for like a
            shape; 1 unless given. On the CPU numbers in arrays are checked, too.
        out: where to write the result: as q, and no memory of q or the cache.
        return_lse: also return the logarithm (natural) of the sum of the exponentials, float32
            (batch, heads, tokens).
        unnamed: refused: the others have names.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        settings: fields of `DecodeConfig`, the others at what is chosen for the shape.

    Returns:
        `out`, or a new array or tensor laid out as q; with `return_lse` the pair of that and the
        logarithms. A query that sees no key has 0, and a logarithm of -inf. Batches and caches may
        be empty.

    Raises:
        BindError: shapes, dtypes, strides or devices that do not fit, unknown settings, tensors
            that require a gradient: there is none.
        UnavailableError: the device is no Hopper GPU, or a package is missing.

    CUDA tensors: safe in CUDA graphs (call once before capturing), from several threads and under
    `torch.compile`; see docs/reference/ops.md.
    """
    if unnamed:
        raise unnamed_error(attention_decode, unnamed)
    call = DecodeCall(
        q,
        k_cache,
        v_cache,
        cache_seqlens,
        block_table,
        require_bool(causal, f"{NAME}: causal"),
        tuple(window) if isinstance(window, list) else window,
        scale if scale is None else plain(scale),
        plain(k_descale),
        plain(v_descale),
        out,
        require_bool(return_lse, f"{NAME}: return_lse"),
        tuple(sorted(settings.items())),
    )
    keys, values = k_cache, v_cache
    if (
        isinstance(q, np.ndarray)
        and isinstance(keys, np.ndarray)
        and isinstance(values, np.ndarray)
    ):
        from tilepipe.ops.attention_decode import simulated

        return simulated.attention_decode(call, seed, progress)
    names = "q", "k_cache", "v_cache"
    where = "tilepipe.ops.attention_decode.gpu"
    tensors = gpu_module(where, NAME, seed, progress, names, q, k_cache, v_cache)
    if seed or progress is not None:
        return tensors.with_options(tensors.attention_decode, call, seed, progress)
    result: ArrayT | tuple[ArrayT, ArrayT] = tensors.attention_decode(call)
    return result
