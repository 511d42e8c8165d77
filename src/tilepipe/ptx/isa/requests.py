"""From the operands of lanes to the operands of the machine's requests.

An operand that is equal in all lanes of a warp is a Python number, any other an array of 32. Most
requests are made by one lane, or by several with the same operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import Machine
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in
from tilepipe.ptx.address_spaces import OFFSET_MASK, RANK_SHIFT
from tilepipe.ptx.lanes import WARP, Array, spread

Value = int | Array


def one(site: Site, mask: int, value: Value) -> int:
    """The value that all active lanes give.

    Raises:
        SimFault: they give different ones.
    """
    if not isinstance(value, np.ndarray):
        return value
    first = int(value[(mask & -mask).bit_length() - 1])
    if mask & (mask - 1) and any(int(value[lane]) != first for lane in lanes_in(mask)):
        raise SimFault(
            f"{site.what}: active lanes pass different values for an operand that must be"
            " warp-uniform",
            site.loc,
        )
    return first


def groups(mask: int, *values: Value) -> list[tuple[int, tuple[int, ...]]]:
    """The active lanes by the values that they give: (mask, values) of each group."""
    if not any(isinstance(v, np.ndarray) for v in values):
        return [(mask, tuple(int(v) for v in values))]
    found: dict[tuple[int, ...], int] = {}
    for lane in lanes_in(mask):
        key = tuple(int(v[lane]) if isinstance(v, np.ndarray) else v for v in values)
        found[key] = found.get(key, 0) | 1 << lane
    return [(part, key) for key, part in found.items()]


def each(m: Machine, ag: Agent, site: Site, mask: int, requests: list[Any]) -> None:
    """Several requests of one instruction, none of which waits: its lanes have other operands."""
    for op, operands in requests:
        op(m, ag, *operands)


def grouped(
    site: Site, mask: int, request: Callable[..., Any], *values: Value
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """`request(mask, values...)` for the lanes of each combination of values."""
    parts = groups(mask, *values)
    if len(parts) == 1:
        found: tuple[Callable[..., Any], tuple[Any, ...]] = request(*(parts[0][0], *parts[0][1]))
        return found
    return each, (site, mask, [request(part, *key) for part, key in parts])


def place(address: int) -> tuple[int, int]:
    """(CTA rank, offset) of a 32-bit address of shared memory of the cluster."""
    return address >> RANK_SHIFT & 0xFF, address & OFFSET_MASK


def per_lane(value: Value) -> Array:
    """A value of each lane."""
    return value if isinstance(value, np.ndarray) else np.full(WARP, value, np.int64)


def rows_of(values: tuple[Value, ...], dtype: np.dtype[Any]) -> Array:
    """The bytes that each lane stores."""
    rows = np.empty((WARP, len(values)), dtype)
    for i, value in enumerate(values):
        rows[:, i] = value if dtype.kind != "V" else _bits(value, dtype)
    return rows.view(np.uint8)


def _bits(value: Value, dtype: np.dtype[Any]) -> Array:
    """An array of 32 of a dtype; numbers are bits."""
    return value if isinstance(value, np.ndarray) else spread(value, dtype)
