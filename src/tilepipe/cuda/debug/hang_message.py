"""The message about a launch that was given up: which warps wait where and for what, which ops
would end the wait, and which other waits were blocked. It begins:

kernel 'gemm' hung on the GPU: a wait blocked for 200 ms, and the launch was given up.

  role 'mma', warps 0-7, of CTA 3 waits for phase parity 1 of inputs.full[2], at gemm.py:50
  ...
"""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.cuda.debug.record import Blocked, HangReport
from tilepipe.cuda.debug.wait_sites import WaitSite, cluster_warps, every_op, role_name
from tilepipe.errors import HangError
from tilepipe.ir import ops
from tilepipe.ir.facts import BRINGS
from tilepipe.ir.memory import BarrierArray, NamedBarrier
from tilepipe.ir.program import Kernel, barrier_of


def hang_error(report: HangReport, kernel: Kernel) -> HangError:
    """The exception for a launch of `kernel` that was given up."""
    first = report.first
    lines = [
        f"kernel '{kernel.name}' hung on the GPU: a wait blocked for {report.timeout_ms:g} ms,"
        " and the launch was given up.",
        "",
        f"  {_warps(first, kernel)} waits for {_awaited(first, kernel)}, at {first.site.loc.short}",
    ]
    arrivals = list(_arrivals(first.site, kernel))
    if arrivals:
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


def _warps(b: Blocked, kernel: Kernel) -> str:
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


def _awaited(b: Blocked, kernel: Kernel) -> str:
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
