"""Which lane elect.sync elects: one of the active ones, the same every time for the same set of them, and nobody knows which (PTX ISA,
elect.sync).

So it must not be taken for lane 0, or for any other that a kernel names by its number: by a condition, or as the one whose element
an access is. A launch has one lane that is elected wherever it is active; where it is not, the next active one after it, going round. A
kernel that names lanes in a role which elects is decided for several: one of each set of lanes that all conditions treat alike, so
that the elected lane is once each of those that are named, and once none of them. All others are alike, and one stands for all.
"""

from __future__ import annotations

import numpy as np

from tilepipe.ir import exprs, ops
from tilepipe.ir.evaluate import evaluate, thread_env
from tilepipe.ir.program import WARP, Kernel, Role, bodies, walk
from tilepipe.ir.uses import leaves

ALL_LANES = (1 << WARP) - 1
OF_DATA = (0, 1, WARP - 1)  # lanes to try where conditions on data tell lanes apart: a sample


def elected(active: int, lane: int) -> int:
    """The lane, as a mask, of the mask `active` of one warp that is elected where `lane` is if it is active; 0 of none."""
    after = active >> lane << lane
    return after & -after or active & -active


def elected_of_warps(active: int, lane: int) -> int:
    """`elected` in each warp of a mask of an agent's threads."""
    out = 0
    for shift in range(0, active.bit_length(), WARP):
        out |= elected(active >> shift & ALL_LANES, lane) << shift
    return out


def lanes_of(kernel: Kernel) -> tuple[int, ...]:
    """The lanes that a kernel is decided for, if each in turn is elected; first the one that the kernel names least: of the largest set."""
    found: dict[int, None] = {}
    for role in kernel.roles:
        if any(isinstance(op, ops.Elect) for op in walk(role.body)):
            found.update(dict.fromkeys(_lanes_of_role(kernel, role)))
    return tuple(found) or (0,)


def _lanes_of_role(kernel: Kernel, role: Role) -> list[int]:
    alike = [ALL_LANES]  # sets of lanes that no condition tells apart
    of_data = by_element = False
    for op in walk(role.body):
        varies = any(leaf.vary is exprs.Vary.LANE for leaf in leaves(op))
        condition = op.cond if isinstance(op, ops.If) and op.cond.vary is exprs.Vary.LANE else None
        if condition is None:
            by_element = by_element or (varies and not bodies(op))
            continue
        held = evaluate(condition, thread_env(role, kernel.cluster_size))
        if held is None:
            of_data = True
            continue
        every = np.broadcast_to(held, (kernel.cluster_size, role.agents, role.agent_threads)).reshape(-1, WARP)
        for mask in {int(sum(1 << lane for lane in np.flatnonzero(row))) for row in every}:
            alike = [part for known in alike for part in (known & mask, known & ~mask) if part]
    alike.sort(key=lambda lanes: -lanes.bit_count())
    named = len(alike) > 1 or of_data or by_element
    lanes = [lanes.bit_length() - 1 for lanes in alike]  # the last one of each
    if by_element and len(alike) == 1:
        lanes.append(0)  # whoever is elected, one of two lanes is not the one whose element it is
    return [*lanes, *(OF_DATA if of_data else ())] if named else []
