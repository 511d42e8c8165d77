"""The arguments of one call of `ops.attention`, and what is asked of them, for both kinds of
arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tilepipe.errors import BindError
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm90 as choose
from tilepipe.kernels.attention.scores import (
    ScoreFunction,
    Terms,
    Window,
    check_of_heads,
    check_softcap,
)
from tilepipe.kernels.attention.validation import NAME, Extents, check_attention
from tilepipe.ops.calls import Array, ArrayT, Settings, check_settings, configured, setting_names

if TYPE_CHECKING:
    import torch

    from tilepipe.ops.torch.tensors import TensorView

SETTINGS = setting_names(AttentionConfig)
LAYOUTS = ("bshd", "bhsd")
# Arguments of FlashAttention's functions and of PyTorch's, and what there is instead.
ELSEWHERE = {
    "is_causal": "write causal=",
    "softmax_scale": "write scale=",
    "window_size": "write window=(left, right)",
    "alibi_slopes": "write slopes=",
    "learnable_sink": "write sinks=",
    "s_aux": "write sinks=",
    "score_mod": "write score=, a function of (ctx, scores, query, key, head)",
    "return_attn_probs": "probabilities are never in memory; return_lse=True gives the logarithms",
    "enable_gqa": "leave it out; q may always have a multiple of the heads of k and v",
    "attn_mask": "masks are causal=, window=, or a score function that gives -inf",
    "attn_bias": "a score function adds to scores; slopes= is ALiBi",
    "dropout_p": "there is no dropout",
    "cu_seqlens_q": "sequences of one call have one length",
    "cu_seqlens_k": "sequences of one call have one length",
}
ViewT = TypeVar("ViewT", Array, "torch.Tensor", "TensorView")


@dataclass
class AttentionCall(Generic[ArrayT]):
    """softmax(scale · q · kᵀ) · v; `ops.attention` says what each may be."""

    q: ArrayT
    k: ArrayT
    v: ArrayT
    causal: bool
    window: tuple[int | None, int | None] | None
    scale: float | None
    softcap: float
    slopes: ArrayT | None
    sinks: ArrayT | None
    score: ScoreFunction | None
    out: ArrayT | None
    return_lse: bool
    layout: str
    settings: Settings

    @property
    def seen(self) -> Window:
        """The keys that queries see."""
        return Window.of(self.causal, self.window)


def heads_third(x: ViewT, layout: str) -> ViewT:
    """An array as the kernel takes it, (batch, s, heads, d): a view."""
    return x if layout == "bshd" or len(x.shape) != 4 else x.swapaxes(1, 2)


def checked(call: AttentionCall[ArrayT]) -> Extents:
    """The extents of a call; extents of 0 may be.

    Raises:
        BindError: arrays that do not fit together, or a setting that `AttentionConfig` does not
            have.
    """
    for name, _ in call.settings:
        if name in ELSEWHERE:
            raise BindError(f"{NAME} has no argument {name}: {ELSEWHERE[name]}")
    check_settings(NAME, AttentionCall, call.settings, SETTINGS)
    layout = call.layout
    Window.of(call.causal, call.window)
    q, k, v = (heads_third(x, layout) for x in (call.q, call.k, call.v))
    out = None if call.out is None else heads_third(call.out, layout)
    try:
        found = check_attention(q, k, v, out, scale=call.scale, empty=True)
    except BindError as error:
        if layout == "bshd":
            raise
        raise BindError(
            f"{error} (shapes are given as (batch, s, heads, d); layout={layout!r} exchanges the"
            " middle two)"
        ) from None
    check_softcap(call.softcap)
    check_of_heads("slopes", call.slopes, found.heads)
    check_of_heads("sinks", call.sinks, found.heads)
    return found


def result_shape(found: Extents, layout: str) -> tuple[int, int, int, int]:
    """The shape of the result."""
    if layout == "bshd":
        return found.batch, found.s_q, found.heads, found.d_v
    return found.batch, found.heads, found.s_q, found.d_v


def config(found: Extents, call: AttentionCall[ArrayT]) -> AttentionConfig:
    """What is chosen for the shape, with the settings of the call instead."""
    on_right = call.seen.right is not None
    changed = Terms(call.softcap != 0, call.slopes is not None, call.score).any
    chosen = choose(found.d, found.d_v, on_right, found.s_kv, changed=changed)
    return configured(AttentionConfig, chosen.as_dict(), call.settings) if call.settings else chosen
