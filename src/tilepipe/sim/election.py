"""Decides for which elected lanes a kernel has to be checked.

elect.sync elects one of the active lanes, the same one every time for the same set of them, and
it is not specified which (PTX ISA, elect.sync). So it must not be taken for lane 0, or for any
other that a kernel names by its number: by a condition, or as the one whose element an access is. A
launch has one lane that is elected wherever it is active; where it is not, the next active one
after it, going round.

Lanes that no condition tells apart, and whose numbers reach nothing that the elected lane does, may
be exchanged: the kernel does the same whichever of them is elected. So the lanes are divided into
such sets, and one lane of a set stands for it.

A kernel that names lanes in a role which elects is executed with a lane that is none of those
named, or one of several that are named together. Were it a named one, its program order would only
order more: what was done by two threads would be done by one. Where that is not all there is to it,
the kernel is decided for one lane of each set, so that the elected lane is once each of those
named, and once none. That is so where the elected lane does what depends on its number; where a set
of lanes elects that is not the whole warp; where named lanes do what counts for the thread that
does it (bulk groups, MMAs of tensor memory); where lanes arrive in CTAs by their number; where data
pick lanes. Where the elected lane reaches an element of what others reach by their numbers, a
second lane of a set is elected: one of the two is not the one whose element it is.

No set is sampled. Where data that depend on a lane's number decide a branch, or what the elected
lane does, each lane is a set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir import def_use, expressions as exprs, facts, ops
from tilepipe.ir.memory import Element, TensorParam, Tile, Variable
from tilepipe.ir.program import WARP, Kernel, Role, bodies, walk
from tilepipe.sim.lane_values import LaneValues

Threads = npt.NDArray[Any]  # booleans, [CTA of the cluster, agent of the role, thread of the agent]
ALL_LANES = (1 << WARP) - 1


def elected(active: int, lane: int) -> int:
    """The lane, as a mask, of the mask `active` of one warp that is elected where `lane` is if it
    is active; 0 of none.
    """
    after = active >> lane << lane
    return after & -after or active & -active


def elected_of_warps(active: int, lane: int) -> int:
    """`elected` in each warp of a mask of an agent's threads."""
    out = 0
    for shift in range(0, active.bit_length(), WARP):
        out |= elected(active >> shift & ALL_LANES, lane) << shift
    return out


def lanes_of(kernel: Kernel) -> tuple[int, ...]:
    """The lanes that a kernel is decided for, if each in turn is elected. The first is taken from
    the largest set of lanes that no condition tells apart.
    """
    found: dict[int, None] = {}
    for role in kernel.roles:
        if any(isinstance(op, ops.Elect) for op in walk(role.body)):
            found.update(dict.fromkeys(_lanes_of_role(kernel, role)))
    return tuple(found) or (0,)


def _lanes_of_role(kernel: Kernel, role: Role) -> list[int]:
    scan = _Scan(kernel, role)
    scan.block(role.body, np.ones(scan.shape, np.bool_), named=False, elected=False)
    return scan.lanes()


def _moves_values(op: ops.Op) -> bool:
    """True if an op only gives values to names, or prints them."""
    if op.acts or op.blocks or not op.uses or op.facts.scope is not facts.Scope.LANE:
        return False
    return all(isinstance(x, Variable | exprs.Expr | tuple) for x, _ in def_use.used(op))


def _of_thread(op: ops.Op) -> bool:
    """True if an op counts for the thread that does it, and no other."""
    group = op.facts.issues or op.facts.commits or op.facts.awaits
    return group is not None and group.scope is facts.Scope.LANE


class _Scan:
    """What one role does by the numbers of its lanes, and beside them.

    Attributes:
        values: which values depend on the number of a lane, and which on who is elected.
        alike: sets of lanes that may be exchanged. each: one lane of each set has to be elected.
        places: the tiles and tensors that the elected lane reaches.
        by_number: tiles and tensors whose elements threads reach by their numbers, with those
            threads.
        arrivals: the rank of the CTA in which threads arrive, where it is given, with those
            threads.
    """

    def __init__(self, kernel: Kernel, role: Role) -> None:
        self.shape = kernel.cluster_size, role.agents, role.agent_threads
        self.values = LaneValues(role, kernel.cluster_size)
        self.alike = [ALL_LANES]
        self.each = False
        self.places: set[int] = set()
        self.by_number: list[tuple[int, Threads]] = []
        self.arrivals: list[tuple[exprs.Expr, Threads]] = []

    def lanes(self) -> list[int]:
        """Those to elect; none where it makes no difference."""
        unnamed = self._sets()[0].bit_length() - 1
        for cta, threads in self.arrivals:
            if threads[..., unnamed::WARP].any():
                self.each = True
                self._tell_apart(cta)
        sets = self._sets()
        if not self.each and sets[0].bit_count() > 1:
            if len(sets) == 1 and not self._has_elements(unnamed):
                return []
            del sets[1:]
        lanes = []
        for lanes_of_set in sets:
            lane = lanes_of_set.bit_length() - 1
            other = lanes_of_set ^ 1 << lane
            lanes += (
                [lane, other.bit_length() - 1] if other and self._has_elements(lane) else [lane]
            )
        return lanes

    def _sets(self) -> list[int]:
        """The sets of lanes that may be exchanged, the largest first."""
        return sorted(self.alike, key=lambda lanes: (-lanes.bit_count(), -lanes))

    def _has_elements(self, lane: int) -> bool:
        """True if a lane reaches, by its number, elements of what the elected lane reaches."""
        return any(
            place in self.places and threads[..., lane::WARP].any()
            for place, threads in self.by_number
        )

    def block(self, block: ops.Block, threads: Threads, *, named: bool, elected: bool) -> None:
        """Goes through a block, which `threads` execute: lanes that a condition `named`, or that
        were `elected`, or that data pick.
        """
        for op in block.ops:
            match op:
                case ops.If(cond=condition, then=then, orelse=orelse) if (
                    condition.vary is exprs.Vary.LANE
                ):
                    by_data = self.values.by_data(op)
                    self.each = self.each or elected or by_data
                    self._tell_apart(condition)
                    held = self.values.of_threads(condition)
                    yes = threads if held is None else threads & held.astype(np.bool_)
                    no = threads if held is None else threads & ~held.astype(np.bool_)
                    self.block(then, yes, named=True, elected=elected or by_data)
                    self.block(orelse, no, named=True, elected=elected or by_data)
                case ops.Elect(body=body):
                    self.each = self.each or named
                    self.block(body, threads, named=named, elected=True)
                case _:
                    self._op(op, threads, named, elected)
                    for body in bodies(op):
                        self.block(body, threads, named=named, elected=elected)

    def _op(self, op: ops.Op, threads: Threads, named: bool, elected: bool) -> None:
        if _moves_values(op):  # what reads the names is looked at where it stands
            return
        every = list(def_use.operands(op))
        given = [x for x in every if isinstance(x, exprs.Expr)]
        varies = any(leaf.vary is exprs.Vary.LANE for x in given for leaf in def_use.nodes(x))
        depends = elected or any(map(self.values.is_chosen, given))  # on who is elected
        self.each = self.each or (depends and varies) or (named and not elected and _of_thread(op))
        if depends:
            for x in given:
                self._tell_apart(x)
        exchanges = bool(op.bound) and op.facts.scope is facts.Scope.WARP
        if exchanges and (op.facts.active_lanes or any(map(self.values.is_chosen, given))):
            self.each = True  # who is elected decides what other lanes get, or which are active
            self._name_lanes(op)
        if elected:
            self.places |= {
                id(x.buffer if isinstance(x, Tile) else x)
                for x in every
                if isinstance(x, Tile | TensorParam)
            }
        elif varies:
            self.by_number += [
                (id(e.base.buffer if isinstance(e.base, Tile) else e.base), threads)
                for e in every
                if isinstance(e, Element)
            ]
            if isinstance(op, ops.MbarArrive | ops.MbarExpect) and op.bar.cta is not None:
                self.arrivals.append((op.bar.cta, threads))

    def _name_lanes(self, op: ops.Op) -> None:
        """Divides the sets by the lanes whose value a shuffle gives to others; of any other op, all
        lanes are apart.
        """
        lanes = None
        if isinstance(op, ops.Shuffle) and not op.xor:
            lanes = self.values.of_threads(op.lane)
        for lane in range(WARP) if lanes is None else np.unique(lanes % WARP):
            mask = 1 << int(lane)
            self.alike = [
                part for known in self.alike for part in (known & mask, known & ~mask) if part
            ]

    def _tell_apart(self, x: exprs.Expr) -> None:
        """Divides the sets by the values of an expression, or by those of its parts where data
        decide it: lanes that have the same parts, and data that do not depend on their numbers,
        remain alike.
        """
        if not self.values.is_numbered(x):
            return
        values = self.values.of_threads(x)
        if values is None:
            parts = exprs.children(x)
            if not parts:
                self.alike = [1 << lane for lane in range(WARP)]
            for part in parts:
                self._tell_apart(part)
            return
        for row in values.reshape(-1, WARP):
            for value in np.unique(row):
                mask = sum(1 << int(lane) for lane in np.flatnonzero(row == value))
                self.alike = [
                    part for known in self.alike for part in (known & mask, known & ~mask) if part
                ]
