"""The groups of lanes that a branch has separated.

Lanes that take different paths form groups, of which one runs at a time. They reconverge at the
immediate post-dominator of the branch: a group that arrives there waits until all lanes that the
branch separated have arrived or exited. A group that reaches an instruction for several lanes
(`shfl.sync`) waits there for the lanes that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tilepipe.errors import PtxError, SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import World
from tilepipe.machine.rules import EXITED_LANES
from tilepipe.machine.sites import Site
from tilepipe.ptx.compiler.compiled_function import CompiledFunction
from tilepipe.ptx.definition import where
from tilepipe.ptx.execution.stuck_lanes import Wait, stuck
from tilepipe.ptx.lanes import Array, Lanes, lane_mask, lanes_from_mask
from tilepipe.ptx.syntax.nodes import Instruction
from tilepipe.ptx.warp_protocol import Launch


@dataclass(eq=False, slots=True)
class Region:
    """Where separated lanes meet.

    Attributes:
        join: the segment. expected: the lanes that are to meet, but for those that have left.
        arrived: those that are there. outer: the region around it.
    """

    join: int
    expected: int
    arrived: int
    outer: Region | None


@dataclass(eq=False, slots=True)
class Group:
    """Lanes that run together, while another group runs. `names`: the lanes that the instruction
    names where they wait.
    """

    at: int
    mask: int
    region: Region | None
    names: int = 0


class LaneGroups:
    """The groups of lanes of a warp, of which one runs.

    Attributes:
        mask, active: the lanes of the group that runs. region: where these meet others.
        started: the lanes that the warp has. live: those that have not left. chosen: those that a
            guard let make the last request.
        groups: those that can run while another does. parked: those that wait for lanes that an
            instruction names. halfway: groups waiting at a non-aligned barrier, each with the
            segment where it resumes. apart: groups waiting at a bar.warp.sync, each with that
            segment and the lanes that it names. met: the lanes that last met so.
        gives_way: the running group does so at its next branch.
    """

    def __init__(self, code: CompiledFunction, live: int, launch: Launch, agent: Agent) -> None:
        self.code = code
        self.agent = agent
        self.launch = launch
        self.started = self.live = self.mask = self.met = live
        self.active: Lanes = lanes_from_mask(live)
        self.chosen: Lanes = self.active
        self.region: Region | None = None
        self.groups: list[Group] = []
        self.parked: list[Group] = []
        self.halfway: list[tuple[Group, int]] = []
        self.apart: list[tuple[Group, int, int]] = []
        self.gives_way = False
        self._left = False
        self._join = -2

    @property
    def world(self) -> World:
        """What all clusters of the launch share."""
        raise NotImplementedError

    def _choose_table(self) -> None:
        """Another group runs: chooses the segments for its lanes."""
        raise NotImplementedError

    def _keep_each_lane(self) -> None:
        """Lanes no longer meet where branches let them: keeps every register for each lane."""
        raise NotImplementedError

    def _run(self, mask: int, region: Region | None) -> None:
        """Makes a group the one that runs."""
        self.mask = mask
        self.active = lanes_from_mask(mask)
        self.region = region
        self._join = -2 if region is None else region.join
        self._choose_table()

    def _switch(self) -> int:
        """Lets another group run; returns its segment."""
        if not self.groups:
            if not self.live:
                raise StopIteration
            if self._left:  # those that wait look again who is still to come
                self._left = False
                self.groups, self.parked, self.halfway, self.apart = self.waiting, [], [], []
            elif not self.part_ways():
                self._stuck()
            return self._switch()
        group = self.groups.pop()
        self._run(group.mask, group.region)
        return group.at

    def _meet(self) -> int:
        """The group has come to where its region's lanes meet."""
        region = self.region
        assert region is not None
        region.arrived |= self.mask
        if region.arrived == region.expected:
            self._run(region.expected, region.outer)
            return region.join
        return self._switch()

    def split(self, taken: Lanes, target: int, other: int, meets: int) -> int:
        """A branch that the lanes `taken` of those active take; returns the segment to run."""
        mask = lane_mask(taken)
        if not mask:
            return other
        if mask == self.mask:
            return target
        region = self._region(meets)
        self.groups.append(Group(other, self.mask & ~mask, region))
        self._run(mask, region)
        return target

    def split_by(
        self, index: Array, targets: tuple[int, ...], meets: int, instruction: Instruction
    ) -> int:
        """`brx.idx` with different indices."""
        chosen = index[self.active]
        if (chosen >= len(targets)).any():
            self.no_such_target(int(chosen.max()), instruction)
        if (chosen == chosen[0]).all():
            return targets[int(chosen[0])]
        region = self._region(meets)
        for value in np.unique(chosen):
            mask = lane_mask(self.active & (index == value))
            self.groups.append(Group(targets[int(value)], mask, region))
        return self._switch()

    def no_such_target(self, index: int, instruction: Instruction) -> NoReturn:
        """The program has come to a `brx.idx` with an index beyond its list of labels."""
        raise SimFault(
            f"{where(instruction)}: {instruction}: index {index} of {len(instruction.targets)}"
            " labels"
        )

    def _region(self, meets: int) -> Region:
        """The region of a branch: that around it, where that one's lanes meet in the same place."""
        if self.region is not None and self.region.join == meets:
            return self.region
        return Region(meets, self.mask, 0, self.region)

    def named(self, members: Array | int, instruction: Instruction) -> int:
        """The lanes that an instruction names: a number, or one of each lane.

        Raises:
            PtxError: the lanes that execute it together name different ones.
        """
        if not isinstance(members, np.ndarray):
            return members
        here = members[self.active]
        if (here != here[0]).any():
            masks = ", ".join(f"{int(mask) & 0xFFFFFFFF:#x}" for mask in np.unique(here)[:4])
            raise PtxError(
                f"{where(instruction)}: {instruction}: lanes that execute it together name"
                f" different lanes ({masks}); put it, and the accesses that it orders, into a"
                " branch for each mask"
            )
        return int(here[0])

    def _at(self, segment: int) -> Instruction:
        """The instruction that a segment begins with."""
        return self.code.function.instructions[self.code.spans[segment].begin]

    def must_be_named(self, members: Array | int, instruction: Instruction) -> None:
        """A lane may execute an instruction for several lanes only if that names it (PTX ISA,
        `elect.sync`, `shfl.sync`, `vote.sync`: undefined otherwise).

        Raises:
            SimFault: one does that is not named.
        """
        named = self.named(members, instruction)
        if unnamed := self.mask & ~named:
            raise SimFault(
                f"{where(instruction)}: {instruction}: the lanes {unnamed:#x} execute it, which its"
                f" mask {named & 0xFFFFFFFF:#x} does not name: undefined"
            )

    def divide(self, members: Array | int, following: int, at: int) -> int | None:
        """Makes groups of the lanes that execute an instruction together and name different ones,
        as the tiles of a `tiled_partition` do: one for each mask. They meet again at the segment
        `following`. Returns None where all name the same, or the segment to run instead.
        """
        if not isinstance(members, np.ndarray):
            return None
        here = members[self.active]
        if (here == here[0]).all():
            return None
        self._keep_each_lane()
        region = self._region(following)
        for named in np.unique(here):
            mask = lane_mask(self.active & (members == named))
            self.groups.append(Group(at, mask, region))
        return self._switch()

    def gather(self, members: Array | int, at: int) -> int | None:
        """Waits for the lanes that an instruction names; None once they are here, or the segment to
        run instead.
        """
        if self.live != self.started:
            self._must_be_whole(self._at(at))
        wanted = self.named(members, self._at(at)) & self.live
        if wanted & ~self.mask == 0:
            return None
        here = [g for g in self.parked if g.at == at and g.region is self.region]
        mask = self.mask
        for group in here:
            mask |= group.mask
        if wanted & ~mask:
            self.parked.append(Group(at, self.mask, self.region, wanted))
            return self._switch()
        for group in here:
            self.parked.remove(group)
        self._run(mask, self.region)
        return None

    def _must_be_whole(self, instruction: Instruction) -> None:
        """Looks at an instruction for the whole warp (PTX ISA, .aligned) of which some lanes have
        left: barriers take the others in practice.

        Raises:
            SimFault: it is no barrier, or the rules are strict.
        """
        barrier = instruction.opcode in ("bar", "barrier") and "warp" not in instruction.modifiers
        if "aligned" not in instruction.modifiers and not (barrier and instruction.opcode == "bar"):
            return
        gone = self.started & ~self.live
        said = (
            f"{where(instruction)}: {instruction}: the lanes {self.live:#x} of {self.agent} execute"
            f" it, and {gone:#x} have left without: it is for the whole warp (PTX ISA, .aligned)"
        )
        at = self.launch.location(instruction)
        if not barrier:
            raise SimFault(
                f"{said}, and undefined for a part of it.\n  Let all lanes come to it, and guard"
                " what only some of them are to do after it.",
                at,
            )
        site = Site(-1 - instruction.line, at, what=str(instruction))
        if not self.world.advised(EXITED_LANES, site, site):
            cure = "Let all threads of the warp come to it before any of them returns."
            self.world.finding(EXITED_LANES, said, at, cure, SimFault)

    def gather_anywhere(self, following: int, at: int) -> int | None:
        """Waits for all lanes of the warp at an instruction that they may execute in several
        places; the last to come execute it for all (`met`). Then the others go on after it.
        `following`: where those go on that come to it here. Returns as `gather`.
        """
        met = self.mask
        for group, _ in self.halfway:
            met |= group.mask
        if met != self.live:
            self.halfway.append((Group(at, self.mask, self.region, self.live), following))
            return self._switch()
        self.groups += [Group(after, g.mask, g.region) for g, after in self.halfway]
        self.halfway = []
        self.met = met
        return None

    def gather_by_mask(self, members: Array | int, following: int, at: int) -> int | None:
        """Waits for the lanes that a bar.warp.sync names, in whatever places they execute one that
        names the same (PTX ISA, bar.warp.sync). `following` and the result: as of
        `gather_anywhere`.
        """
        named = self.named(members, self._at(at))
        others = [one for one in self.apart if one[2] == named]
        met = together = self.mask
        for group, _, _ in others:
            met |= group.mask
            if group.at == at and group.region is self.region:
                together |= group.mask
        if named & self.live & ~met:
            self.apart.append((Group(at, self.mask, self.region, named), following, named))
            return self._switch()
        for one in others:
            self.apart.remove(one)
            group, after, _ = one
            if group.mask & ~together:
                self.groups.append(Group(after, group.mask, group.region))
        self._run(together, self.region)
        self.met = met
        return None

    def leave(self, mask: int, following: int) -> int:
        """Lanes leave the function; returns the segment that the rest run."""
        self.live &= ~mask
        self._left = True
        region = self.region
        while region is not None:
            region.expected &= ~mask
            if region.expected and region.arrived & region.expected == region.expected:
                self.groups.append(Group(region.join, region.expected, region.outer))
            region = region.outer
        left = self.mask & ~mask
        if left:
            self._run(left, self.region)
            return following
        return self._switch()

    @property
    def waiting(self) -> list[Group]:
        """The groups that wait for other lanes at an instruction."""
        halfway = [group for group, _ in self.halfway]
        return self.parked + halfway + [group for group, _, _ in self.apart]

    def _stuck(self) -> NoReturn:
        """Lanes wait for others of the warp that will not come. Raises DeadlockError."""
        waits = [
            Wait(self._at(group.at), group.mask, group.names & self.live & ~group.mask)
            for group in sorted(self.waiting, key=lambda group: group.mask & -group.mask)
        ]
        raise stuck(self.launch, self.agent, waits)

    def part_ways(self) -> bool:
        """Lets the lanes go on that have come to where a branch's lanes meet, and wait for others
        that poll: threads make progress independently of each other. Returns whether any do.
        """
        regions = [group.region for group in (*self.groups, *self.waiting)]
        regions.append(self.region)
        for region in regions:
            while region is not None:
                arrived = region.arrived & self.live
                if arrived:
                    self._keep_each_lane()
                    region.expected &= ~arrived
                    region.arrived = 0
                    self.groups.append(Group(region.join, arrived, region.outer))
                    self.gives_way = True
                    return True
                region = region.outer
        return False

    def must_agree(self, taken: Lanes, instruction: Instruction) -> None:
        """`bra.uni`: all lanes that execute it together take it, or none does (PTX ISA, bra).

        Raises:
            SimFault: some do, and others do not.
        """
        if (mask := lane_mask(taken)) not in (0, self.mask):
            raise SimFault(
                f"{where(instruction)}: {instruction}: of the lanes {self.mask:#x} that execute it,"
                f" only {mask:#x} take it: undefined. A branch on which lanes may differ is written"
                " without .uni.",
                self.launch.location(instruction),
            )
