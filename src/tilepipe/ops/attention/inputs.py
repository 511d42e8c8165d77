"""What the operator `tilepipe::attention` takes, in the order of its schema, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from tilepipe.kernels.attention.block_mask import BLOCK_SIZE, check_block_size
from tilepipe.ops.attention.call import AttentionCall, checked
from tilepipe.ops.torch.attentions import descale_tensors
from tilepipe.ops.torch.dispatcher import settings_of, settings_text
from tilepipe.ops.torch.tensors import torch_dtype

Call = AttentionCall[torch.Tensor]
SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, bool causal=False, int[]? window=None, float? scale=None,"
    " float softcap=0.0, Tensor? slopes=None, Tensor? sinks=None, bool return_lse=False,"
    " str layout='bshd', str settings='()', Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None,"
    " SymInt? max_seqlen_k=None, str align='last', Tensor? block_mask=None, int[]? block_size=None,"
    " Tensor? q_descale=None, Tensor? k_descale=None, Tensor? v_descale=None,"
    " ScalarType? out_dtype=None) -> (Tensor, Tensor)"
)


class Inputs(NamedTuple):
    """The arguments that `SCHEMA` names. `settings`: the items of the configuration's fields as a
    Python literal. Others: as of `AttentionCall`.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    causal: bool = False
    window: Sequence[int] | None = None
    scale: float | None = None
    softcap: float = 0.0
    slopes: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    return_lse: bool = False
    layout: str = "bshd"
    settings: str = "()"
    cu_seqlens_q: torch.Tensor | None = None
    cu_seqlens_k: torch.Tensor | None = None
    max_seqlen_k: int | None = None
    align: str = "last"
    block_mask: torch.Tensor | None = None
    block_size: Sequence[int] | None = None
    q_descale: torch.Tensor | None = None
    k_descale: torch.Tensor | None = None
    v_descale: torch.Tensor | None = None
    out_dtype: torch.dtype | None = None

    @property
    def call(self) -> Call:
        """The call that these arguments state."""
        window, size = self.window, self.block_size
        return AttentionCall(
            q=self.q,
            k=self.k,
            v=self.v,
            causal=self.causal,
            window=None if window is None else (window[0], window[1]),
            scale=self.scale,
            softcap=self.softcap,
            slopes=self.slopes,
            sinks=self.sinks,
            score=None,
            out=None,
            return_lse=self.return_lse,
            layout=self.layout,
            settings=settings_of(self.settings),
            cu_seqlens_q=self.cu_seqlens_q,
            cu_seqlens_k=self.cu_seqlens_k,
            max_seqlen_k=self.max_seqlen_k,
            align=self.align,
            block_mask=self.block_mask,
            block_size=check_block_size(BLOCK_SIZE if size is None else size),
            q_descale=self.q_descale,
            k_descale=self.k_descale,
            v_descale=self.v_descale,
            out_dtype=self.out_dtype,
        )


def inputs_of(call: Call) -> Inputs:
    """The arguments that state a call, which `spread` has made tensors of descales of; a score
    function, `out` and `max_seqlen_q` are left out.
    """
    descales = descale_tensors(call.q_descale, call.k_descale, call.v_descale)
    q_descale, k_descale, v_descale = descales
    window = call.window
    return Inputs(
        q=call.q,
        k=call.k,
        v=call.v,
        causal=call.causal,
        window=None if window is None else [-1 if x is None else x for x in window],
        scale=None if call.scale is None else float(call.scale),
        softcap=float(call.softcap),
        slopes=call.slopes,
        sinks=call.sinks,
        return_lse=call.return_lse,
        layout=call.layout,
        settings=settings_text(call.settings),
        cu_seqlens_q=call.cu_seqlens_q,
        cu_seqlens_k=call.cu_seqlens_k,
        max_seqlen_k=call.max_seqlen_k,
        align=call.align,
        block_mask=call.block_mask,
        block_size=call.block_size,
        q_descale=q_descale,
        k_descale=k_descale,
        v_descale=v_descale,
        out_dtype=None if call.out_dtype is None else torch_dtype(checked(call).out_dtype),
    )
