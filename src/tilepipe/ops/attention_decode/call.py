"""The arguments of one call of `ops.attention_decode`, and what is asked of them, for both kinds of
arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tilepipe.ir.chip import H200, Chip
from tilepipe.kernels.attention_decode.choice import TUNABLE, DecodeProblem
from tilepipe.kernels.attention_decode.config import DecodeConfig
from tilepipe.kernels.attention_decode.fits import check_columns
from tilepipe.kernels.attention_decode.validation import NAME, Extents, check_decode
from tilepipe.kernels.common import tuned
from tilepipe.ops import caches
from tilepipe.ops.calls import (
    ArrayT,
    Settings,
    check_settings,
    configured,
    refuse_elsewhere,
    setting_names,
)

SETTINGS = setting_names(DecodeConfig)
# Arguments of FlashAttention's `flash_attn_with_kvcache`, and what there is instead.
ELSEWHERE = caches.ELSEWHERE | {
    "k": "ops.append_kv writes new keys to k_cache before the call; cache_seqlens counts them",
    "v": "ops.append_kv writes new values to v_cache before the call; cache_seqlens counts them",
    "softmax_scale": "write scale=",
    "return_softmax_lse": "write return_lse=",
    "window_size": "write window=(left, right)",
    "q_descale": "q is bfloat16 or float16, also where the cache is float8_e4m3",
    "softcap": "there is no softcap; ops.attention has one",
    "alibi_slopes": "there are no slopes; ops.attention has them",
    "num_splits": "the CTAs of all SMs share the keys by the lengths that they find",
    "max_seqlen": "leave it out; only the kernel reads lengths",
}


@dataclass
class DecodeCall(Generic[ArrayT]):
    """softmax(scale · q · kᵀ) · v over a cache; `ops.attention_decode` says what each may be."""

    q: ArrayT
    k_cache: ArrayT
    v_cache: ArrayT
    cache_seqlens: ArrayT | None
    block_table: ArrayT | None
    causal: bool
    window: tuple[int | None, int | None] | None
    scale: float | None
    k_descale: ArrayT | float | None
    v_descale: ArrayT | float | None
    out: ArrayT | None
    return_lse: bool
    settings: Settings


def checked(call: DecodeCall[ArrayT]) -> Extents:
    """The extents of a call.

    Raises:
        BindError: arrays that do not fit together, or a setting that `DecodeConfig` does not have.
    """
    refuse_elsewhere(NAME, (name for name, _ in call.settings), ELSEWHERE)
    check_settings(NAME, DecodeCall, call.settings, SETTINGS)
    return check_decode(
        call.q,
        call.k_cache,
        call.v_cache,
        call.out,
        cache_seqlens=call.cache_seqlens,
        block_table=call.block_table,
        causal=call.causal,
        window=call.window,
        scale=call.scale,
        k_descale=call.k_descale,
        v_descale=call.v_descale,
        empty=True,
    )


def config(found: Extents, call: DecodeCall[ArrayT], chip: Chip | None = None) -> DecodeConfig:
    """What is chosen for the shape on a GPU, or for the simulator (None); with settings, what the
    heuristic picks, with these instead.
    """
    problem = DecodeProblem.of(found)
    if chip is not None and not call.settings:
        return tuned.choose(TUNABLE, problem, chip)
    picked = TUNABLE.best(problem, chip or H200)
    cfg = configured(DecodeConfig, picked.as_dict(), call.settings)
    if "queries" in dict(call.settings):
        check_columns(cfg, found)
    return cfg
