"""What attention takes, on every architecture: dtypes, shapes, memory orders and the scale, each
mistake one sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.host_arguments import shown
from tilepipe.kernels.attention.values import UNIT, turned_shape
from tilepipe.kernels.common.validation import (
    Array,
    check_array,
    check_descale_values,
    check_scale,
    check_score_factor,
    dtype_of,
    mapped,
)

NAME = "attention"
INPUTS: tuple[tp.DType, ...] = (tp.bfloat16, tp.float16)
NARROW = tp.float8_e4m3  # of q, k and v beside an output of 16 bits
LARGEST_HEAD = 256  # elements: of q and k, and of v
_SAME = "batch, keys and heads: dimensions 0 to 2"


@dataclass(frozen=True)
class Extents:
    """What `check_attention` found: extents, and the dtype of q, k and v.

    Attributes:
        d: elements of a head of q and k. d_v: of v and out.
        scale: of the scores, positive; 1/sqrt(d) unless given.
        sequences: how many are packed in a batch of 1, whose s_q and s_kv are all their queries and
            keys; 0: none are.
        result: the dtype of out, where it is not that of q.
    """

    batch: int
    s_q: int
    s_kv: int
    heads: int
    kv_heads: int
    d: int
    d_v: int
    dtype: tp.DType
    scale: float
    sequences: int = 0
    result: tp.DType | None = None

    @property
    def narrow(self) -> bool:
        """True if q, k and v have 8 bits."""
        return self.dtype is NARROW

    @property
    def out_dtype(self) -> tp.DType:
        """The dtype of out: bfloat16 unless given where q, k and v have 8 bits, else theirs."""
        return self.result or (tp.bfloat16 if self.narrow else self.dtype)

    @property
    def other_d_v(self) -> int:
        """Elements of a head of V; 0: as many as of q and k."""
        return 0 if self.d_v == self.d else self.d_v

    @property
    def group(self) -> int:
        """Query heads that share one head of K and V: head h reads K and V of head h // group."""
        return self.heads // self.kv_heads

    @property
    def empty(self) -> bool:
        """True if there is nothing to multiply: no query, or no key."""
        return 0 in (self.batch, self.s_q, self.s_kv, self.heads)


def check_attention(
    q: Array,
    k: Array,
    v: Array,
    out: Array | None = None,
    lse: Array | None = None,
    *,
    scale: float | np.floating[Any] | None = None,
    empty: bool = False,
    sequences: int = 0,
    narrow: bool = False,
    turned: bool = False,
) -> Extents:
    """The extents of q (batch, s_q, heads, d), k (batch, s_kv, kv_heads, d), v (batch, s_kv,
    kv_heads, d_v), out (batch, s_q, heads, d_v), lse (batch, heads, s_q) float32.

    Args:
        sequences: where above 0, so many are packed: q (total_q, heads, d), k (total_k, kv_heads,
            d), v (total_k, kv_heads, d_v), out (total_q, heads, d_v), lse (heads, total_q).
        scale: None, or a positive number. empty: whether extents of 0 may be, which no tensor map
            has.
        narrow: whether q, k and v may be float8_e4m3, beside an output of 16 bits. turned: whether
            v is then as `values.turned` gives it.

    Raises:
        BindError: something is no array, has another dtype, the shapes do not fit together, or the
            scale is no such number.
    """
    arrays = {"q": q, "k": k, "v": v} | ({} if out is None else {"out": out})
    dtypes = {
        name: _dtype(name, x)
        for name, x in (arrays | ({} if lse is None else {"lse": lse})).items()
    }
    _check_dtypes({name: dtypes[name] for name in arrays}, narrow=narrow)
    eight = dtypes["q"] is NARROW
    if eight and sequences:
        raise tp.BindError(
            f"{NAME}: packed sequences (cu_seqlens) are bfloat16 or float16; of {NARROW} there are"
            " batches, whose sequences have one length"
        )
    for name, x in arrays.items():
        _check_rank(name, tuple(x.shape), packed=sequences > 0)
    v_shape = (
        _before_turning(tuple(v.shape), tuple(k.shape)) if turned and eight else tuple(v.shape)
    )
    (*batch, s_q, heads, d), (*k_batch, s_kv, kv_heads, k_d), d_v = q.shape, k.shape, v_shape[-1]
    if v_shape[:-1] != tuple(k.shape[:-1]):
        said = "keys and heads: dimensions 0 and 1" if sequences else _SAME
        raise tp.BindError(
            f"{NAME}: k and v must have the same {said}; they have {tuple(k.shape)} and {v_shape}"
        )
    if (batch, d) != (k_batch, k_d):
        said = "d: dimension 2" if sequences else "batch and d: dimensions 0 and 3"
        raise tp.BindError(
            f"{NAME}: q {tuple(q.shape)} and k {tuple(k.shape)} must have the same {said}"
        )
    for name, width, unit in (("q and k", d, 16 if eight else 8), ("v", d_v, 8)):
        if width % unit or not 0 < width <= LARGEST_HEAD:
            raise tp.BindError(
                f"{NAME}: a head of {name} has a multiple of {unit} elements{' of 8 bits' * eight},"
                f" {LARGEST_HEAD} at most; it has {width}. Shorter ones can be padded with zeros:"
                " then pass scale=1/sqrt(d) of what they were"
            )
    if heads != kv_heads and (not kv_heads or heads % kv_heads):
        raise tp.BindError(
            f"{NAME}: q has {heads} heads and k {kv_heads}; heads of q must be a multiple of"
            " those of k, which share them"
        )
    result = (*batch, s_q, heads, d_v)
    if out is not None and tuple(out.shape) != result:
        raise tp.BindError(
            f"{NAME}: out must have the shape {result}, of q with the last dimension of v; it has"
            f" {tuple(out.shape)}"
        )
    of_lse = (*batch, heads, s_q)
    if lse is not None and (dtypes["lse"] is not tp.float32 or tuple(lse.shape) != of_lse):
        said = "(heads, total_q)" if sequences else "(batch, heads, s_q)"
        raise tp.BindError(
            f"{NAME}: lse must be float32 of shape {of_lse}, {said}; it is {dtypes['lse']} of"
            f" {tuple(lse.shape)}"
        )
    number = batch[0] if batch else 1
    factor = check_scale(NAME, scale, d)
    found = Extents(
        number, s_q, s_kv, heads, kv_heads, d, d_v, dtypes["q"], factor, sequences,
        dtypes["out"] if eight and out is not None else None,
    )  # fmt: skip
    if found.empty and not empty:
        raise tp.BindError(
            f"{NAME}: q {tuple(q.shape)} or k {tuple(k.shape)} has no elements, so nothing to"
            " launch; ops.attention returns the result"
        )
    return found


def _before_turning(shape: tuple[int, ...], keys: tuple[int, ...]) -> tuple[int, ...]:
    """The shape (batch, s_kv, kv_heads, d_v) of the values of which turned ones are given; `keys`:
    the shape of k.
    """
    batch, s_kv, kv_heads, _ = keys
    wanted = turned_shape(batch, s_kv, kv_heads, shape[2])
    if shape != wanted:
        raise tp.BindError(
            f"{NAME}: v of {NARROW} is turned (kernels.attention.values): (batch, kv_heads, d_v,"
            f" s_kv up to a multiple of {UNIT}), beside k {keys} {wanted[:2]}, d_v and {wanted[3]};"
            f" it has shape {shape}"
        )
    return batch, s_kv, kv_heads, shape[2]


def boxed(
    name: str,
    x: Array,
    box: tuple[int, int],
    *,
    turned: bool = False,
    ragged: bool = False,
    swizzle: int | None = None,
    kernel: str = NAME,
) -> tp.TensorMap:
    """The tensor map of one of q, k, v and out as (batch, heads, s, d), `turned` as (batch, heads,
    d, s), both without the batch if x has none: copies of one head. `ragged`, `swizzle`: as of
    `tensor_map`; `kernel`: for messages.

    Raises:
        BindError: TMA cannot take it: d must be contiguous, the other strides positive multiples of
            16 bytes.
    """
    rank = len(x.shape)
    view = x.swapaxes(rank - 3, rank - 2)
    return mapped(
        kernel,
        name,
        view.swapaxes(rank - 2, rank - 1) if turned else view,
        (*(1,) * (rank - 2), *box),
        order="col" if turned else "row",
        given=x,
        ragged=ragged,
        swizzle=swizzle,
    )


def _check_rank(name: str, shape: tuple[int, ...], *, packed: bool) -> None:
    of_q, instead = name in ("q", "out"), ""
    if packed:
        rank, said = 3, "total_q, heads, d" if of_q else "total_k, kv_heads, d"
        why = ", as sequences are packed by cu_seqlens"
        if len(shape) == 4:
            rows = f"{name}[0]" if shape[0] == 1 else f"{name}.reshape(-1, {shape[2]}, {shape[3]})"
            instead = f": pass {rows}"
    else:
        rank, said = 4, "batch, s_q, heads, d" if of_q else "batch, s_kv, kv_heads, d"
        why = ""
    if len(shape) != rank:
        raise tp.BindError(
            f"{NAME}: {name} must have {rank} dimensions ({said}){why}, it has shape {shape}"
            f"{instead}"
        )


def _dtype(name: str, x: Array) -> tp.DType:
    check_array(NAME, name, x)
    return dtype_of(NAME, name, x)


def _check_dtypes(dtypes: dict[str, tp.DType], *, narrow: bool) -> None:
    # torch.compile hashes no DType, and joins no generator
    operands = [dtypes[name] for name in ("q", "k", "v")]
    if narrow and any(x is NARROW for x in operands):
        out = dtypes.get("out", tp.bfloat16)
        if any(x is not NARROW for x in operands) or all(out is not t for t in INPUTS):
            raise tp.BindError(
                f"{NAME} takes q, k and v of {NARROW} together, and an out of"
                f" {' or '.join(t.name for t in INPUTS)}; got {_named(dtypes)}"
            )
        return
    if any(x is not dtypes["q"] for x in dtypes.values()) or all(
        x is not dtypes["q"] for x in INPUTS
    ):
        also = f", or {NARROW} for q, k and v" if narrow else ""
        raise tp.BindError(
            f"{NAME} takes {' or '.join(t.name for t in INPUTS)}, the same for"
            f" {', '.join(dtypes)}{also}; got {_named(dtypes)}"
        )


def _named(dtypes: dict[str, tp.DType]) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())


def check_descale(name: str, x: Array | None, found: Extents) -> None:
    """What 8-bit operands of each head of K and V, and those of q that share it, are multiplied
    with.

    Raises:
        BindError: not float32 of shape (batch, kv_heads); of NumPy arrays also a number that is
            negative, NaN, or more than 2^100.
    """
    if x is None:
        return
    wanted = (found.batch, found.kv_heads)
    if not hasattr(x, "shape") or _dtype(name, x) is not tp.float32 or tuple(x.shape) != wanted:
        kind = f"{_dtype(name, x)} of {tuple(x.shape)}" if hasattr(x, "shape") else shown(x)
        raise tp.BindError(
            f"{NAME}: {name} is float32 of shape {wanted}, (batch, kv_heads), or broadcasts to it,"
            f" or is one number; it is {kind}"
        )
    check_descale_values(NAME, name, x)


def check_factor(q: Any, k: Any, scale: float, kind: str = "descale") -> None:
    """What scores are multiplied with, where the host knows it: `q` and `k` are numbers or NumPy
    arrays of one shape, None for 1; of others nothing is asked. `kind`: what they are called.

    Raises:
        BindError: it is more than float32 holds beside a score.
    """
    given = {f"q_{kind}": q, f"k_{kind}": k}
    factors = {name: x for name, x in given.items() if x is not None}
    if factors:
        check_score_factor(NAME, scale, factors)


def check_counter(counter: Array | None, dynamic: bool, q: Array) -> Array | None:
    """The counter that a dynamic schedule draws tiles from: the one given, or a new one beside
    NumPy arrays.

    Raises:
        BindError: none beside other arrays, one for another schedule, or no int32 of one element.
    """
    if counter is None:
        if dynamic and not isinstance(q, np.ndarray):
            raise tp.BindError(
                f'{NAME}: schedule="dynamic" draws tiles from a counter in GPU memory: pass'
                " counter=, an int32 array of one 0, which no other kernel uses meanwhile"
            )
        return np.zeros(1, np.int32) if dynamic else None
    if not dynamic:
        raise tp.BindError(f'{NAME}: counter is of schedule="dynamic"; leave it out')
    check_array(NAME, "counter", counter, 1, (tp.int32,))
    if counter.shape[0] != 1:
        raise tp.BindError(f"{NAME}: counter has one element, it has {counter.shape[0]}")
    return counter
