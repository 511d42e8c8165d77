"""Commits: mbarrier arrivals that wait for a wgmma group to retire, and multicast masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs, memory, ops, printer
from tilepipe.ir.location import Loc, caller
from tilepipe.lang.handles.arrivals import Arrivals, count_arrivals
from tilepipe.lang.tracing.tracer import Tracer


class Mbar(Protocol):
    """One mbarrier: a `SharedMemBarrier`, or a pointer to one."""

    def ref(self) -> memory.BarrierRef:
        """The operand."""


def check_mask(tracer: Tracer, mask: int) -> None:
    """Raises TraceError when a mask names no CTA, or one outside the cluster."""
    size = tracer.kernel.cluster_size
    if mask < 1:
        raise TraceError(
            f"a mask of CTAs has a bit for each and names at least one, got mask {mask:#b}",
            caller(),
        )
    if mask >> size:
        raise TraceError(
            f"mask {mask:#b} names a CTA outside the cluster of {size} (bits 0..{size - 1})",
            caller(),
        )


@dataclass(frozen=True, eq=False)
class Commit:
    """An arrival bound to a wgmma group: made on `ref`'s barrier in every CTA of `mask` (None: this
    CTA's) once the group retires. A traced mask depends on the rank of the CTA alone; `members`
    are then its bits, as conditions.
    """

    ref: memory.BarrierRef
    mask: int | exprs.Expr | None
    loc: Loc
    members: tuple[exprs.Expr, ...] = ()

    def describe(self) -> str:
        """The barrier in messages."""
        return printer.barrier(self.ref)


def commit_arrivals(tracer: Tracer, commit: Commit) -> Arrivals:
    """The arrivals that one commit by every warpgroup of the role causes."""
    role = tracer.role.role
    leaders = tracer.all_active(role)
    leaders &= (np.arange(role.agent_threads) == 0)[None, None, :]
    size = tracer.kernel.cluster_size
    if commit.mask is None:
        return count_arrivals(role, size, leaders, 1, commit.ref.cta)
    if isinstance(commit.mask, exprs.Expr):
        return count_arrivals(role, size, leaders, 1, None, commit.mask)
    targets = [t for t in range(size) if commit.mask >> t & 1]
    total = count_arrivals(role, size, leaders, 1, exprs.const(targets[0]))
    for target in targets[1:]:
        total = total + count_arrivals(role, size, leaders, 1, exprs.const(target))
    return total


def arrival_op(
    commit: Commit, index: exprs.Expr | None = None, published: bool = True
) -> ops.Elect:
    """The arrival of a retired commit, by one lane of the warpgroup. `index` replaces the barrier's
    index. `published`: the body also accessed the slot by ordinary loads or stores, which the
    arrival must release.
    """
    # An arrive on a peer's barrier after wgmma reads alone is relaxed: it publishes no access of
    # this thread, and a release at cluster scope costs a quarter of a GEMM's speed.
    body = ops.Block()
    at = commit.ref.index if index is None else index
    ctas: list[exprs.Expr | None]
    if isinstance(commit.mask, int):
        ctas = [exprs.const(t) for t in range(commit.mask.bit_length()) if commit.mask >> t & 1]
    elif commit.mask is None:
        ctas = [commit.ref.cta]
    else:
        ctas = [exprs.const(t) for t in range(len(commit.members))]
    for i, cta in enumerate(ctas):
        sem = "relaxed" if cta is not None and not published else "release"
        bar = memory.BarrierRef(commit.ref.array, at, cta)
        op: ops.Op = ops.MbarArrive(commit.loc, bar, exprs.const(1), sem)
        if commit.members:
            op = ops.If(commit.loc, commit.members[i], ops.Block([op]), ops.Block())
        body.ops.append(op)
    return ops.Elect(commit.loc, "warpgroup", body)


def arrivals_of(arrival: ops.Elect) -> list[ops.MbarArrive]:
    """The arrives of an `arrival_op`."""
    inner = [
        x for op in arrival.body.ops for x in (op.then.ops if isinstance(op, ops.If) else [op])
    ]
    return [op for op in inner if isinstance(op, ops.MbarArrive)]
