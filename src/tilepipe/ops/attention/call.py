"""The arguments of one call of `ops.attention`, and what is asked of them, for both kinds of
arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tilepipe.errors import BindError
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm90 as choose
from tilepipe.kernels.attention.validation import NAME, Extents, check_attention
from tilepipe.ops.calls import Array, ArrayT, Settings, check_settings, configured, setting_names

if TYPE_CHECKING:
    import torch

    from tilepipe.ops.torch.tensors import TensorView

SETTINGS = setting_names(AttentionConfig)
LAYOUTS = ("bshd", "bhsd")
ViewT = TypeVar("ViewT", Array, "torch.Tensor", "TensorView")


@dataclass
class AttentionCall(Generic[ArrayT]):
    """softmax(scale · q · kᵀ) · v; `ops.attention` says what each may be."""

    q: ArrayT
    k: ArrayT
    v: ArrayT
    causal: bool
    scale: float | None
    out: ArrayT | None
    return_lse: bool
    layout: str
    settings: Settings


def heads_third(x: ViewT, layout: str) -> ViewT:
    """An array as the kernel takes it, (batch, s, heads, d): a view."""
    return x if layout == "bshd" or len(x.shape) != 4 else x.swapaxes(1, 2)


def checked(call: AttentionCall[ArrayT]) -> Extents:
    """The extents of a call; extents of 0 may be.

    Raises:
        BindError: arrays that do not fit together, or a setting that `AttentionConfig` does not
            have.
    """
    check_settings(NAME, AttentionCall, call.settings, SETTINGS)
    layout = call.layout
    q, k, v = (heads_third(x, layout) for x in (call.q, call.k, call.v))
    out = None if call.out is None else heads_third(call.out, layout)
    try:
        return check_attention(q, k, v, out, scale=call.scale, causal=call.causal, empty=True)
    except BindError as error:
        if layout == "bshd":
            raise
        raise BindError(
            f"{error} (shapes are given as (batch, s, heads, d); layout={layout!r} exchanges the"
            " middle two)"
        ) from None


def config(found: Extents, call: AttentionCall[ArrayT]) -> AttentionConfig:
    """What is chosen for the shape, with the settings of the call instead."""
    chosen = choose(found.d, call.causal, found.s_kv)
    return configured(AttentionConfig, chosen.as_dict(), call.settings) if call.settings else chosen
