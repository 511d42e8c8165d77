"""What generated code calls beside the ops: masks of threads, checks, printing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import KernelAssertError, SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.accesses import Rect
from tilepipe.machine.machine import Machine, OutOfTimeError
from tilepipe.machine.sites import Site

Array = npt.NDArray[Any]

_TIMED = 256  # iterations between two looks at the clock
MAX_TURNS = 2**20  # iterations of a while loop; no run that ends has so many


def lane_bits(cond: Array, base: int) -> int:
    """A bit mask of the threads for which an array over threads `base`.. holds."""
    return (
        int.from_bytes(
            np.packbits(np.asarray(cond, np.bool_), bitorder="little").tobytes(), "little"
        )
        << base
    )


@lru_cache(maxsize=4096)
def lanes(mask: int, base: int, count: int) -> Array:
    """The array over `count` threads from `base` that is true for the threads of `mask`."""
    return np.array([bool(mask >> (base + i) & 1) for i in range(count)])


def place(old: Array, new: Any, mask: int, base: int) -> Array:
    """`old`, an array over the agent's threads, with `new` for the threads of `mask`; `new` covers
    threads from `base`.
    """
    out = old.copy()
    if isinstance(new, np.ndarray) and new.ndim and len(new) != len(old):
        part = lanes(mask, base, len(new))
        out[base : base + len(new)][part] = new[part]
        return out
    active = lanes(mask, 0 if len(old) > 32 else base, len(old))
    return np.where(active, new, out)


def all_lanes(ag: Agent, site: Site, mask: int, span: int, unit: str) -> None:
    """An op that a whole warp or warpgroup executes together, by the threads of `mask` of the
    `span` in question.

    Raises:
        SimFault: some of them are masked out.
    """
    if mask != span:
        raise SimFault(
            f"{site.what}: {mask.bit_count()} of {span.bit_count()} threads of {ag} execute it, but"
            f" all threads of the {unit} must, together: take it out of the branch on a lane"
            " condition or the ctx.elect_one() around it.",
            site.loc,
        )


def part_of_a_warp(mask: int) -> bool:
    """True if some threads of a warp are in `mask` and some are not."""
    return any((mask >> shift) & 0xFFFFFFFF not in (0, 0xFFFFFFFF) for shift in (0, 32, 64, 96))


def whole_warps(ag: Agent, site: Site, mask: int) -> None:
    """`all_lanes` for an op that each warp executes as one."""
    for w in range(ag.warps):
        part = 0xFFFFFFFF << (32 * w)
        if mask & part:
            all_lanes(ag, site, mask & part, part, "warp")


def at(site: Site, index: int, size: int, what: str) -> int:
    """`index`, which must be in 0..size-1."""
    if not 0 <= index < size:
        raise SimFault(f"{site.what}: {what}[{index}] is out of range: there are {size}", site.loc)
    return index


def tile_rect(
    site: Site, row: int, col: int, rows: int, cols: int, height: int, width: int
) -> Rect:
    """The rectangle of a tile, which must lie within its buffer's tile of (height, width)."""
    if row < 0 or col < 0 or row + rows > height or col + cols > width:
        raise SimFault(
            f"{site.what}: rows {row}..{row + rows - 1} and columns {col}..{col + cols - 1} of a"
            f" {height}×{width} tile",
            site.loc,
        )
    return row, row + rows, col, col + cols


def rect_inside(
    site: Site, row: int, col: int, rows: int, cols: int, height: int, width: int
) -> Rect | None:
    """`tile_rect`; None where it does not lie within."""
    inside = row >= 0 and col >= 0 and row + rows <= height and col + cols <= width
    return tile_rect(site, row, col, rows, cols, height, width) if inside else None


def _plain(x: Any) -> Any:
    return x.item() if isinstance(x, np.generic) and x.dtype.kind != "f" else x


def _filled(text: str, args: Sequence[Any]) -> str:
    """`text` with an argument in place of each `{}`; other braces stay as they are."""
    parts = text.split("{}")
    values = [*(str(_plain(a)) for a in args), ""]
    return "".join(part + value for part, value in zip(parts, values, strict=True))


def show(m: Machine, ag: Agent, site: Site, mask: int, text: str, args: tuple[Any, ...]) -> None:
    """ctx.print: one line, or one for each active thread where an argument differs between
    threads.
    """
    arrays = [a for a in args if isinstance(a, np.ndarray) and a.ndim == 1]
    if not arrays:
        m.world.show(_filled(text, args))
        return
    base = (mask.bit_length() - 1) // 32 * 32 if len(arrays[0]) < 32 * ag.warps else 0
    for lane in range(mask.bit_length()):
        if mask >> lane & 1:
            m.world.show(
                _filled(
                    text,
                    [
                        a[lane - base] if isinstance(a, np.ndarray) and a.ndim == 1 else a
                        for a in args
                    ],
                )
            )


def trips(m: Machine, numbers: range) -> Iterable[int]:
    """`numbers`, the iterations of a loop that performs no op; with a look at the clock now and
    then where there is a deadline.

    Raises:
        OutOfTimeError: it has passed.
    """
    deadline = m.world.deadline
    return numbers if deadline is None else _timed(numbers, deadline)


def _timed(numbers: range, deadline: float) -> Iterator[int]:
    while numbers:
        if time.perf_counter() > deadline:
            raise OutOfTimeError
        yield from numbers[:_TIMED]
        numbers = numbers[_TIMED:]


def turns(m: Machine, ag: Agent, site: Site) -> Iterator[bool]:
    """True for each iteration of a while loop.

    Raises:
        SimFault: there have been so many that it will not end.
        OutOfTimeError: there is a deadline, and it has passed.
    """
    for _ in trips(m, range(MAX_TURNS)):
        yield True
    raise SimFault(
        f"this loop of {ag} has run {MAX_TURNS:,} times and its variable still holds: it may never"
        " end. Whatever sets the variable must come to set it to False",
        site.loc,
    )


def check(ag: Agent, site: Site, mask: int, cond: Any, message: str) -> None:
    """ctx.assert_.

    Raises:
        KernelAssertError: the condition does not hold for an active thread.
    """
    if isinstance(cond, np.ndarray) and cond.ndim == 1:
        base = (mask.bit_length() - 1) // 32 * 32 if len(cond) < 32 * ag.warps else 0
        failed = mask & ~lane_bits(cond, base)
        if not failed:
            return
        raise KernelAssertError(
            f"{message} (thread {(failed & -failed).bit_length() - 1} of {ag})", site.loc
        )
    if not np.all(cond):
        raise KernelAssertError(f"{message} ({ag})", site.loc)
