"""The arguments of one call of `ops.attention`, and what is asked of them, for both kinds of
arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from tilepipe.errors import BindError
from tilepipe.host_arguments import plain_int, shown
from tilepipe.ir.chip import H200, Chip
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.attention.block_mask import BLOCK_SIZE, check_block_mask
from tilepipe.kernels.attention.choice import TUNABLE, AttentionProblem
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.packed_validation import check_bounds
from tilepipe.kernels.attention.scores import (
    ScoreChanges,
    ScoreFunction,
    Window,
    check_of_heads,
    check_softcap,
)
from tilepipe.kernels.attention.validation import (
    INPUTS,
    NAME,
    NARROW,
    Extents,
    check_attention,
    check_descale,
    check_factor,
)
from tilepipe.kernels.common import tuned
from tilepipe.ops.calls import (
    Array,
    ArrayT,
    Settings,
    check_settings,
    configured,
    refuse_elsewhere,
    result_dtype,
    setting_names,
)

if TYPE_CHECKING:
    import torch

    from tilepipe.ops.torch.tensors import TensorView

SETTINGS = setting_names(AttentionConfig)
LAYOUTS = ("bshd", "bhsd")
# Arguments of FlashAttention's functions and of PyTorch's, and what there is instead.
ELSEWHERE = {
    "is_causal": 'write causal=; with align="first" the mask begins at the first key, as there',
    "softmax_scale": "write scale=",
    "window_size": "write window=(left, right)",
    "alibi_slopes": "write slopes=",
    "learnable_sink": "write sinks=",
    "s_aux": "write sinks=",
    "score_mod": "write score=, a function of (ctx, scores, query, key, head)",
    "return_attn_probs": "probabilities are never in memory; return_lse=True gives the logarithms",
    "enable_gqa": "leave it out; q may always have a multiple of the heads of k and v",
    "attn_mask": "masks are causal=, window=, block_mask= (true for each block of queries and keys"
    " that is computed), or a score function that gives -inf",
    "attn_bias": "a score function adds to scores; slopes= is ALiBi",
    "dropout_p": "there is no dropout",
    "cu_seq_q": "write cu_seqlens_q=",
    "cu_seq_k": "write cu_seqlens_k=",
    "max_q": "write max_seqlen_q=",
    "max_k": "write max_seqlen_k=",
    "seqused_q": "cu_seqlens_q= and cu_seqlens_k= say where sequences begin and end",
    "seqused_k": "cu_seqlens_q= and cu_seqlens_k= say where sequences begin and end",
    "descale_q": "write q_descale=",
    "descale_k": "write k_descale=",
    "descale_v": "write v_descale=",
    "page_table": "ops.attention_decode has pages, for a few query tokens: block_table=",
    "block_table": "ops.attention_decode has pages, for a few query tokens",
}
ViewT = TypeVar("ViewT", Array, "torch.Tensor", "TensorView")


@dataclass
class AttentionCall(Generic[ArrayT]):
    """softmax(scale · q · kᵀ) · v; `ops.attention` says what each may be.

    Attributes:
        q_descale, k_descale, v_descale: arrays of (batch, kv_heads) once `descales.spread` has made
            them.
    """

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
    cu_seqlens_q: ArrayT | None = None
    cu_seqlens_k: ArrayT | None = None
    max_seqlen_q: int | None = None
    max_seqlen_k: int | None = None
    align: str = "last"
    block_mask: ArrayT | None = None
    block_size: tuple[int, int] = BLOCK_SIZE
    q_descale: ArrayT | None = None
    k_descale: ArrayT | None = None
    v_descale: ArrayT | None = None
    out_dtype: object = None

    @property
    def seen(self) -> Window:
        """The keys that queries see."""
        return Window.of(self.causal, self.window, self.align)


def heads_third(x: ViewT, layout: str) -> ViewT:
    """An array as the kernel takes it, (batch, s, heads, d): a view."""
    return x if layout == "bshd" or len(x.shape) != 4 else x.swapaxes(1, 2)


def checked(call: AttentionCall[ArrayT]) -> Extents:
    """The extents of a call, of packed sequences those of all of them; extents of 0 may be.

    Raises:
        BindError: arrays that do not fit together, or a setting that `AttentionConfig` does not
            have.
    """
    refuse_elsewhere(NAME, (name for name, _ in call.settings), ELSEWHERE)
    check_settings(NAME, AttentionCall, call.settings, SETTINGS)
    layout = call.layout
    sequences = _packed(call)
    Window.of(call.causal, call.window, call.align)
    q, k, v = (heads_third(x, layout) for x in (call.q, call.k, call.v))
    out = None if call.out is None else heads_third(call.out, layout)
    try:
        found = check_attention(
            q, k, v, out, scale=call.scale, empty=True, sequences=sequences, narrow=True
        )
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
    check_block_mask(call.block_mask, call.block_size, found)
    _check_descales(call, found)
    return replace(found, result=_result(call, found))


def _result(call: AttentionCall[ArrayT], found: Extents) -> DType:
    """The dtype of the result.

    Raises:
        BindError: it is not that of the operands, or of 8-bit ones no 16-bit one.
    """
    asked = result_dtype(NAME, call.out, call.out_dtype, found.out_dtype)
    if found.narrow and all(asked is not t for t in INPUTS):
        raise BindError(
            f"{NAME} of {NARROW} gives {' or '.join(t.name for t in INPUTS)}; got out_dtype {asked}"
        )
    if not found.narrow and asked is not found.dtype:
        raise BindError(
            f"{NAME} of {found.dtype} gives {found.dtype}; out_dtype is of {NARROW}: leave it out,"
            f" and convert the result to {asked}"
        )
    return asked


def _check_descales(call: AttentionCall[ArrayT], found: Extents) -> None:
    given = {"q": call.q_descale, "k": call.k_descale, "v": call.v_descale}
    if not found.narrow and any(x is not None for x in given.values()):
        raise BindError(
            f"{NAME}: descales say what {NARROW} stands for; q, k and v are {found.dtype}: leave"
            " them out, or write scale="
        )
    for name, x in given.items():
        check_descale(f"{name}_descale", x, found)
    if found.narrow:
        check_factor(call.q_descale, call.k_descale, found.scale)


def _packed(call: AttentionCall[ArrayT]) -> int:
    """How many sequences are packed; 0: none are.

    Raises:
        BindError: bounds, or numbers beside them, that cannot be.
    """
    longest = {"max_seqlen_q": call.max_seqlen_q, "max_seqlen_k": call.max_seqlen_k}
    found = check_bounds(call.cu_seqlens_q, call.cu_seqlens_k, call.q, call.k)
    for name, value in longest.items():
        if value is None:
            continue
        number = plain_int(value)
        if number is None or number < 0:
            raise BindError(
                f"{NAME}: {name} is the length of the longest sequence, a number from 0; got"
                f" {shown(value)}"
            )
        if not found:
            raise BindError(
                f"{NAME}: {name} is of packed sequences: pass cu_seqlens_q and cu_seqlens_k, which"
                " say where they begin"
            )
    if found and call.layout != "bshd":
        raise BindError(
            f'{NAME}: packed sequences are (total, heads, d); layout="{call.layout}" is of batches:'
            " leave it out"
        )
    return found


def lse_shape(found: Extents) -> tuple[int, ...]:
    """The shape of the logarithms."""
    batch = () if found.sequences else (found.batch,)
    return *batch, found.heads, found.s_q


def result_shape(found: Extents, layout: str) -> tuple[int, ...]:
    """The shape of the result."""
    if found.sequences:
        return found.s_q, found.heads, found.d_v
    if layout == "bshd":
        return found.batch, found.s_q, found.heads, found.d_v
    return found.batch, found.heads, found.s_q, found.d_v


def config(
    found: Extents, call: AttentionCall[ArrayT], chip: Chip | None = None
) -> AttentionConfig:
    """What is chosen for the shape on a GPU, or for the simulator (None); with settings, what the
    heuristic picks, with these instead.
    """
    changes = ScoreChanges(call.softcap != 0, call.slopes is not None, call.score).count
    block = None if call.block_mask is None else call.block_size
    accumulate = dict(call.settings).get("accumulate")
    problem = AttentionProblem.of(
        found,
        call.seen.sides,
        call.max_seqlen_k,
        changes=changes,
        block=block,
        accumulate=None if accumulate is None else str(accumulate),
    )
    if chip is not None and not call.settings:
        return tuned.choose(TUNABLE, problem, chip)
    picked = TUNABLE.best(problem, chip or H200)
    return configured(AttentionConfig, picked.as_dict(), call.settings)
