"""Which lane elect.sync elects: one of the active ones, the same every time for the same set of them, and nobody knows which (PTX ISA,
elect.sync).

So it must not be taken for lane 0, or for any other that a kernel names by its number: by a condition, or as the one whose element
an access is. A launch has one lane that is elected wherever it is active; where it is not, the next active one after it, going round.

A kernel that names lanes in a role which elects is executed with a lane that is none of those named, or one of several
that are named together. Were it a named one, its program order would only order more: what was done by two threads
would be done by one. Where that is not all there is to it, the kernel is decided for one lane of each set that all
conditions treat alike, so that the elected lane is once each of those named, and once none. That is so where the
elected lane does what depends on its number; where a set of lanes elects that is not the whole warp; where named lanes
do what counts for the thread that does it (bulk groups, MMAs of tensor memory); where lanes arrive in CTAs by their
number. Where the elected lane reaches an element of what others reach by their numbers, a second lane is elected: one
of the two is not the one whose element it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir import exprs, ops
from tilepipe.ir.evaluate import evaluate, thread_env
from tilepipe.ir.memory import Tile
from tilepipe.ir.program import WARP, Kernel, Role, bodies, walk
from tilepipe.ir.uses import elements, leaves

Threads = npt.NDArray[Any]  # booleans, [CTA of the cluster, agent of the role, thread of the agent]
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


_OF_THREAD = (ops.TmaStore, ops.TmaStoreCommit, ops.TmaStoreWait, ops.Tcgen05Mma, ops.TmemCopy, ops.Tcgen05Commit)


def _lanes_of_role(kernel: Kernel, role: Role) -> list[int]:
    scan = _Scan(kernel, role)
    scan.block(role.body, np.ones(scan.shape, np.bool_), named=False, elected=False)
    return scan.lanes()


class _Scan:
    """What one role does by the numbers of its lanes, and beside them.

    Attributes:
        alike: sets of lanes that no condition tells apart. of_data: some condition depends on data.
        each: one lane of each set has to be elected. elements: the tiles and tensors of which the elected lane reaches single elements.
        by_number: accesses to elements by the number of the lane, with the threads that make them.
    """

    def __init__(self, kernel: Kernel, role: Role) -> None:
        self.shape = kernel.cluster_size, role.agents, role.agent_threads
        self.env = thread_env(role, kernel.cluster_size)
        self.alike = [ALL_LANES]
        self.of_data = self.each = False
        self.elements: set[int] = set()
        self.by_number: list[tuple[int, Threads]] = []
        self.arrivals: list[tuple[exprs.Expr, Threads]] = []

    def lanes(self) -> list[int]:
        """Those to elect; none where it makes no difference."""
        self.alike.sort(key=lambda lanes: -lanes.bit_count())
        unnamed = self.alike[0].bit_length() - 1
        for cta, threads in self.arrivals:
            if threads[..., unnamed::WARP].any():
                self.each = True
                self._tell_apart(cta)
        if self.each or self.of_data or self.alike[0].bit_count() == 1:
            self.alike.sort(key=lambda lanes: -lanes.bit_count())
            return [*(lanes.bit_length() - 1 for lanes in self.alike), *(OF_DATA if self.of_data else ())]
        if any(base in self.elements and threads[..., unnamed::WARP].any() for base, threads in self.by_number):
            return [unnamed, (self.alike[0] ^ 1 << unnamed).bit_length() - 1]
        return [unnamed] if len(self.alike) > 1 else []

    def block(self, block: ops.Block, threads: Threads, *, named: bool, elected: bool) -> None:
        """Goes through a block, which `threads` execute: lanes that a condition `named`, or that were `elected`."""
        for op in block.ops:
            match op:
                case ops.If(cond=condition, then=then, orelse=orelse) if condition.vary is exprs.Vary.LANE:
                    self.each = self.each or elected
                    held = self._tell_apart(condition)
                    self.block(then, threads if held is None else threads & held, named=True, elected=elected)
                    self.block(orelse, threads if held is None else threads & ~held, named=True, elected=elected)
                case ops.Elect(body=body):
                    self.each = self.each or named
                    self.block(body, threads, named=named, elected=True)
                case _:
                    self._op(op, threads, named, elected)
                    for body in bodies(op):
                        self.block(body, threads, named=named, elected=elected)

    def _op(self, op: ops.Op, threads: Threads, named: bool, elected: bool) -> None:
        varies = any(leaf.vary is exprs.Vary.LANE for leaf in leaves(op))
        self.each = self.each or (elected and varies) or (named and not elected and isinstance(op, _OF_THREAD))
        places = {id(e.base.buffer if isinstance(e.base, Tile) else e.base) for e in elements(op)}
        if elected:
            self.elements |= places
        elif varies:
            self.by_number += [(place, threads) for place in places]
            if isinstance(op, ops.MbarArrive | ops.MbarExpect) and op.bar.cta is not None:
                self.arrivals.append((op.bar.cta, threads))

    def _tell_apart(self, x: exprs.Expr) -> Threads | None:
        """Divides the sets by the values of an expression; gives the threads for which a condition holds, None where it is not known."""
        values = evaluate(x, self.env)
        if values is None:
            self.of_data = True
            return None
        every = np.broadcast_to(values, self.shape)
        for row in every.reshape(-1, WARP):
            for value in np.unique(row):
                mask = sum(1 << int(lane) for lane in np.flatnonzero(row == value))
                self.alike = [part for known in self.alike for part in (known & mask, known & ~mask) if part]
        held: Threads = every.astype(np.bool_)
        return held
