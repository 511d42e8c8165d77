"""attention_backward(dout, q, k, v, out, lse): the gradients of `ops.attention`, on the GPU for
CUDA tensors, on the simulator for NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from typing import Never

import numpy as np

from tilepipe.host_arguments import plain, require_bool
from tilepipe.kernels.attention_backward.validation import NAME
from tilepipe.ops.attention_backward.call import ELSEWHERE, BackwardCall
from tilepipe.ops.calls import (
    ArrayT,
    Progress,
    check_settings,
    gpu_module,
    refuse_elsewhere,
    unnamed_error,
)


def attention_backward(
    dout: ArrayT,
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    out: ArrayT,
    lse: ArrayT,
    *unnamed: Never,
    dlse: ArrayT | None = None,
    causal: bool = False,
    scale: float | None = None,
    align: str = "last",
    deterministic: bool = False,
    layout: str = "bshd",
    seed: int = 0,
    progress: Progress | None = None,
    **unknown: Never,
) -> tuple[ArrayT, ArrayT, ArrayT]:
    """The gradients (dq, dk, dv) of out = softmax(scale · q · kᵀ) · v, for the gradient `dout`.
    `ops.attention` of tensors that require one calls it by itself.

    Args:
        dout: the gradient of out, as out.
        q, k, v, out, lse: what `ops.attention(q, k, v, return_lse=True)` has read and returned,
            with heads of up to 128 elements. Read where they lie, as there.
        dlse: the gradient of lse, float32 as lse; None: 0.
        causal, scale, align, layout: as there.
        deterministic: False: parts of dq are added in the order in which they come, so that the
            last bits may differ between two calls. True: in a fixed order.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        unnamed, unknown: refused; of arguments of FlashAttention the message says what there is
            instead.

    Returns:
        New arrays or tensors, laid out as q, k and v, whose dtype they have; of a key that no query
        sees, and of a query that sees no key, they are 0.

    Raises:
        BindError: shapes, dtypes, strides or devices that do not fit. UnavailableError: the device
            is no Hopper GPU.
    """
    if unnamed:
        raise unnamed_error(attention_backward, unnamed)
    refuse_elsewhere(NAME, unknown, ELSEWHERE)
    check_settings(NAME, BackwardCall, tuple(unknown.items()), ())
    call = BackwardCall(
        dout,
        q,
        k,
        v,
        out,
        lse,
        dlse,
        require_bool(causal, f"{NAME}: causal"),
        scale if scale is None else plain(scale),
        align,
        require_bool(deterministic, f"{NAME}: deterministic"),
        layout,
    )
    if isinstance(q, np.ndarray):
        from tilepipe.ops.attention_backward import simulated

        return simulated.attention_backward(call, seed, progress)
    names = "dout", "q", "k", "v", "out", "lse"
    operands = dout, q, k, v, out, lse
    tensors = gpu_module(
        "tilepipe.ops.attention_backward.gpu", NAME, seed, progress, names, *operands
    )
    result: tuple[ArrayT, ArrayT, ArrayT]
    if seed or progress is not None:
        result = tensors.with_options(tensors.attention_backward, call, seed, progress)
    else:
        result = tensors.attention_backward(call)
    return result
