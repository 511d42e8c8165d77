"""Descales of attention: numbers, or arrays that broadcast to (batch, kv_heads), as callers of
FlashAttention 3 have them; the kernel takes arrays of that shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tilepipe.errors import BindError
from tilepipe.host_arguments import plain, shown
from tilepipe.kernels.attention.validation import NAME, check_factor
from tilepipe.kernels.common.validation import LARGEST_SCALE, check_scale
from tilepipe.ops.calls import Array, ArrayT

if TYPE_CHECKING:
    from tilepipe.ops.attention.call import AttentionCall


def checked_number(name: str, x: ArrayT | float | None) -> ArrayT | None:
    """A descale as it is, one number as a Python float, which stands for an array until `spread`.

    Raises:
        BindError: a number that is negative or not finite, or no number.
    """
    if x is None:
        return None
    number = plain(x)
    if hasattr(number, "shape") and not isinstance(number, np.generic):
        return cast("ArrayT", x)
    real = isinstance(number, int | float) and not isinstance(number, bool)
    if not real or not 0 <= number <= LARGEST_SCALE:
        raise BindError(
            f"{NAME}: {name} is float32 that broadcasts to (batch, kv_heads), or a number from 0 to"
            f" 2^100; got {shown(x)}"
        )
    return cast("ArrayT", float(number))


def spread(
    call: AttentionCall[ArrayT], to_heads: Callable[[Any, tuple[int, int]], ArrayT]
) -> AttentionCall[ArrayT]:
    """The call with an array of (batch, kv_heads) for each descale that it has; what cannot be one
    stays for the checks.

    Args:
        to_heads: makes one of a number, or of an array that broadcasts to it.

    Raises:
        BindError: numbers for q and k that together are too large.
    """
    of_q, of_k, of_v = call.q_descale, call.k_descale, call.v_descale
    if of_q is None and of_k is None and of_v is None:
        return call
    shape = tuple(getattr(call.k, "shape", ()))
    if len(shape) != 4:
        return call
    wanted = shape[0], shape[2 if call.layout == "bshd" else 1]
    if isinstance(of_q, float) and isinstance(of_k, float):
        # on a GPU only the kernel sees what is made of them
        check_factor(of_q, of_k, check_scale(NAME, call.scale, shape[3]))

    def able(x: ArrayT | None) -> ArrayT | None:
        fits = x is not None and broadcasts(tuple(getattr(x, "shape", ())), wanted)
        return to_heads(x, wanted) if fits else x

    return replace(call, q_descale=able(of_q), k_descale=able(of_k), v_descale=able(of_v))


def broadcasts(shape: tuple[int, ...], wanted: tuple[int, int]) -> bool:
    """True if an array of a shape broadcasts to `wanted`."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= 2 and all(n in (1, m) for n, m in pairs)


def array_of_heads(x: Any, wanted: tuple[int, int]) -> Array:
    """The descale of each (batch, head) as a NumPy array: `x` spread to `wanted`."""
    if isinstance(x, float):
        return np.full(wanted, x, np.float32)
    return np.ascontiguousarray(np.broadcast_to(x, wanted))
