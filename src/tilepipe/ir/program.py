"""A whole kernel: parameters, shared memory, barriers, roles on warps; and a launch of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from tilepipe.ir import ops
from tilepipe.ir.chip import BLACKWELL, H200, HOPPER, Chip
from tilepipe.ir.expressions import Expr
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import (
    BarrierArray,
    BarrierRef,
    NamedBarrier,
    ScalarParam,
    SmemBuffer,
    TensorParam,
)

WARP = 32
WARPGROUP = 128


@dataclass(eq=False, slots=True)
class Role:
    """Warps that run one body.

    `first_warp` is the warp of the CTA where the role starts; a warpgroup role (`is_warpgroup`)
    starts at a multiple of 4. `registers`: what every warpgroup of the role requests by setmaxnreg.
    """

    name: str
    warps: int
    is_warpgroup: bool
    registers: int | None
    body: ops.Block
    loc: Loc
    first_warp: int = -1

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def agents(self) -> int:
        """The number of agents that run it: one for each warpgroup, or for each warp."""
        return self.warps // 4 if self.is_warpgroup else self.warps

    @property
    def agent_threads(self) -> int:
        return WARPGROUP if self.is_warpgroup else WARP


@dataclass(eq=False, slots=True)
class Requirement:
    """A launch precondition, checked on the host where its values are known there.

    Attributes:
        holds: a condition on arguments, extents and `num_clusters`; or a tensor that must hold
            zeros.
        message: the error otherwise, with `{}` for each value shown.
        shows: the values; for a tensor, its first element other than 0 is shown.
    """

    loc: Loc
    holds: Expr | TensorParam
    message: str
    shows: tuple[Expr, ...] = ()


@dataclass(eq=False, slots=True, weakref_slot=True)
class Kernel:
    """A traced kernel. Built by `lang`; read by `sim`, `check` and `cuda`."""

    name: str
    loc: Loc
    params: list[TensorParam | ScalarParam] = field(default_factory=list)
    buffers: list[SmemBuffer] = field(default_factory=list)
    barriers: list[BarrierArray] = field(default_factory=list)
    named_barriers: list[NamedBarrier] = field(default_factory=list)
    requirements: list[Requirement] = field(default_factory=list)
    setup: ops.Block = field(default_factory=ops.Block)
    roles: list[Role] = field(default_factory=list)
    cluster: tuple[int, int, int] = (1, 1, 1)
    warps: int = 0
    smem_bytes: int = 0
    # CTAs that share each tcgen05 op: 1, or 2 of a pair; 0: the kernel has no such op
    cta_group: int = 0
    arch: str = ""  # the architecture that has its ops
    cooperative: bool = False  # launched only if all its CTAs run at once
    ctas_per_sm: int = 1  # that the registers of an SM must do for

    @property
    def threads(self) -> int:
        return self.warps * WARP

    @property
    def cluster_size(self) -> int:
        x, y, z = self.cluster
        return x * y * z


@dataclass(frozen=True, eq=False, slots=True)
class TensorArg:
    """A tensor argument. `array` is a NumPy array for the simulator, any device array for a launch;
    `shape` is in elements.
    """

    array: Any
    shape: tuple[int, ...]


Arg = TensorArg | int | float


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """`kernel` over `grid` CTAs (a multiple of the cluster size; CTAs of a cluster are consecutive)
    with `args` by parameter name.
    """

    kernel: Kernel
    grid: int
    args: dict[str, Arg]
    chip: Chip = H200


class HoldsLaunch(Protocol):
    """A program, of which a reader takes the launch."""

    @property
    def launch_args(self) -> Launch: ...


def bodies(op: ops.Op) -> tuple[ops.Block, ...]:
    """The blocks nested in an op."""
    return tuple([getattr(op, name) for name in op.blocks]) if op.blocks else ()


def walk(block: ops.Block) -> Iterator[ops.Op]:
    """Every op of a block, nested ones included, in program order."""
    for op in block.ops:
        yield op
        for name in op.blocks:
            yield from walk(getattr(op, name))


def blocks(kernel: Kernel) -> tuple[tuple[Role | None, ops.Block], ...]:
    """The set-up, whose role is None, and the body of each role."""
    return ((None, kernel.setup), *((role, role.body) for role in kernel.roles))


def all_ops(kernel: Kernel) -> Iterator[ops.Op]:
    """Every op of a kernel, set-up first, in program order."""
    return (op for _, block in blocks(kernel) for op in walk(block))


def barrier_of(op: ops.Op) -> BarrierRef | None:
    """The mbarrier an op names, if it names one."""
    bar = getattr(op, "bar", None)
    return bar if isinstance(bar, BarrierRef) else None


def named_barrier_of(op: ops.Op) -> NamedBarrier | None:
    """The hardware barrier an op uses, if it uses one: that in which the warps of a reduction await
    each other, too.
    """
    bar, partials = getattr(op, "bar", None), getattr(op, "partials", None)
    if isinstance(partials, ops.Partials):
        return partials.barrier
    return bar if isinstance(bar, NamedBarrier) else None


def only_on(op: ops.Op) -> tuple[str, str]:
    """(what it is, the one generation that has it) of an op; empty where both have it."""
    match op:
        case ops.TmaLoad(bar=BarrierRef(cta=Expr())):
            return "a TMA load that reports to another CTA's barrier", BLACKWELL
    return ("", "") if op.facts.feature is None else op.facts.feature.value


def architecture(kernel: Kernel) -> str:
    """The generation that a kernel's ops need; sm_90a where both have them all."""
    return next((home for op in all_ops(kernel) if (home := only_on(op)[1])), HOPPER)
