"""The record that a launch of a debug build fills when a wait does not end: its bytes before the
launch, what they say afterwards, and the message about it.

`debug.cuh` declares the same layout for the device, which fills the record. The message says which
warps wait where and for what, which ops would end the wait, and which other waits were blocked:

kernel 'gemm' hung on the GPU: a wait blocked for 200 ms, and the launch was given up.

  role 'mma', warps 0-7, of CTA 3 waits for phase parity 1 of inputs.full[2], at gemm.py:50
  ...
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilepipe.cuda.debug.wait_sites import WaitSite, cluster_warps, every_op, role_name, sites
from tilepipe.errors import BindError, HangError
from tilepipe.ir import ops
from tilepipe.ir.facts import BRINGS
from tilepipe.ir.memory import BarrierArray, NamedBarrier
from tilepipe.ir.program import Kernel, barrier_of

RECORD_BYTES = 2048
TIMEOUT_MS = 2000  # how long a wait may block unless a launch gives another time
_HEAD = struct.Struct("<IIIIQQ")  # DebugRecord of debug.cuh: abort, cluster, waits, -, limit_ns, -
_WAIT = struct.Struct("<IIIIIIQ")  # DebugWait: site, block, warp, index, parity, -, state
_OTHERS = (RECORD_BYTES - _HEAD.size) // _WAIT.size - 1


@dataclass(frozen=True, slots=True)
class BlockedWarps:
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

    first: BlockedWarps
    others: tuple[BlockedWarps, ...]
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
    if unknown := [e[0] for e in entries if e[0] >= len(known)]:
        raise BindError(
            f"the debug record names wait {unknown[0]}; kernel '{kernel.name}' has {len(known)}:"
            " it is another kernel's"
        )
    first, *others = _blocked(kernel, known, entries)
    return HangReport(first, tuple(others), (limit or TIMEOUT_MS * 1_000_000) / 1e6)


def _blocked(
    kernel: Kernel, known: tuple[WaitSite, ...], entries: Iterable[tuple[int, ...]]
) -> Iterator[BlockedWarps]:
    """Merges the entries of warps that were blocked at the same wait of the same CTA, in the order
    in which the warps made them.
    """
    groups: dict[tuple[int, ...], dict[int, int]] = {}
    for site, block, warp, index, parity, _, state in entries:
        groups.setdefault((site, block, index, parity), {}).setdefault(warp, state)
    for (site, block, index, parity), warps in groups.items():
        state = list(warps.values())[-1]
        yield BlockedWarps(
            known[site],
            index,
            parity,
            block,
            block % kernel.cluster_size,
            tuple(sorted(warps)),
            state,
        )


def hang_error(report: HangReport, kernel: Kernel) -> HangError:
    """The exception for a launch of `kernel` that was given up."""
    first = report.first
    lines = [
        f"kernel '{kernel.name}' hung on the GPU: a wait blocked for {report.timeout_ms:g} ms,"
        " and the launch was given up.",
        "",
        f"  {_warps(first, kernel)} waits for {_awaited(first, kernel)}, at {first.site.loc.short}",
    ]
    if arrivals := list(_arrivals(first.site, kernel)):
        lines += [
            "",
            f"  what could end the wait{_count(first.site, kernel)}:",
            *(f"    {line}" for line in arrivals),
        ]
    if report.others:
        where = "CTA" if kernel.cluster_size == 1 else "cluster"
        lines += ["", f"  also waiting in this {where}:"]
        lines += [
            f"    {_warps(b, kernel)}: {_awaited(b, kernel)}, at {b.site.loc.short}"
            for b in report.others
        ]
    lines += [
        "",
        "  what to look at: program.run() runs the same program on the simulated GPU and names the"
        " arrivals or bytes that are missing.",
        "  If it finds nothing, the wait may only be long: raise timeout_ms. The results of this"
        " launch are not valid; the CUDA context is.",
    ]
    return HangError("\n".join(lines), first.site.loc)


def _warps(b: BlockedWarps, kernel: Kernel) -> str:
    base = 0 if b.site.role is None else b.site.role.first_warp
    warps = [w - base for w in b.warps]
    if len(warps) == 1:
        which = f"warp {warps[0]}"
    elif warps == list(range(warps[0], warps[-1] + 1)):
        which = f"warps {warps[0]}-{warps[-1]}"
    else:
        which = f"warps {', '.join(map(str, warps))}"
    rank = (
        f" (rank {b.rank} of cluster {b.block // kernel.cluster_size})"
        if kernel.cluster_size > 1
        else ""
    )
    return f"{role_name(b.site.role)}, {which}, of CTA {b.block}{rank}"


def _awaited(b: BlockedWarps, kernel: Kernel) -> str:
    match b.site.barrier:
        case BarrierArray():
            return f"phase parity {b.parity} of {b.barrier}"
        case NamedBarrier(threads=threads):
            arrived = 32 * (b.state & 0xFFFF)
            return (
                f"named barrier {b.barrier}, at which {arrived} of {threads} threads have arrived"
            )
    arrived, left = b.state & 0x3FF, b.state >> 10 & 0x3FF
    return (
        f"the cluster barrier, at which {arrived} of {cluster_warps(kernel)} warps have arrived"
        f"{f', {left} have left the kernel' if left else ''}"
    )


def _count(site: WaitSite, kernel: Kernel) -> str:
    if not isinstance(site.barrier, BarrierArray) or site.barrier.count is None:
        return ""
    expected = any(
        isinstance(op, ops.MbarExpect) and op.bar.array is site.barrier
        for _, op in every_op(kernel)
    )
    n = site.barrier.count
    return (
        f" ({n} arrival{'s' if n > 1 else ''} a phase"
        f"{', and the bytes expected' if expected else ''})"
    )


def _arrivals(site: WaitSite, kernel: Kernel) -> Iterator[str]:
    """A line for each op that signals the barrier of a wait."""
    seen = set()
    for role, op in every_op(kernel):
        match site.barrier:
            case BarrierArray() as array:
                ref = barrier_of(op)
                signals = bool(op.sync & BRINGS) and ref is not None and ref.array is array
            case NamedBarrier() as bar:
                signals = getattr(op, "bar", None) is bar
            case _:
                signals = isinstance(op, ops.ClusterArrive)
        if signals:
            line = f"{op.kind}, {role_name(role)} at {op.loc.short}"
            if line not in seen:
                seen.add(line)
                yield line
