"""The memory that a launch of a timed build fills: its size, and what it says afterwards.

`stamps.cuh` writes it: a head for each warp of the CTAs that are noted, then room for so many
stamps of each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.cuda.codegen.stamps import ENDED_BIT, PARITY_BIT, POINT_BIT, RANK_BIT
from tilepipe.errors import BindError
from tilepipe.ir import ops
from tilepipe.ir.implied import Implied, implied
from tilepipe.ir.program import Kernel
from tilepipe.ir.stamps import Stamp, WarpStamps, points

ROOM = 4096  # stamps of a warp, unless a launch gives another number
_HEAD = np.dtype(
    [
        *((name, np.uint64) for name in ("began_ns", "began", "ended_ns", "ended")),
        ("count", np.uint32),
        ("sm", np.uint32),
    ]
)
_STAMP = np.dtype([("clock", np.uint32), ("about", np.uint32)])
_MOST = 1 << 31  # stamps of all warps: 16 GiB
_CLOCK = 1 << 32  # a stamp has the low bits of the clock


def stamp_bytes(kernel: Kernel, ctas: int, room: int) -> int:
    """The bytes of memory for `room` stamps of each warp of the first `ctas` CTAs."""
    return ctas * kernel.warps * (_HEAD.itemsize + room * _STAMP.itemsize)


def check_room(kernel: Kernel, ctas: int, room: int) -> None:
    """Asserts that there are not too many stamps, with so much room for each of these warps.

    Raises:
        BindError: there is room for more.
    """
    count = ctas * kernel.warps * room
    if count > _MOST:
        raise BindError(
            f"room={room:,} for each of {kernel.warps} warps of {ctas:,} CTAs is {count:,} notes,"
            f" {count * _STAMP.itemsize:,} bytes of GPU memory; a recording has at most {_MOST:,},"
            f" {_MOST * _STAMP.itemsize:,} bytes. Record fewer CTAs, or room up to"
            f" {_MOST // (ctas * kernel.warps):,}"
        )


def decode(
    memory: npt.NDArray[np.uint8], kernel: Kernel, ctas: int, room: int
) -> tuple[WarpStamps, ...]:
    """What the warps with a role have noted, CTA by CTA."""
    warps = kernel.warps
    split = ctas * warps * _HEAD.itemsize
    heads = memory[:split].view(_HEAD).reshape(ctas, warps)
    slots = memory[split:].view(_STAMP).reshape(ctas, warps, room)
    multicasts = frozenset(
        n
        for n, point in enumerate(points(kernel))
        if isinstance(point.op, ops.TmaLoad) and point.op.multicast is not None
    )
    follows = implied(kernel)
    with_role = [r.first_warp + warp for r in kernel.roles for warp in range(r.warps)]
    return tuple(
        _warp(heads[cta, warp], slots[cta, warp], cta, warp, multicasts, follows)
        for cta in range(ctas)
        for warp in sorted(with_role)
    )


def _warp(
    head: Any,
    slots: npt.NDArray[Any],
    cta: int,
    warp: int,
    multicasts: frozenset[int],
    follows: Implied,
) -> WarpStamps:
    began_ns, began, ended_ns, ended, count, sm = (int(x) for x in head.tolist())
    kept = slots[: min(count, len(slots))]
    # Each difference of the low bits is the true one: a warp passes two points in less than 2 s.
    ticks = np.diff(kept["clock"], prepend=np.uint32(began % _CLOCK)).astype(np.uint32)
    cycles = np.cumsum(ticks.astype(np.uint64)).tolist()
    found: list[Stamp] = []
    for at, word in zip(cycles, kept["about"].tolist(), strict=True):
        number, ended_here = word >> POINT_BIT, bool(word >> ENDED_BIT & 1)
        index = word & (1 << RANK_BIT) - 1
        if ended_here and number in multicasts:  # the second stamp of a multicast has its mask
            found[-1] = replace(found[-1], ctas=index)
            continue
        rank = word >> RANK_BIT & 31
        found.append(
            Stamp(number, ended_here, at, index, word >> PARITY_BIT & 1, rank - 1 if rank else None)
        )
    lost = max(count - len(slots), 0)
    every = tuple(follows.complete(found))
    return WarpStamps(cta, warp, sm, began_ns, ended_ns, began, ended, every, lost)
