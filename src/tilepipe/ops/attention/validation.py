"""The options of `attention`, checked once for both kinds of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from tilepipe.errors import BindError
from tilepipe.host_arguments import unknown_keywords
from tilepipe.kernels.attention.config import AttentionConfig, choose
from tilepipe.kernels.attention.validation import NAME, Extents, check_attention

LAYOUTS = ("bshd", "bhsd")
SETTINGS = tuple(f.name for f in fields(AttentionConfig))


def heads_third(x: Any, layout: str) -> Any:
    """An array as the kernel takes it, (batch, s, heads, d): a view."""
    return x if layout == "bshd" or x is None or len(x.shape) != 4 else x.swapaxes(1, 2)


def check(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    causal: object,
    scale: object,
    layout: str,
    settings: Mapping[str, Any],
) -> Extents:
    """The extents of arrays in `layout`; extents of 0 may be.

    Raises:
        BindError: they do not fit together, or a setting that `AttentionConfig` does not have.
    """
    unknown = [name for name in settings if name not in SETTINGS]
    if unknown:
        raise unknown_keywords(NAME, "attention", unknown, SETTINGS)
    try:
        views = (heads_third(x, layout) for x in (q, k, v, out))
        return check_attention(*views, scale=scale, causal=causal, empty=True)
    except BindError as error:
        if layout == "bshd":
            raise
        raise BindError(
            f"{error} (shapes are told as (batch, s, heads, d); layout={layout!r} exchanges the"
            " middle two)"
        ) from None


def config(found: Extents, causal: bool, settings: dict[str, Any]) -> AttentionConfig:
    """What is chosen for the shape, with these settings instead."""
    chosen = choose(found.d, causal, found.s_kv)
    return AttentionConfig(**asdict(chosen) | settings) if settings else chosen
