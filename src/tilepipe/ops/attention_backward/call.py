"""The arguments of one call of `ops.attention_backward`, and what is asked of them, for both kinds
of arrays; and the three programs that compute it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.host_arguments import plain_bool, shown
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention.validation import Extents
from tilepipe.kernels.attention_backward import sm90_bind as kernel
from tilepipe.kernels.attention_backward.choice import TUNABLE, BackwardProblem
from tilepipe.kernels.attention_backward.validation import NAME, check_backward, require_float32
from tilepipe.kernels.common import tuned
from tilepipe.ops.attention.call import LAYOUTS, heads_third
from tilepipe.ops.calls import ArrayT

# Arguments of FlashAttention's backward functions and of PyTorch's, and what there is instead.
ELSEWHERE = {
    "softmax_scale": "write scale=",
    "is_causal": 'write causal=; with align="first" the mask begins at the first key, as there',
    "softmax_lse": "write lse=",
    "logsumexp": "write lse=",
    "grad_out": "write dout=",
    "window_size": "there are no gradients under a window; causal= is the one mask",
    "window": "there are no gradients under a window; causal= is the one mask",
    "softcap": "there are no gradients of capped scores",
    "alibi_slopes": "there are no gradients with slopes",
    "slopes": "there are no gradients with slopes",
    "dropout_p": "there is no dropout",
    "rng_state": "there is no dropout",
    "cu_seqlens_q": "there are no gradients of packed sequences; call it once for each",
    "cu_seqlens_k": "there are no gradients of packed sequences; call it once for each",
    "max_seqlen_q": "there are no gradients of packed sequences; call it once for each",
    "max_seqlen_k": "there are no gradients of packed sequences; call it once for each",
    "dq": "gradients are returned, as new arrays",
    "dk": "gradients are returned, as new arrays",
    "dv": "gradients are returned, as new arrays",
}


Bind = Callable[[Any, tp.Chip | None], tp.Program]


@dataclass
class BackwardCall(Generic[ArrayT]):
    """The gradients of softmax(scale · q · kᵀ) · v; `ops.attention_backward` says what each may
    be.
    """

    dout: ArrayT
    q: ArrayT
    k: ArrayT
    v: ArrayT
    out: ArrayT
    lse: ArrayT
    dlse: ArrayT | None
    causal: bool
    scale: float | None
    align: str
    deterministic: bool
    layout: str

    @property
    def given(self) -> dict[str, ArrayT]:
        """The arrays, by name."""
        arrays = {"q": self.q, "k": self.k, "v": self.v, "out": self.out, "dout": self.dout}
        arrays |= {"lse": self.lse}
        return arrays if self.dlse is None else arrays | {"dlse": self.dlse}


def checked(call: BackwardCall[ArrayT]) -> Extents:
    """The extents of a call.

    Raises:
        BindError: arrays that do not fit together, or options that are none.
    """
    if not isinstance(call.layout, str) or call.layout not in LAYOUTS:
        raise BindError(f'{NAME}: layout is "bshd" or "bhsd", got {shown(call.layout)}')
    if plain_bool(call.deterministic) is None:
        raise BindError(f"{NAME}: deterministic is True or False, got {shown(call.deterministic)}")
    Window.of(call.causal, None, call.align)
    q, k, v, out, dout = (
        heads_third(x, call.layout) for x in (call.q, call.k, call.v, call.out, call.dout)
    )
    found = check_backward(q, k, v, out, dout, call.lse, scale=call.scale)
    if call.dlse is not None:
        require_float32("dlse", call.dlse, (found.batch, found.heads, found.s_q))
    return found


def steps(call: BackwardCall[ArrayT], found: Extents) -> tuple[Bind, ...]:
    """How each of the programs, in their order, is bound to arrays, or to views of tensors, by the
    names of `BackwardCall.given`, "dq", "dk", "dv" and those of `kernel.Workspace`, for a chip;
    None: for that of the simulator.
    """

    def third(x: Any) -> Any:
        return heads_third(x, call.layout)

    def space(arrays: Any) -> kernel.Workspace:
        lse_2, delta, sums, turns = (
            arrays.get(name) for name in ("lse_2", "delta", "sums", "turns")
        )
        return kernel.Workspace(lse_2, delta, sums, turns)

    def prepare(x: Any, chip: tp.Chip | None) -> tp.Program:
        out, dout = third(x["out"]), third(x["dout"])
        return kernel.bind_prepare(out, dout, x["lse"], space(x), x.get("dlse"), chip=chip)

    def gradients(x: Any, chip: tp.Chip | None) -> tp.Program:
        q, k, v, dout, dk, dv = (third(x[name]) for name in ("q", "k", "v", "dout", "dk", "dv"))
        asked = {"causal": call.causal, "deterministic": call.deterministic}
        cfg = (
            None
            if chip is None
            else tuned.choose(TUNABLE, BackwardProblem.of(found, **asked), chip)
        )
        return kernel.bind(
            q, k, v, dout, dk, dv, space(x), cfg,
            causal=call.causal, scale=call.scale, align=call.align, chip=chip,
        )  # fmt: skip

    def finish(x: Any, chip: tp.Chip | None) -> tp.Program:
        return kernel.bind_finish(x["sums"], x["delta"], third(x["dq"]), found.scale, chip=chip)

    return prepare, gradients, finish
