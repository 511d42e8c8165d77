"""What the gradients of attention take: arrays, each mistake one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.kernels.attention.validation import Extents, check_attention
from tilepipe.kernels.attention_backward.config import DEPTHS
from tilepipe.kernels.common.validation import Array, check_array, dtype_of

NAME = "attention_backward"


def check_backward(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    dout: Array,
    lse: Array,
    *,
    scale: float | np.floating[Any] | None = None,
) -> Extents:
    """The extents of q (batch, s_q, heads, d), k (batch, s_kv, kv_heads, d), v (batch, s_kv,
    kv_heads, d_v), out and dout (batch, s_q, heads, d_v), lse (batch, heads, s_q) float32. Extents
    of 0 may be.

    Raises:
        BindError: arrays that `attention` would not take, or heads of more than 128 elements.
    """
    try:
        found = check_attention(q, k, v, out, lse, scale=scale, empty=True)
    except tp.BindError as error:
        raise tp.BindError(str(error).replace("attention", NAME, 1)) from None
    for name, width in (("q and k", found.d), ("v", found.d_v)):
        if width > DEPTHS[-1]:
            raise tp.BindError(
                f"{NAME}: heads of {name} have {width} elements; there are gradients for up to"
                f" {DEPTHS[-1]}"
            )
    _require("dout", dout, 4, found.dtype)
    if tuple(dout.shape) != tuple(out.shape):
        raise tp.BindError(
            f"{NAME}: dout, the gradient of out, must have its shape {tuple(out.shape)}; it has"
            f" {tuple(dout.shape)}"
        )
    return found


def require_alike(name: str, x: Array, other: str, of: Array) -> None:
    """Raises BindError for a gradient that has another shape or dtype than what it is of."""
    if tuple(x.shape) != tuple(of.shape) or str(x.dtype) != str(of.dtype):
        raise tp.BindError(
            f"{NAME}: {name} must have the shape and dtype of {other}, {tuple(of.shape)}"
            f" {of.dtype}; it has {tuple(x.shape)} {x.dtype}"
        )


def require_float32(name: str, x: Array, shape: tuple[int, ...]) -> None:
    """Raises BindError for a workspace that is not float32 of a shape."""
    _require(name, x, len(shape), tp.float32)
    if tuple(x.shape) != shape:
        raise tp.BindError(f"{NAME}: {name} must have shape {shape}, it has {tuple(x.shape)}")


def _require(name: str, x: Array, rank: int, dtype: tp.DType) -> None:
    """Raises BindError for an array, which may have no elements, of another rank or dtype."""
    check_array(NAME, name, x, rank)
    found = dtype_of(NAME, name, x)
    if found is not dtype:
        raise tp.BindError(f"{NAME}: {name} is {found}; it must be {dtype}")
