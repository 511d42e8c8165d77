"""Which architecture has which op, and what is compiled for."""

from __future__ import annotations

from tilepipe.errors import BindError
from tilepipe.ir import ops
from tilepipe.ir.expressions import Expr
from tilepipe.ir.memory import BarrierRef
from tilepipe.ir.program import Kernel, all_ops

HOPPER, BLACKWELL = "sm_90a", "sm_100a"

# Target of a compilation -> the generation whose ops it has. What has neither wgmma nor tcgen05 is
# for all of them. A cubin of sm_100a runs on compute capability 10.0 alone, one of sm_103a on 10.3
# alone; one of sm_100f on both, of sm_103f on 10.3 and what follows in its family. All four have
# every op that is printed here (PTX ISA, "Target ISA Notes" of tcgen05.mma: a family target lacks
# kind::i8 and the spelling .scale_vec, sm_103a kind::i8). No Blackwell target has been run.
TARGETS = {HOPPER: HOPPER, **dict.fromkeys((BLACKWELL, "sm_100f", "sm_103a", "sm_103f"), BLACKWELL)}
ARCHITECTURES = tuple(TARGETS)


def generation(arch: str) -> str:
    """The architecture for which ops, chips and shipped kernels are stated: sm_100a of sm_103f.

    Raises:
        BindError: `arch` is none of `ARCHITECTURES`.
    """
    found = TARGETS.get(arch) if isinstance(arch, str) else None
    if found is None:
        raise BindError(f"unknown architecture {arch!r}; known: {', '.join(ARCHITECTURES)}")
    return found


def only_on(op: ops.Op) -> tuple[str, str]:
    """(what it is, the one generation that has it) of an op; empty where both have it."""
    match op:
        case ops.TmaLoad(bar=BarrierRef(cta=Expr())):
            return "a TMA load that reports to another CTA's barrier", BLACKWELL
    return ("", "") if op.facts.feature is None else op.facts.feature.value


def architecture(kernel: Kernel) -> str:
    """The generation that a kernel's ops need; sm_90a where both have them all."""
    return next((home for op in all_ops(kernel) if (home := only_on(op)[1])), HOPPER)
