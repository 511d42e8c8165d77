"""What the operator `tilepipe::attention_decode` takes, in the order of its schema, by name."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention_decode.validation import NAME
from tilepipe.ops.attention_decode.call import DecodeCall
from tilepipe.ops.torch.attentions import descale_tensors
from tilepipe.ops.torch.dispatcher import settings_of, settings_text

Call = DecodeCall[torch.Tensor]
SCHEMA = (
    "(Tensor q, Tensor k_cache, Tensor v_cache, Tensor? cache_seqlens=None,"
    " Tensor? block_table=None, bool causal=True, int? left=None, float? scale=None,"
    " Tensor? k_descale=None, Tensor? v_descale=None, float? k_factor=None, float? v_factor=None,"
    " bool return_lse=False, str settings='()') -> (Tensor, Tensor)"
)


class Inputs(NamedTuple):
    """The arguments that `SCHEMA` names. `causal`, `left`: of the window that causal= and window=
    of a call state together. `k_factor`, `v_factor`: descales that are numbers. `settings`: the
    items of the configuration's fields as a Python literal. Others: as of `DecodeCall`.
    """

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    cache_seqlens: torch.Tensor | None = None
    block_table: torch.Tensor | None = None
    causal: bool = True
    left: int | None = None
    scale: float | None = None
    k_descale: torch.Tensor | None = None
    v_descale: torch.Tensor | None = None
    k_factor: float | None = None
    v_factor: float | None = None
    return_lse: bool = False
    settings: str = "()"

    @property
    def call(self) -> Call:
        """The call that these arguments state."""
        return DecodeCall(
            q=self.q,
            k_cache=self.k_cache,
            v_cache=self.v_cache,
            cache_seqlens=self.cache_seqlens,
            block_table=self.block_table,
            causal=self.causal,
            window=None if self.left is None else (self.left, None),
            scale=self.scale,
            k_descale=self.k_factor if self.k_descale is None else self.k_descale,
            v_descale=self.v_factor if self.v_descale is None else self.v_descale,
            out=None,
            return_lse=self.return_lse,
            settings=settings_of(self.settings),
        )


def inputs_of(call: Call) -> Inputs:
    """The arguments that state a call, which has been checked; `out` is left out."""
    k_descale, v_descale = descale_tensors(call.k_descale, call.v_descale)
    seen = Window.of(call.causal, call.window, kernel=NAME)
    return Inputs(
        q=call.q,
        k_cache=call.k_cache,
        v_cache=call.v_cache,
        cache_seqlens=call.cache_seqlens,
        block_table=call.block_table,
        causal=seen.right == 0,
        left=seen.left,
        scale=None if call.scale is None else float(call.scale),
        k_descale=k_descale,
        v_descale=v_descale,
        k_factor=_number(call.k_descale),
        v_factor=_number(call.v_descale),
        return_lse=call.return_lse,
        settings=settings_text(call.settings),
    )


def _number(x: torch.Tensor | float | None) -> float | None:
    return float(x) if isinstance(x, int | float) else None
