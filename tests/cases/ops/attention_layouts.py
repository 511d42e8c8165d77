"""Layouts and shapes of attention that are tried with emulated launches and on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

EMPTY = [(0, 4, 4, 2), (2, 0, 4, 2), (2, 4, 0, 2), (2, 4, 4, 0)]  # batch, s_q, s_kv, heads


def _fused(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """Parts of one tensor (batch, s, heads of q, k and v, d), as a projection gives them; s_q is
    s_kv.
    """
    whole = q.new_zeros((*q.shape[:2], q.shape[2] + 2 * k.shape[2], q.shape[3]))
    parts: tuple[Any, Any, Any] = whole.split([q.shape[2], k.shape[2], k.shape[2]], dim=2)
    for part, x in zip(parts, (q, k, v), strict=True):
        part.copy_(x)
    return parts


def _each(change: Callable[[Any], Any]) -> Callable[[Any, Any, Any], tuple[Any, ...]]:
    return lambda q, k, v: tuple(change(x) for x in (q, k, v))


def _wider(x: Any) -> Any:
    whole = x.new_zeros((*x.shape[:3], x.shape[3] + 8))
    whole[..., : x.shape[3]] = x
    return whole[..., : x.shape[3]]


TAKEN: dict[str, Callable[[Any, Any, Any], tuple[Any, ...]]] = {
    "contiguous": lambda q, k, v: (q, k, v),
    "heads before queries": _each(lambda x: x.transpose(1, 2).contiguous().transpose(1, 2)),
    "queries outermost": _each(lambda x: x.transpose(0, 1).contiguous().transpose(0, 1)),
    "parts of one projection": _fused,
    "parts of wider rows": _each(_wider),
    "every second query": _each(lambda x: x.repeat_interleave(2, 1)[:, ::2]),
}
"""Layouts that TMA takes where they lie; (batch, s, heads, d)."""

REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "d not contiguous": (lambda x: x.transpose(2, 3).contiguous().transpose(2, 3), "contiguous"),
    "one batch for all": (lambda x: x[:1].expand(x.shape), "positive multiples of 16 bytes"),
    "backwards in d": (lambda x: x.repeat_interleave(2, 3)[..., ::2], "contiguous"),
    "off by one element": (lambda x: _shifted(x), "start at a multiple of 16 bytes"),
    "rows of odd length": (lambda x: _odd(x), "multiples of 16 bytes"),
}
"""And those that it does not take, and words of what is said."""


def _shifted(x: Any) -> Any:
    y = x.new_zeros(x.numel() + 1)
    y[1:] = x.reshape(-1)
    return y[1:].view(x.shape)


def _odd(x: Any) -> Any:
    whole = x.new_zeros((*x.shape[:3], x.shape[3] + 1))
    whole[..., : x.shape[3]] = x
    return whole[..., : x.shape[3]]
