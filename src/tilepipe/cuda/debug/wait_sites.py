"""The waits of a kernel that can block for ever, by number.

A debug build passes the number of a wait to the device function that waits, and a record of a hang
names waits by these numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilepipe.ir import ops
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import BarrierArray, NamedBarrier
from tilepipe.ir.program import Kernel, Role, walk


@dataclass(frozen=True, slots=True)
class WaitSite:
    """A wait of a program.

    Attributes:
        op: MbarWait, NamedSync or ClusterWait.
        role: the role that executes it; None in set-up.
        barrier: the barrier that it waits on; None stands for the cluster barrier.
    """

    op: ops.Op
    role: Role | None
    barrier: BarrierArray | NamedBarrier | None

    @property
    def loc(self) -> Loc:
        return self.op.loc

    def name(self, index: int) -> str:
        """The name of the barrier in messages: `inputs.full[2]`, or `go` for an array of one."""
        match self.barrier:
            case BarrierArray(name=name, size=count) | NamedBarrier(name=name, per_warpgroup=count):
                return f"{name}[{index}]" if count > 1 else name
        return "the cluster barrier"


def role_name(role: Role | None) -> str:
    """The name of a role, or of set-up, in messages."""
    return "set-up" if role is None else f"role '{role.name}'"


def every_op(kernel: Kernel) -> Iterator[tuple[Role | None, ops.Op]]:
    """Every op of a kernel with its role, in the order of printing."""
    for op in walk(kernel.setup):
        yield None, op
    for role in sorted(kernel.roles, key=lambda r: r.first_warp):
        for op in walk(role.body):
            yield role, op


def sites(kernel: Kernel) -> tuple[WaitSite, ...]:
    """The waits of a kernel that can block for ever, in program order: a record calls element n of
    the result site n.

    Left out are the barrier that ends set-up, at which every thread arrives, and waits for wgmma
    and bulk groups, which the hardware ends.
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


def cluster_warps(kernel: Kernel) -> int:
    """The number of warps of a cluster that have a role."""
    return kernel.cluster_size * sum(role.warps for role in kernel.roles)
