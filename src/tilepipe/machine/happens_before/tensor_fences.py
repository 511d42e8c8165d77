"""Whether the fences of tcgen05 stand between two conflicting accesses to tensor memory."""

from __future__ import annotations

from tilepipe.ir.facts import Group
from tilepipe.machine import rules
from tilepipe.machine.agents import tensor_state
from tilepipe.machine.faults import tensor_memory as tensor_faults
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.tensor_memory import TensorMemory, warp_of


def check_tensor_fences(m: Machine, tm: TensorMemory, old: Access, new: Access, known: int) -> None:
    """Raises RaceError: `new` is ordered after `old`, with which it conflicts, but not by the
    fences it takes as well.
    """
    if old.agent is new.agent:
        ordered = old.site.facts.issues is new.site.facts.issues is Group.TCGEN05
        if old.mask == new.mask and ordered:
            if not _pipelined(old, new) and not m.world.advised(
                rules.TENSOR_ORDER, old.site, new.site
            ):
                tensor_faults.not_pipelined(m, tm, old, new)
            return  # the tensor core executes them in the order of issue
        if old.fenced != old.bit and warp_of(old.mask) == warp_of(new.mask):
            return  # program order, after a wait
    if new.site.frees:
        return
    before = old.fenced & known
    if before and old.bit & tensor_state(m.agents[new.agent.uid]).after.known(new.mask):
        return
    if not m.world.advised(rules.TENSOR_FENCES, old.site, new.site):
        (tensor_faults.not_received if before else tensor_faults.not_published)(m, tm, old, new)


def _pipelined(old: Access, new: Access) -> bool:
    """Whether the PTX ISA promises that an op of the tensor core comes after an earlier one of its
    thread (tcgen05 memory consistency model, pipelined instructions): an MMA after a copy, or
    after an MMA of the same accumulator, shape and kind.
    """
    one, two = old.site, new.site
    if one.shape is None or two.shape is None:
        return two.shape is not None
    return one.shape == two.shape and old.rect == new.rect and old.is_write and new.is_write
