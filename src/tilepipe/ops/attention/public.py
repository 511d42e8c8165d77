"""attention(q, k, v): softmax(scale · q · kᵀ) · v, on the GPU for CUDA tensors, on the simulator
for NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from typing import Literal, Never, overload

import numpy as np

from tilepipe.errors import BindError
from tilepipe.host_arguments import plain, require_bool, shown
from tilepipe.kernels.attention.block_mask import asked_block
from tilepipe.kernels.attention.scores import ScoreFunction
from tilepipe.kernels.attention.validation import NAME
from tilepipe.ops.attention.call import LAYOUTS, AttentionCall
from tilepipe.ops.attention.descales import checked_number
from tilepipe.ops.calls import ArrayT, Progress, Setting, gpu_module, unnamed_error


@overload
def attention(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: ArrayT | None = None,
    sinks: ArrayT | None = None,
    score: ScoreFunction | None = None,
    align: str = "last",
    block_mask: ArrayT | None = None,
    block_size: tuple[int, int] | None = None,
    cu_seqlens_q: ArrayT | None = None,
    cu_seqlens_k: ArrayT | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    q_descale: ArrayT | float | None = None,
    k_descale: ArrayT | float | None = None,
    v_descale: ArrayT | float | None = None,
    out: ArrayT | None = None,
    out_dtype: object = None,
    return_lse: Literal[False] = False,
    layout: str = "bshd",
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT: ...
@overload
def attention(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: ArrayT | None = None,
    sinks: ArrayT | None = None,
    score: ScoreFunction | None = None,
    align: str = "last",
    block_mask: ArrayT | None = None,
    block_size: tuple[int, int] | None = None,
    cu_seqlens_q: ArrayT | None = None,
    cu_seqlens_k: ArrayT | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    q_descale: ArrayT | float | None = None,
    k_descale: ArrayT | float | None = None,
    v_descale: ArrayT | float | None = None,
    out: ArrayT | None = None,
    out_dtype: object = None,
    return_lse: Literal[True],
    layout: str = "bshd",
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> tuple[ArrayT, ArrayT]: ...
@overload
def attention(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: ArrayT | None = None,
    sinks: ArrayT | None = None,
    score: ScoreFunction | None = None,
    align: str = "last",
    block_mask: ArrayT | None = None,
    block_size: tuple[int, int] | None = None,
    cu_seqlens_q: ArrayT | None = None,
    cu_seqlens_k: ArrayT | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    q_descale: ArrayT | float | None = None,
    k_descale: ArrayT | float | None = None,
    v_descale: ArrayT | float | None = None,
    out: ArrayT | None = None,
    out_dtype: object = None,
    return_lse: bool,
    layout: str = "bshd",
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT | tuple[ArrayT, ArrayT]: ...
def attention(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *unnamed: Never,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: ArrayT | None = None,
    sinks: ArrayT | None = None,
    score: ScoreFunction | None = None,
    align: str = "last",
    block_mask: ArrayT | None = None,
    block_size: tuple[int, int] | None = None,
    cu_seqlens_q: ArrayT | None = None,
    cu_seqlens_k: ArrayT | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    q_descale: ArrayT | float | None = None,
    k_descale: ArrayT | float | None = None,
    v_descale: ArrayT | float | None = None,
    out: ArrayT | None = None,
    out_dtype: object = None,
    return_lse: bool = False,
    layout: str = "bshd",
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """softmax(scale · q · kᵀ) · v for each head: scores and sums in float32, probabilities rounded
    to the operands' dtype. PyTorch's autograd differentiates it (`attention_backward`).

    Args:
        q, k, v: three CUDA tensors of PyTorch, which run on their device in its current stream; or
            three tensors on the CPU, or three NumPy arrays, which run on the simulated GPU.
            bfloat16, float16 or float8_e4m3fn, all alike. q (batch, s_q, heads, d), k and v (batch,
            s_kv, kv_heads, d), v may have another last extent d_v; both are multiples of 8 up to
            256; for float8_e4m3fn, d is a multiple of 16.
            Head h of q reads head h // (heads // kv_heads) of k and v.
            They are read where they lie, never copied: d must be contiguous, addresses and the
            other strides multiples of 16 bytes, as those of contiguous arrays, of parts of a fused
            projection and of transposed views are.
        causal: query i sees the keys j <= i + s_kv - s_q, so that the last query sees all.
        window: (left, right): query i sees the keys from i + s_kv - s_q - left to i + s_kv - s_q +
            right; None or -1: no bound on that side. `causal` is a right side of 0.
        scale: of the scores, positive; 1/sqrt(d) unless given.
        softcap: scaled scores x become softcap · tanh(x / softcap); 0: they do not.
        slopes: float32 (heads,); a score loses the slope of its head times the distance between the
            key and i + s_kv - s_q (ALiBi).
        sinks: float32 (heads,); the score of one more key for every query, whose value is 0.
        score: called while the kernel is traced, as score(ctx, x, query, key, head): x the scaled
            scores, float32 (rows, keys), after `softcap` and `slopes`; query (rows, 1) and key (1,
            keys) int32 indices; head an int32 value. It gives what the softmax takes, -inf for a
            key that is not seen. Each function object is a kernel of its own, so keep it.
        align: "last", as above: the last query stands at the last key; "first": query i stands at
            the key i, and not at i + s_kv - s_q, for `causal`, `window` and `slopes`.
        block_mask: boolean (batch or 1, heads or 1, ceil(s_q / block_q), ceil(s_kv / block_k)),
            true for each block of queries and keys that is computed. K and V of other blocks are
            not loaded. `causal`, `window` and `score` apply within blocks. Not with packed
            sequences.
        block_size: (block_q, block_k) of `block_mask`, multiples of 64 and 16, for float8_e4m3fn of
            64 and 32; (128, 128) unless given. 128 queries or more and 128 keys are fastest.
        cu_seqlens_q, cu_seqlens_k: int32 (sequences + 1,), beside q, k and v: for sequences of
            different lengths, one after the other: q (total_q, heads, d), k (total_k, kv_heads, d),
            v (total_k, kv_heads, d_v). Sequence i has the queries cu_seqlens_q[i] to
            cu_seqlens_q[i + 1] - 1, and so for keys; s_q and s_kv are then its lengths. On a GPU
            only the kernel reads them.
        max_seqlen_q, max_seqlen_k: the longest of these sequences. `max_seqlen_k` helps to choose
            settings; `max_seqlen_q` is accepted because callers of FlashAttention pass it, and is
            not used.
        q_descale, k_descale, v_descale: factors of q, k and v of float8_e4m3fn, from 0 to 2^100,
            and so is scale · q_descale · k_descale: one number, or float32 that broadcasts to
            (batch, kv_heads), a factor of each head of k and v and of the heads of q that share it.
            On a GPU only the kernel reads arrays. Packed sequences have none.
        out: where to write the result: (batch, s_q, heads, d_v), dtype of the result otherwise
            made, strides as above, in memory that q, k and v do not use.
        out_dtype: of the result of float8_e4m3fn: bfloat16 (unless given) or float16.
        return_lse: also return the logarithm (natural) of the sum of the exponentials, float32
            (batch, heads, s_q), of packed sequences (heads, total_q).
        layout: "bshd", as above, or "bhsd": q, out (batch, heads, s_q, d), k, v (batch, kv_heads,
            s_kv, d).
        unnamed: refused: the others have names.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        settings: fields of `AttentionConfig`, the others at what is chosen for the shape.

    Returns:
        `out`, or a new array or tensor, laid out as q where d_v is d; with `return_lse` the pair of
        that and the logarithms. A query that sees no key has 0, and a logarithm of its sink, or
        -inf; so has every query where s_kv is 0. Rows that are in no sequence keep what `out` has.

    Raises:
        BindError: shapes, dtypes, strides or devices that do not fit, unknown settings; a tensor
            that requires a gradient beside what has none: window, softcap, slopes, sinks, score,
            block_mask, packed sequences, out, float8_e4m3fn, heads of more than 128 elements.
        UnavailableError: the device is no Hopper GPU, or a package is missing.
        LimitError: settings that need more shared memory than there is.

    CUDA tensors: safe in CUDA graphs (call once before capturing), from several threads and under
    `torch.compile`; see docs/reference/ops.md.
    """
    if unnamed:
        raise unnamed_error(attention, unnamed)
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise BindError(f'{NAME}: layout is "bshd" or "bhsd", got {shown(layout)}')
    call = AttentionCall(
        q,
        k,
        v,
        require_bool(causal, f"{NAME}: causal"),
        window if window is None or not isinstance(window, list) else tuple(window),
        scale if scale is None else plain(scale),
        plain(softcap),
        slopes,
        sinks,
        score,
        out,
        require_bool(return_lse, f"{NAME}: return_lse"),
        layout,
        tuple(sorted(settings.items())),
        cu_seqlens_q,
        cu_seqlens_k,
        plain(max_seqlen_q),
        plain(max_seqlen_k),
        align,
        block_mask,
        asked_block(block_size, block_mask),
        checked_number("q_descale", q_descale),
        checked_number("k_descale", k_descale),
        checked_number("v_descale", v_descale),
        out_dtype,
    )
    if isinstance(q, np.ndarray) and isinstance(k, np.ndarray) and isinstance(v, np.ndarray):
        from tilepipe.ops.attention import simulated

        return simulated.attention(call, seed, progress)
    tensors = gpu_module("tilepipe.ops.attention.gpu", NAME, seed, progress, "qkv", q, k, v)
    if seed or progress is not None:
        return tensors.with_options(tensors.attention, call, seed, progress)
    result: ArrayT | tuple[ArrayT, ArrayT] = tensors.attention(call)
    return result
