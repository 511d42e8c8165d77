"""The grid and the clusters of a launch, given as numbers or as functions of arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tilepipe.errors import BindError
from tilepipe.host_arguments import plain_int, shown
from tilepipe.ir.chip import Chip
from tilepipe.lang.tracing.kernel import explain_none

MAX_GRID = 2**31 - 1


def resolved(what: Any, name: str, known: Mapping[str, Any]) -> Any:
    """A value as it is, or what a function makes of those of `known` that it names.

    Args:
        name: of the decorator's parameter, "grid" or "cluster", for messages.

    Raises:
        BindError: the function asks for something else, or does not say what it asks for.
    """
    if not callable(what):
        return what
    may = f"a function of any of {', '.join(known)}, by name"
    try:
        parameters = inspect.signature(what).parameters.values()
    except (TypeError, ValueError):  # a class, or a function of C, does not say
        raise BindError(
            f"{name}= is {may}; the parameters of {shown(what)} are not known"
        ) from None
    if any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise BindError(
            f"{name}= is {may}, not of *args, **kwargs or what stands before a slash: {shown(what)}"
        )
    unknown = [p.name for p in parameters if p.name not in known and p.default is p.empty]
    if unknown:
        raise BindError(f"{name}= asks for {', '.join(unknown)}; it may use {', '.join(known)}")
    given = {p.name: known[p.name] for p in parameters if p.name in known}
    with explain_none(f"{name}=", given):
        return what(**given)


def cluster_extents(value: Any, chip: Chip) -> tuple[int, int, int]:
    """The extents (x, y, z) of a cluster, in CTAs.

    Raises:
        BindError: no positive integers, or more CTAs than the chip takes.
    """
    shape = tuple(value) if isinstance(value, tuple | list) else (value,)
    extents = [n for n in map(plain_int, shape[:4]) if n is not None and n >= 1]
    if not 1 <= len(shape) <= 3 or len(extents) != len(shape):
        raise BindError(
            f"a cluster is (x,), (x, y) or (x, y, z) of positive integers, got {shown(value)}"
        )
    x, y, z = (*extents, 1, 1)[:3]
    if x * y * z > chip.max_cluster:
        raise BindError(
            f"a cluster of {x}×{y}×{z} = {x * y * z} CTAs; {chip.name} takes at most"
            f" {chip.max_cluster}"
        )
    return x, y, z
