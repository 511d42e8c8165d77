"""The record that a launch of a debug build fills when a wait does not end: its bytes before the
launch, and what they say afterwards.

`debug.cuh` declares the same layout for the device, which fills the record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilepipe.cuda.debug.wait_sites import WaitSite, sites
from tilepipe.errors import BindError
from tilepipe.ir.program import Kernel

RECORD_BYTES = 2048
TIMEOUT_MS = 2000  # how long a wait may block unless a launch gives another time
_HEAD = struct.Struct("<IIIIQQ")  # DebugRecord of debug.cuh: abort, cluster, waits, -, limit_ns, -
_WAIT = struct.Struct("<IIIIIIQ")  # DebugWait: site, block, warp, index, parity, -, state
_OTHERS = (RECORD_BYTES - _HEAD.size) // _WAIT.size - 1


@dataclass(frozen=True, slots=True)
class Blocked:
    """The warps of a CTA that were blocked at one wait when the launch was given up.

    Attributes:
        site: the wait.
        index: the index of the barrier in its array, or of the warpgroup's copy of a named barrier.
        parity: the parity of the phase that the wait is for (mbarriers).
        block: the index of the CTA in the grid.
        rank: its rank in the cluster.
        warps: the numbers of the warps in the CTA.
        state: the word of the barrier at that moment; for an mbarrier, 64 opaque bits.
    """

    site: WaitSite
    index: int
    parity: int
    block: int
    rank: int
    warps: tuple[int, ...]
    state: int

    @property
    def barrier(self) -> str:
        return self.site.name(self.index)


@dataclass(frozen=True, slots=True)
class HangReport:
    """A launch that was given up: the wait that expired first, and the other waits of its cluster
    that were blocked at that moment.
    """

    first: Blocked
    others: tuple[Blocked, ...]
    timeout_ms: float


def fresh_record(timeout_ms: float = TIMEOUT_MS) -> bytes:
    """The RECORD_BYTES bytes of a record before a launch. A record of zeros stands for TIMEOUT_MS.

    Raises:
        BindError: `timeout_ms` is not above 0.
    """
    if not timeout_ms > 0:
        raise BindError(
            f"timeout_ms is how long a wait may block, in milliseconds above 0; got {timeout_ms!r}"
        )
    return _HEAD.pack(0, 0, 0, 0, max(int(timeout_ms * 1e6), 1), 0).ljust(RECORD_BYTES, b"\0")


def decode(record: bytes, kernel: Kernel) -> HangReport | None:
    """The content of a record after a launch of `kernel`; None where every wait ended.

    Raises:
        BindError: the record belongs to another kernel.
    """
    if len(record) != RECORD_BYTES:
        raise BindError(f"a debug record has {RECORD_BYTES} bytes, got {len(record)}")
    abort, _, waits, _, limit, _ = _HEAD.unpack_from(record)
    if not abort:
        return None
    known = sites(kernel)
    entries = [
        _WAIT.unpack_from(record, _HEAD.size + i * _WAIT.size)
        for i in range(1 + min(waits, _OTHERS))
    ]
    unknown = [e[0] for e in entries if e[0] >= len(known)]
    if unknown:
        raise BindError(
            f"the debug record names wait {unknown[0]}; kernel '{kernel.name}' has {len(known)}:"
            " it is another kernel's"
        )
    first, *others = _blocked(kernel, known, entries)
    return HangReport(first, tuple(others), (limit or TIMEOUT_MS * 1_000_000) / 1e6)


def _blocked(
    kernel: Kernel, known: tuple[WaitSite, ...], entries: Iterable[tuple[int, ...]]
) -> Iterator[Blocked]:
    """Merges the entries of warps that were blocked at the same wait of the same CTA, in the order
    in which the warps made them.
    """
    groups: dict[tuple[int, ...], dict[int, int]] = {}
    for site, block, warp, index, parity, _, state in entries:
        groups.setdefault((site, block, index, parity), {}).setdefault(warp, state)
    for (site, block, index, parity), warps in groups.items():
        state = list(warps.values())[-1]
        yield Blocked(
            known[site],
            index,
            parity,
            block,
            block % kernel.cluster_size,
            tuple(sorted(warps)),
            state,
        )
