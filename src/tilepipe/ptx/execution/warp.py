"""A warp: its registers, and the groups of lanes that a branch has separated.

Lanes that take different ways are groups; one of them runs at a time. They meet again at the
immediate post-dominator of the branch: a group that comes there waits until all lanes that the
branch separated have come, or have left. A group that comes to an instruction for several lanes
(`shfl.sync`) waits there for those that it names.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from tilepipe.errors import DeadlockError, PtxError, RaceError, SimFault, UnfinishedError
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import OutOfTimeError, World
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.poison import Origin
from tilepipe.machine.rules import COPIES_BEFORE_WGMMA
from tilepipe.machine.sites import Site
from tilepipe.ptx.compiler.segments import CompiledFunction
from tilepipe.ptx.compiler.uniformity import reads, results
from tilepipe.ptx.definition import operation, where
from tilepipe.ptx.execution.poison import PoisonedRegisters
from tilepipe.ptx.lanes import Array, Lanes, lane_mask, lanes_from_mask, spread
from tilepipe.ptx.names import named_kernel
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Instruction, Register, leaves
from tilepipe.ptx.warp_protocol import IN_FLIGHT, Launch

_SEGMENTS = 256  # that run between two looks at the time: some milliseconds
_QUIET_LOOKS = 8  # at the time, between two requests, after which states are compared


@dataclass(eq=False, slots=True)
class TimeLimit:
    """The time limit of a run, which its warps share.

    Attributes:
        seconds: the limit, of processor time. deadline: of `time.thread_time`. left: segments that
            may run before the time is looked at. world: has the deadline of a check.
    """

    seconds: float
    deadline: float
    left: int = _SEGMENTS
    world: World | None = None

    @classmethod
    def of(cls, seconds: float | None) -> TimeLimit:
        """A limit that starts now; none if `seconds` is None."""
        if seconds is None:
            return cls(math.inf, math.inf)
        return cls(seconds, time.thread_time() + seconds)


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
    """Lanes that run together, while another group runs."""

    at: int
    mask: int
    region: Region | None


class KeptOperand(NamedTuple):
    """Registers that an asynchronous instruction reads while the fragment has readers, and their
    contents when it was issued.
    """

    registers: Sequence[Register]
    contents: list[Any]
    fragment: Frag
    site: Site


class _Quiet:
    """Whether a warp that makes no request is back in a state that it was in: then it goes round
    for ever. It looks at the state now and then (Brent's algorithm).
    """

    __slots__ = ("_looks", "_state", "_until")

    def __init__(self) -> None:
        self._looks = 0
        self._until = _QUIET_LOOKS
        self._state: Any = None

    def is_back(self, state: Callable[[], Any]) -> bool:
        """Whether the state is one that was kept; it is asked for after many looks only."""
        self._looks += 1
        if self._looks < _QUIET_LOOKS:
            return False
        now = state()
        if now == self._state:
            return True
        if self._looks >= self._until:
            self._state = now
            self._until *= 2
        return False


class Addresses(Protocol):
    """The addresses of variables, by number."""

    def __getitem__(self, number: int, /) -> int: ...


class Warp:
    """A warp in a function: the body of an agent.

    Attributes:
        at: the segment to run next. mask, active: the lanes of the group that runs.
        live: the lanes that have not left. chosen: those that a guard let make the last request.
        groups: those that can run while another does. parked: those that wait for lanes that an
            instruction names. halfway: groups waiting at a non-aligned barrier, each with the
            segment where it resumes. apart: groups waiting at a bar.warp.sync, each with that
            segment and the lanes that it names. met: the lanes that last met so.
        registers: an array of 32 for each register that varies between lanes, else a number.
        special, special_by_lane: values of special registers, equal in all lanes or not.
        addresses: of the variables that the code names. sites: of the machine, for its requests.
        local, written: the bytes of each lane's local memory, and which of them it has written.
        time_limit: of the run. agent: whose body it is.
        operands: registers that asynchronous instructions read, and what they then held.
        poison: which registers hold poison. carried: (lane, byte) of local memory to which poison
            was stored -> where it was read.
        unfenced: registers of wgmma accessed since the last wgmma.fence, and by which instruction.
        in_vain: the running group gives way at its next branch.
    """

    def __init__(self, code: CompiledFunction, live: int, launch: Launch, agent: Agent) -> None:
        self.code = code
        self.agent = agent
        self.launch = launch
        self.at = 0
        self.live = self.mask = live
        self.active: Lanes = lanes_from_mask(live)
        self.chosen: Lanes = self.active
        self.region: Region | None = None
        self.groups: list[Group] = []
        self.parked: list[Group] = []
        self.halfway: list[tuple[Group, int]] = []
        self.apart: list[tuple[Group, int, int]] = []
        self._left = False
        self.met = live
        self.registers: list[Any] = [None] * len(code.function.registers)
        self.special: dict[str, int] = {}
        self.special_by_lane: dict[str, Array] = {}
        self.addresses: Addresses = ()
        self.rank = 0
        self.local: Array = np.zeros((32, 0), np.uint8)
        self.written: Array = np.zeros((32, 0), np.bool_)
        self.fragments: dict[tuple[int, ...], Any] = {}
        self.loads: list[tuple[tuple[int, ...], Array]] = []
        self.operands: list[KeptOperand] = []
        self.unfenced: dict[int, int] = {}
        self.sites: Sequence[Any] = ()
        self.time_limit = TimeLimit.of(None)
        self.carried: dict[tuple[int, int], Origin] = {}
        self.poison = PoisonedRegisters(self)
        self._tracks = False
        self._table = code.whole
        self._join = -2
        self.in_vain = False
        self._quiet: _Quiet | None = None

    def send(self, answer: Any, /) -> Any:
        """Runs to the next request; `answer`: the machine's to the one before.

        Raises:
            StopIteration: all lanes have left.
            UnfinishedError: the time is over. OutOfTimeError: that of the world is.
        """
        registers = self.registers
        time_limit = self.time_limit
        at = self.at
        self._quiet = None
        # A look at a barrier or at memory was in vain: other lanes of this warp may be those that
        # it waits for. They go on at the next branch.
        gives_way = bool(self.groups) and (self.in_vain or answer is False or self.agent.repeats)
        self.in_vain = False
        if self._tracks or self.agent.poison is not None:
            self._track()
        while True:
            if at == self._join:
                at = self._meet()
                continue
            time_limit.left -= 1
            if time_limit.left < 0:
                self._check_time_limit(at)
            try:
                found = self._table[at](self, registers, answer)
            except (TypeError, AttributeError, ValueError, OverflowError, IndexError) as error:
                raise self._explained(error) from error
            if found.__class__ is not int:
                if found is not None:
                    self.in_vain = gives_way
                    return found
                found = self.at
            answer = None
            at = found
            if gives_way:
                gives_way = False
                self.groups.insert(0, Group(at, self.mask, self.region))
                at = self._switch()

    def _check_time_limit(self, at: int) -> None:
        time_limit = self.time_limit
        time_limit.left = _SEGMENTS
        if self._quiet is None:
            self._quiet = _Quiet()
        elif self._quiet.is_back(lambda: (at, self.agent.time, self.snapshot())):
            raise self._endless(at)
        until = None if time_limit.world is None else time_limit.world.deadline
        if until is not None and time.perf_counter() > until:
            raise OutOfTimeError
        if time.thread_time() <= time_limit.deadline:
            return
        here = self._first_of(at)
        looks = "" if self.agent.looks is None else str(self.agent.looks)
        polls = f"; {self.agent} {looks}" if looks else ""
        raise UnfinishedError(
            f"{named_kernel(self.code.function.name)} has not ended after {time_limit.seconds:g} s:"
            " it loops without end, or needs longer (timeout=). A warp is at"
            f" {where(here)}: {here}{polls}"
        )

    def _first_of(self, at: int) -> Instruction:
        """The first instruction of a segment."""
        span, instructions = self.code.spans[at], self.code.function.instructions
        return instructions[min(span.begin, len(instructions) - 1)]

    def _endless(self, at: int) -> DeadlockError:
        here = self._first_of(at)
        return DeadlockError(
            f"{named_kernel(self.code.function.name)}: {self.agent} is in a loop that nothing can"
            " end: the loop changes nothing, and looks at nothing that others change. It is at"
            f" {where(here)}: {here}\n"
            "  If it is to wait for another thread, it must load what that one writes, each time"
            " again: through a volatile pointer, or by ld.acquire.",
            self.launch.location(here),
        )

    def explained_request(self, error: Exception, instruction: Instruction) -> Exception:
        """What an error that an instruction's request has caused in the machine says of the
        program.
        """
        return self._of_registers(instruction) or error

    def _explained(self, error: Exception) -> Exception:
        """What an error in generated code says of the program: the use of a register that holds
        nothing, or that an asynchronous instruction has.
        """
        for frame in reversed(list(traceback.walk_tb(error.__traceback__))):
            code, line = frame[0].f_code, frame[1]
            instruction = self.code.instruction_at(code.co_filename, line)
            if instruction is None:
                continue
            if (fault := self._of_registers(instruction)) is not None:
                return fault
            error.add_note(f"{where(instruction)}: {instruction}")
            return error
        return error

    def _of_registers(self, instruction: Instruction) -> SimFault | None:
        """The fault of an instruction that reads a register that holds nothing, or one that an
        asynchronous instruction has.
        """
        for operand in instruction.operands:
            for leaf in leaves(operand):
                if not isinstance(leaf, Register):
                    continue
                held = self.registers[leaf.number]
                if held is IN_FLIGHT:
                    return SimFault(
                        f"{where(instruction)}: {instruction}: {leaf} is used while wgmma or"
                        " tcgen05.ld may read or write it: no wgmma.wait_group, or"
                        " tcgen05.wait::ld, stands before this",
                        self.launch.location(instruction),
                    )
                if held is None and leaf in reads(operation(instruction)):
                    return SimFault(
                        f"{where(instruction)}: {instruction}: {leaf} is read, and nothing has"
                        " written it",
                        self.launch.location(instruction),
                    )
        return None

    # -- loops that wait ---------------------------------------------------------------

    def snapshot(self) -> Any:
        """All that decides what the warp does next, but for memory that others reach, in a form
        that `==` compares.
        """
        held = tuple(
            value.tobytes() if isinstance(value, np.ndarray) else value for value in self.registers
        )
        groups = tuple((g.at, g.mask) for g in (*self.groups, *self.waiting))
        regions = []
        region = self.region
        while region is not None:
            regions.append((region.join, region.expected, region.arrived))
            region = region.outer
        poison = self.poison.key()
        local = self.local.tobytes()
        return self.at, self.mask, self.live, held, groups, tuple(regions), local, poison

    def part_ways(self) -> bool:
        """Lets the lanes go on that have come to where a branch's lanes meet, and wait for others
        that look at something in vain: threads make progress independently of each other. Returns
        whether any do.
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
                    self.in_vain = True
                    return True
                region = region.outer
        return False

    def _keep_each_lane(self) -> None:
        """Keeps every register for each lane from here on: a register is uniform only as long as
        lanes meet wherever the branches that separate them let them.
        """
        code = self.code.all_varying
        if self.code is code:
            return
        self.operands_must_be_kept()
        for number in code.content.keys() - self.code.content.keys():
            held = self.registers[number]
            if held is not None and held is not IN_FLIGHT:
                dtype = code.content[number]
                bits = dtype if dtype.kind in "bV" else np.dtype(f"u{dtype.itemsize}")
                self.registers[number] = spread(held, bits).view(dtype)
        for kept in self.operands:
            kept.contents[:] = [self.registers[r.number] for r in kept.registers]
        self.code = code
        self._choose_table()

    def _choose_table(self) -> None:
        """The segments for the lanes that run; they track poison where registers hold some."""
        code = self.code.tracking if self._tracks else self.code
        self._table = code.whole if self.mask == self.live else code.part

    def _track(self) -> None:
        """Begins to keep which registers hold poison, or ends it where none that can still be read
        do.
        """
        loaded, self.agent.poison = self.agent.poison, None
        if loaded is not None and not self.code.spans[self.at].answered:
            # a request without a result has read it: it decides what that does
            assert self.agent.request is not None
            self.poison.used(loaded.origin, self.agent.request[1][0])
            loaded = None
        self.poison.loaded = loaded
        if loaded is None and self.region is None and not self.groups and not self.waiting:
            begin = self.code.spans[self.at].begin
            self.poison.keep(self.code.liveness.before(begin))
        tracks = loaded is not None or bool(self.poison.marks)
        if tracks is not self._tracks:
            self._tracks = tracks
            self._choose_table()

    # -- operands of asynchronous instructions -----------------------------------------

    def keep_operand(self, registers: Sequence[Register], fragment: Frag, site: Site) -> None:
        """An asynchronous instruction reads these registers until nothing reads the fragment."""
        contents = [self.registers[r.number] for r in registers]
        self.operands.append(KeptOperand(registers, contents, fragment, site))

    def operands_must_be_kept(self) -> None:
        """Raises RaceError where such a register has been written (PTX ISA, wgmma.wait_group: it
        must not be, until the group has been waited for).
        """
        self.operands = [kept for kept in self.operands if kept.fragment.readers]
        for kept in self.operands:
            for register, content in zip(kept.registers, kept.contents, strict=True):
                if self.registers[register.number] is not content:
                    raise self._overwritten(register, kept.site)

    def _overwritten(self, register: Register, site: Site) -> RaceError:
        """The fault of the first instruction after that of a site, in the order of the text and
        then from its start, that writes a register.
        """
        number = next(n for n, s in self.code.sites.items() if s.number == site.id)
        writers = [i for i, op in enumerate(self.code.operations) if register in results(op)]
        writer = min(writers, key=lambda i: (i <= number, i))
        instruction = self.code.function.instructions[writer]
        at = self.launch.location(instruction)
        return RaceError(
            f"{register}, a register of A, is written while a wgmma may still read it: nothing has"
            " waited for the wgmma's group.\n"
            f"  first:  {site.what}\n          at {site.loc}\n"
            f"  second: {instruction} (PTX line {instruction.line})\n          at {at}\n"
            "  Put wgmma.wait_group between the two, or let the second write other registers.",
            at,
        )

    # -- registers before a wgmma ------------------------------------------------------

    def registers_must_be_fenced(self, site: Site) -> None:
        """Raises RaceError where no wgmma.fence stands between an access to a register and the
        wgmma of a site, which names it (PTX ISA, wgmma.fence; accumulators of wgmma of one shape
        need none).
        """
        found = self.code.unfenced
        if not found.accesses:
            return
        number = next(n for n, s in self.code.sites.items() if s.number == site.id)
        for register, what in found.names[number].items():
            by = self.unfenced.get(register)
            if by is None or found.names.get(by, {}).get(register) == what:
                continue
            copies = self.code.function.instructions[by].opcode == "mov"
            if self.world.strict or not copies:  # the rule COPIES_BEFORE_WGMMA
                raise self._unfenced(register, what, by, site, copies=copies)
        self.unfenced.update(found.accesses.get(number, {}))

    def _unfenced(
        self, register: int, what: str, by: int, site: Site, *, copies: bool
    ) -> RaceError:
        instruction = self.code.function.instructions[by]
        of = "A" if what == "A" else "the accumulator"
        rule = f"strict rules, {COPIES_BEFORE_WGMMA.name}: " if copies else ""
        return RaceError(
            f"{rule}{self._name_of(register)}, a register of {of}, is used by an instruction,"
            " and no wgmma.fence stands between that and the wgmma, which may read an old value, or"
            " overwrite what is still to be read (PTX ISA, wgmma.fence).\n"
            f"  first:  {instruction} (PTX line {instruction.line})\n"
            f"          at {self.launch.location(instruction)}\n"
            f"  second: {site.what} of {self.agent}\n          at {site.loc}\n"
            "  Put wgmma.fence between the two, in all warps of the warpgroup.",
            site.loc,
        )

    def _name_of(self, register: int) -> Register:
        return self.code.function.registers[register]

    # -- groups ------------------------------------------------------------------------

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

    def named(self, members: Array | int) -> int:
        """The lanes that an instruction names: a number, or one of each lane."""
        if not isinstance(members, np.ndarray):
            return members
        here = members[self.active]
        if (here != here[0]).any():
            raise PtxError("lanes that execute an instruction together name different lanes")
        return int(here[0])

    def must_be_named(self, members: Array | int, instruction: Instruction) -> None:
        """A lane may execute an instruction for several lanes only if that names it (PTX ISA,
        `elect.sync`, `shfl.sync`, `vote.sync`: undefined otherwise).

        Raises:
            SimFault: one does that is not named.
        """
        named = self.named(members)
        if unnamed := self.mask & ~named:
            raise SimFault(
                f"{where(instruction)}: {instruction}: the lanes {unnamed:#x} execute it, which its"
                f" mask {named & 0xFFFFFFFF:#x} does not name: undefined"
            )

    def gather(self, members: Array | int, at: int) -> int | None:
        """Waits for the lanes that an instruction names; None once they are here, or the segment to
        run instead.
        """
        wanted = self.named(members) & self.live
        if wanted & ~self.mask == 0:
            return None
        here = [g for g in self.parked if g.at == at and g.region is self.region]
        mask = self.mask
        for group in here:
            mask |= group.mask
        if wanted & ~mask:
            self.parked.append(Group(at, self.mask, self.region))
            return self._switch()
        for group in here:
            self.parked.remove(group)
        self._run(mask, self.region)
        return None

    def gather_anywhere(self, following: int, at: int) -> int | None:
        """Waits for all lanes of the warp at an instruction that they may execute in several
        places; the last to come execute it for all (`met`). Then the others go on after it.
        `following`: where those go on that come to it here. Returns as `gather`.
        """
        met = self.mask
        for group, _ in self.halfway:
            met |= group.mask
        if met != self.live:
            self.halfway.append((Group(at, self.mask, self.region), following))
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
        named = self.named(members)
        others = [one for one in self.apart if one[2] == named]
        met = together = self.mask
        for group, _, _ in others:
            met |= group.mask
            if group.at == at and group.region is self.region:
                together |= group.mask
        if named & self.live & ~met:
            self.apart.append((Group(at, self.mask, self.region), following, named))
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
        """Lanes wait for others of the warp that will not come.

        Raises:
            DeadlockError: where the whole warp must execute their instruction (PTX ISA, .aligned).
            SimFault: of any other instruction for several lanes.
        """
        for group in self.parked:
            instruction = self.code.function.instructions[self.code.spans[group.at].begin]
            of_the_cta = instruction.opcode == "bar" and "warp" not in instruction.modifiers
            if of_the_cta or "aligned" in instruction.modifiers:
                at = self.launch.location(instruction)
                raise DeadlockError(
                    f"{instruction} (PTX line {instruction.line}): the lanes {group.mask:#x} of a"
                    f" warp execute it, and {self.live & ~group.mask:#x} do not come to it: they"
                    " took another branch. All lanes of a warp must execute it together"
                    " (PTX ISA, .aligned); on hardware this hangs, or orders nothing.\n"
                    "  Put it where all threads come to it: outside the branch, or in one whose"
                    " condition is equal for all of them.",
                    at,
                )
        waiting = "; ".join(self._place(group) for group in self.waiting)
        raise SimFault(
            f"{named_kernel(self.code.function.name)}: lanes of {self.agent} wait for other lanes"
            f" that an instruction names, and these wait elsewhere, or have come to none: {waiting}"
        )

    def _place(self, group: Group) -> str:
        """`lanes 0xffff at PTX line 12: shfl.sync...`."""
        instructions = self.code.function.instructions
        here = instructions[self.code.spans[group.at].begin]
        return f"lanes {group.mask:#x} at {where(here)}: {here}"

    def trap(self, instruction: Instruction) -> NoReturn:
        """The program has come to a `trap`."""
        raise SimFault(f"{where(instruction)}: {instruction}")

    def fault(self, said: str) -> NoReturn:
        """The program has come to an instruction that can only go wrong."""
        raise SimFault(said)

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

    @property
    def world(self) -> World:
        """What all clusters of its launch share."""
        assert self.time_limit.world is not None
        return self.time_limit.world

    @property
    def first(self) -> int:
        """The number of the first active lane."""
        return (self.mask & -self.mask).bit_length() - 1

    @property
    def cta_threads(self) -> int:
        return self.special["%ntid.x"] * self.special["%ntid.y"] * self.special["%ntid.z"]

    def parameter(self, address: int, nbytes: int) -> int:
        """Bytes of the kernel's parameters, as an unsigned number."""
        return int.from_bytes(self.launch.parameters[address : address + nbytes], "little")

    def parameter_value(self, address: int, kind: str) -> Any:
        """A number among the kernel's parameters, as NumPy has its type."""
        return np.frombuffer(self.launch.parameters, TYPES[kind].dtype, 1, address)[0]

    def first_cta(self, cluster: int, axis: int) -> int:
        """The position of the first CTA of a cluster, in one dimension of the grid."""
        x, y = self.special["%nclusterid.x"], self.special["%nclusterid.y"]
        place = (cluster % x, cluster // x % y, cluster // (x * y))[axis]
        return place * self.special[f"%cluster_nctaid.{'xyz'[axis]}"]

    def one(self, values: Array | int) -> int:
        """The value of the first active lane, as bits."""
        if not isinstance(values, np.ndarray):
            return int(values)
        value = values[self.first]
        if value.dtype.kind == "V":
            return int.from_bytes(value.tobytes(), "little")
        return int(value.view(f"u{value.itemsize}")) if value.dtype != np.bool_ else bool(value)
