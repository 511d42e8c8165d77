"""attention(q, k, v): softmax(scale · q · kᵀ) · v, on the GPU for CUDA tensors, on the simulator
for NumPy arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilepipe.errors import BindError
from tilepipe.host_arguments import require_bool, shown
from tilepipe.kernels.attention.validation import NAME
from tilepipe.ops.attention.validation import LAYOUTS, check, config, heads_third


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Any = None,
    return_lse: bool = False,
    layout: str = "bshd",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Any:
    """softmax(scale · q · kᵀ) · v for each head: scores and sums in float32, probabilities rounded
    to the operands' 16 bits.

    Args:
        q, k, v: three CUDA tensors of PyTorch, which run on their device in its current stream, or
            three NumPy arrays, which run on the simulated GPU. bfloat16 or float16, all alike. q
            (batch, s_q, heads, d), k and v (batch, s_kv, kv_heads, d), d 64 or 128. Head h of q
            reads head h // (heads // kv_heads) of k and v. They are read where they lie, never
            copied: d must be contiguous, addresses and the other strides multiples of 16 bytes, as
            those of contiguous arrays, of parts of a fused projection and of transposed views are.
        causal: query i sees the keys j <= i + s_kv - s_q, so that the last query sees all.
        scale: of the scores, positive; 1/sqrt(d) unless given.
        out: where to write the result: shape and dtype of q, strides as above, and no memory of q,
            k or v.
        return_lse: also return the logarithm (natural) of the sum of the exponentials, float32
            (batch, heads, s_q).
        layout: "bshd", as above, or "bhsd": q, out (batch, heads, s_q, d), k, v (batch, kv_heads,
            s_kv, d).
        seed, progress: of the simulator, see `Program.run`; NumPy only.
        settings: fields of `AttentionConfig`, the others at what is chosen for the shape.

    Returns:
        `out`, or a new array or tensor laid out as q; with `return_lse` the pair of that and the
        logarithms. A query that sees no key has 0, and a logarithm of -inf; so has every query
        where s_kv is 0.

    Raises:
        BindError: shapes, dtypes, strides or devices that do not fit, unknown settings, tensors
            that require a gradient: there is none.
        UnavailableError: the device is no Hopper GPU, or a package is missing.
        LimitError: settings that need more shared memory than there is.

    CUDA tensors: safe in CUDA graphs (call once before capturing), from several threads and under
    `torch.compile`; see docs/reference/ops.md.
    """
    scale = scale.item() if isinstance(scale, np.generic) else scale
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise BindError(f'{NAME}: layout is "bshd" or "bhsd", got {shown(layout)}')
    return_lse = require_bool(return_lse, f"{NAME}: return_lse")
    causal = require_bool(causal, f"{NAME}: causal")
    if all(isinstance(x, np.ndarray) for x in (q, k, v)):
        return _simulated(q, k, v, out, causal, scale, return_lse, layout, settings, seed, progress)
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(x, torch.Tensor) for x in (q, k, v)):
        name, x = next(
            (name, x)
            for name, x in zip("qkv", (q, k, v), strict=True)
            if not isinstance(x, np.ndarray)
        )
        raise BindError(
            f"{NAME}: {name} must be a NumPy array or a CUDA tensor of PyTorch, got"
            f" {type(x).__name__}"
        )
    if seed or progress is not None:
        raise BindError(
            f"{NAME}: seed and progress belong to the simulator, which runs NumPy arrays; a CUDA"
            " tensor runs on its GPU"
        )
    from tilepipe.ops.attention import gpu as torch_attention

    return torch_attention.attention(
        q, k, v, out, (causal, scale, return_lse, layout, tuple(sorted(settings.items())))
    )


def _simulated(
    q: Any, k: Any, v: Any, out: Any, causal: bool, scale: float | None, return_lse: bool, layout: str, settings: Mapping[str, Any],
    seed: int, progress: Callable[[int, int], None] | None,
) -> Any:  # fmt: skip
    if out is not None and not isinstance(out, np.ndarray):
        raise BindError(
            f"{NAME}: out must be a NumPy array as q, k and v are, got {type(out).__name__}"
        )
    if out is not None and not out.flags.writeable:
        raise BindError(f"{NAME}: out is read-only, or a broadcast view; give it memory of its own")
    found = check(q, k, v, out, causal, scale, layout, settings)
    result = np.empty_like(q) if out is None else out
    lse = np.full((found.batch, found.heads, found.s_q), -np.inf, np.float32)
    if found.empty:
        result[...] = 0
    else:
        from tilepipe.kernels.attention import sm90 as kernel

        chosen = config(found, causal, dict(settings))
        q, k, v, written = (heads_third(x, layout) for x in (q, k, v, result))
        program = kernel.bind(
            q, k, v, written, lse if return_lse else None, chosen, causal=causal, scale=scale
        )
        program.run(seed=seed, progress=progress)
    return (result, lse) if return_lse else result
