"""Debug and perturbed builds, the host's side: the waits of a kernel by number, the record that a
launch fills when one of them does not end, and such launches.

The device's side is `debug.cuh`; `instrument` prints it. A launch passes the address of a record
behind the program's arguments, and then the seed of a perturbed build.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilepipe.cuda.runtime import driver
from tilepipe.errors import BindError
from tilepipe.ir import ops
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import BarrierArray, NamedBarrier
from tilepipe.ir.program import Kernel, Role, walk

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

RECORD_BYTES = 2048
TIMEOUT_MS = 2000  # of a wait, unless a launch says otherwise
_HEAD = struct.Struct("<IIIIQQ")  # DebugRecord of debug.cuh: abort, cluster, waits, -, limit_ns, -
_WAIT = struct.Struct("<IIIIIIQ")  # DebugWait: site, block, warp, index, parity, -, state
_OTHERS = (RECORD_BYTES - _HEAD.size) // _WAIT.size - 1


@dataclass(frozen=True, slots=True)
class WaitSite:
    """A wait of a program.

    Attributes:
        op: MbarWait, NamedSync or ClusterWait. role: whose it is; None in set-up.
        barrier: what it waits on; None: the cluster's barrier.
    """

    op: ops.Op
    role: Role | None
    barrier: BarrierArray | NamedBarrier | None

    @property
    def loc(self) -> Loc:
        return self.op.loc

    def name(self, index: int) -> str:
        """`inputs.full[2]`; the name alone where there is one."""
        match self.barrier:
            case BarrierArray(name=name, size=count) | NamedBarrier(name=name, per_warpgroup=count):
                return f"{name}[{index}]" if count > 1 else name
        return "the cluster barrier"


def role_name(role: Role | None) -> str:
    """Who runs it, as in messages."""
    return "set-up" if role is None else f"role '{role.name}'"


def every_op(kernel: Kernel) -> Iterator[tuple[Role | None, ops.Op]]:
    """Every op with its role, in the order of printing."""
    for op in walk(kernel.setup):
        yield None, op
    for role in sorted(kernel.roles, key=lambda r: r.first_warp):
        for op in walk(role.body):
            yield role, op


def sites(kernel: Kernel) -> tuple[WaitSite, ...]:
    """The waits of a kernel that can block for ever, in program order: site n of a record is
    element n.

    Not among them: the meeting that ends set-up, where every thread arrives; wgmma and bulk-group
    waits, which end by themselves.
    """
    found = []
    for role, op in every_op(kernel):
        match op:
            case ops.MbarWait(bar=bar):
                found.append(WaitSite(op, role, bar.array))
            case ops.NamedSync(bar=named):
                found.append(WaitSite(op, role, named))
            case ops.ClusterWait():
                found.append(WaitSite(op, role, None))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Blocked:
    """Warps that a wait blocked when the launch was given up.

    Attributes:
        site: the wait. index: of the barrier in its array, or of the warpgroup's copy of a named
            barrier.
        parity: the bit of the phase that is waited for (mbarriers).
        block: the CTA's index in the grid; rank: in its cluster. warps: numbers in the CTA.
        state: the barrier's word then: of an mbarrier the opaque 64 bits.
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
    """A launch that was given up: the wait that ran out first, and who else in its cluster was
    waiting then.
    """

    first: Blocked
    others: tuple[Blocked, ...]
    timeout_ms: float


def fresh_record(timeout_ms: float = TIMEOUT_MS) -> bytes:
    """The RECORD_BYTES bytes a record holds before a launch; zeros mean TIMEOUT_MS.

    Raises:
        BindError: a time that is not above 0.
    """
    if not timeout_ms > 0:
        raise BindError(
            f"timeout_ms is how long a wait may block, in milliseconds above 0; got {timeout_ms!r}"
        )
    return _HEAD.pack(0, 0, 0, 0, max(int(timeout_ms * 1e6), 1), 0).ljust(RECORD_BYTES, b"\0")


def decode(record: bytes, kernel: Kernel) -> HangReport | None:
    """What a record says after a launch of `kernel`; None where every wait ended.

    Raises:
        BindError: the record is not one of this kernel.
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
    """Entries of one wait of one CTA become one, in the order in which they were made."""
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


def cluster_warps(kernel: Kernel) -> int:
    """Warps of a cluster that have a role."""
    return kernel.cluster_size * sum(role.warps for role in kernel.roles)


# -- launching -------------------------------------------------------------------------


def launch(
    launcher: Launcher,
    kernel: Kernel,
    addresses: tuple[int, ...],
    stream: int,
    *,
    seed: int = 0,
    timeout_ms: float = TIMEOUT_MS,
) -> None:
    """Launches a debug or perturbed build of `kernel` on a CUstream. A debug build's launch is
    waited for, and cannot be captured in a graph.

    `addresses`: of the tensors, as for `launcher`. `seed`: of the delays; its low 32 bits count.

    Raises:
        HangError: a wait of a debug build blocked for longer than `timeout_ms`. LaunchError: the
            kernel failed in another way.
        BindError, LaunchError: see `Launcher`.
    """
    from tilepipe.cuda.debug.hang import hang_error
    from tilepipe.cuda.runtime.launching import wait_for

    last = (ctypes.c_uint32(seed & 0xFFFFFFFF),) if launcher.compiled.perturbed else ()
    if not launcher.compiled.debug:
        launcher.launch_packed(launcher.pack(addresses, last), stream)
        return
    record: Any = ctypes.create_string_buffer(fresh_record(timeout_ms), RECORD_BYTES)
    with driver.current(launcher.ordinal):
        memory = driver.call("cuMemAlloc", RECORD_BYTES)
        try:
            driver.call("cuMemcpyHtoDAsync", memory, ctypes.addressof(record), RECORD_BYTES, stream)
            launcher.launch_packed(
                launcher.pack(addresses, (ctypes.c_uint64(int(memory)), *last)), stream
            )
            wait_for(kernel.name, stream)
            driver.call("cuMemcpyDtoH", ctypes.addressof(record), memory, RECORD_BYTES)
        finally:
            # after a failure it fails, too, and that is not what happened
            driver.api().cuMemFree(memory)
    report = decode(record.raw, kernel)
    if report is not None:
        raise hang_error(report, kernel)
