"""Which architecture has which op."""

from __future__ import annotations

from tilepipe.ir import ops
from tilepipe.ir.exprs import Expr
from tilepipe.ir.memory import BarrierRef
from tilepipe.ir.program import Kernel, walk

ARCHITECTURES = ("sm_90a", "sm_100a")  # what has neither wgmma nor tcgen05 is for both; sm_100a has not been run


def only_on(op: ops.Op) -> tuple[str, str]:
    """(what it is, the one architecture that has it) of an op; empty where both have it."""
    match op:
        case ops.Wgmma() | ops.WgmmaFence() | ops.WgmmaCommit() | ops.WgmmaWait():
            return "wgmma", "sm_90a"
        case ops.Tcgen05Mma() | ops.Tcgen05Commit() | ops.Tcgen05FenceBefore() | ops.Tcgen05FenceAfter():
            return "tcgen05", "sm_100a"
        case ops.TmemAlloc() | ops.TmemRelinquish() | ops.TmemDealloc() | ops.TmemCopy():
            return "tensor memory", "sm_100a"
        case ops.TmemLoad() | ops.TmemStore() | ops.TmemWaitLoad() | ops.TmemWaitStore():
            return "tensor memory", "sm_100a"
        case ops.ClcTryCancel() | ops.ClcQuery():
            return "cluster launch control", "sm_100a"
        case ops.TmaLoad(bar=BarrierRef(cta=Expr())):
            return "a TMA load that reports to another CTA's barrier", "sm_100a"
    return "", ""


def architecture(kernel: Kernel) -> str:
    """The one that a kernel's ops need; sm_90a where both architectures have them all."""
    for block in (kernel.setup, *(role.body for role in kernel.roles)):
        for op in walk(block):
            home = only_on(op)[1]
            if home:
                return home
    return ARCHITECTURES[0]
