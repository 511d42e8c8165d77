"""A warp: the body of an agent, which runs the segments of a compiled function."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from tilepipe.errors import DeadlockError, SimFault, UnfinishedError
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import OutOfTimeError, World
from tilepipe.machine.memory.poison import Origin
from tilepipe.machine.memory.tensor_access import tmem_loads_used
from tilepipe.machine.rules import LOADED_REGISTERS
from tilepipe.machine.sites import Site
from tilepipe.ptx.compiler.compiled_function import CompiledFunction
from tilepipe.ptx.compiler.early_uses import WAIT_OF_LOAD, early_use
from tilepipe.ptx.compiler.uniformity import reads
from tilepipe.ptx.definition import operation, where
from tilepipe.ptx.execution.lane_groups import Group, LaneGroups
from tilepipe.ptx.execution.poison import PoisonedRegisters
from tilepipe.ptx.execution.rounds import standing
from tilepipe.ptx.execution.time_limit import SEGMENTS, RepeatedState, TimeLimit
from tilepipe.ptx.execution.wgmma_registers import WgmmaRegisters
from tilepipe.ptx.lanes import WARP, Array, spread
from tilepipe.ptx.names import named_kernel
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Instruction, Register, leaves
from tilepipe.ptx.warp_protocol import IN_FLIGHT, Launch


class Addresses(Protocol):
    """The addresses of variables, by number."""

    def __getitem__(self, number: int, /) -> int: ...


class Warp(LaneGroups):
    """A warp in a function: the body of an agent.

    Attributes:
        at: the segment to run next.
        registers: an array of 32 for each register that varies between lanes, else a number.
        special, special_by_lane: values of special registers, equal in all lanes or not.
        addresses: of the variables that the code names. sites: of the machine, for its requests.
        local, written: the bytes of each lane's local memory, and which of them it has written.
        time_limit: of the run. agent: whose body it is.
        poison: which registers hold poison. carried: (lane, byte) of local memory to which poison
            was stored -> where it was read.
        wgmma: the registers that its wgmma use.
    """

    def __init__(self, code: CompiledFunction, live: int, launch: Launch, agent: Agent) -> None:
        super().__init__(code, live, launch, agent)
        self.at = 0
        self.registers: list[Any] = [None] * len(code.function.registers)
        self.special: dict[str, int] = {}
        self.special_by_lane: dict[str, Array] = {}
        self.addresses: Addresses = ()
        self.rank = 0
        self.local: Array = np.zeros((32, 0), np.uint8)
        self.written: Array = np.zeros((32, 0), np.bool_)
        self.fragments: dict[tuple[int, ...], Any] = {}
        self.loads: list[tuple[tuple[int, ...], Array]] = []
        self.sites: Sequence[Any] = ()
        self.time_limit = TimeLimit.of(None)
        self.carried: dict[tuple[int, int], Origin] = {}
        self.poison = PoisonedRegisters(self)
        self.wgmma = WgmmaRegisters(self)
        self._tracks = False
        self._table = code.whole
        self._repeated: RepeatedState | None = None

    def send(self, answer: Any, /) -> Any:
        """Runs to the next request; `answer`: the machine's to the one before.

        Raises:
            StopIteration: all lanes have left.
            UnfinishedError: the time is over. OutOfTimeError: that of the world is.
        """
        registers = self.registers
        time_limit = self.time_limit
        at = self.at
        self._repeated = None
        # A test failed, or a look at memory found nothing new: the group may be waiting for other
        # lanes of this warp. They go on at the next branch.
        gives_way = bool(self.groups) and (self.gives_way or answer is False or self.agent.repeats)
        self.gives_way = False
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
                    self.gives_way = gives_way
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
        time_limit.left = SEGMENTS
        if self._repeated is None:
            self._repeated = RepeatedState()
        elif self._repeated.is_back(lambda: (at, self.agent.time, self.snapshot())):
            raise self._endless(at)
        until = None if time_limit.world is None else time_limit.world.deadline
        if until is not None and time.perf_counter() > until:
            self.at = at
            raise OutOfTimeError
        if time.thread_time() <= time_limit.deadline:
            return
        here = self._first_of(at)
        self.at, self.agent.request = at, None
        loop = self.standing()
        looks = "" if self.agent.looks is None else str(self.agent.looks)
        polls = f"; {self.agent} {looks}" if looks else ""
        raise UnfinishedError(
            f"{named_kernel(self.code.function.name)} has not ended after {time_limit.seconds:g} s:"
            f" it loops without end, or needs longer (timeout=). {self.agent} is"
            f" {loop or f'at {where(here)}: {here}'}{polls}"
        )

    def standing(self) -> str:
        """The loops that it is in, and its place there; "" where it is in none."""
        return standing(self.code, self.at, self.agent, self.launch.location)

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
        """The fault of the program that an error in the machine, caused by an instruction's
        request, shows; or the error.
        """
        return self._of_registers(instruction) or error

    def _explained(self, error: Exception) -> Exception:
        """The fault of the program that an error in generated code shows: the use of a register
        that holds nothing, or that an asynchronous instruction uses.
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
                    for numbers, accumulator in self.fragments.items():
                        if leaf.number in numbers:
                            return self.wgmma.used_in_flight(leaf, accumulator, instruction)
                    return SimFault(
                        f"strict rules, {LOADED_REGISTERS.name}: {where(instruction)}:"
                        f" {instruction}: {leaf} is used while the tcgen05.ld that loads it may"
                        " still write it. Put tcgen05.wait::ld.sync.aligned between the two.",
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

    def _keep_each_lane(self) -> None:
        """Keeps every register for each lane from here on: a register is uniform only as long as
        lanes meet wherever the branches that separate them let them.
        """
        code = self.code.all_varying
        if self.code is code:
            return
        self.wgmma.operands_must_be_unchanged()
        for number in code.content.keys() - self.code.content.keys():
            held = self.registers[number]
            if held is not None and held is not IN_FLIGHT:
                dtype = code.content[number]
                bits = dtype if dtype.kind in "bV" else np.dtype(f"u{dtype.itemsize}")
                self.registers[number] = spread(held, bits).view(dtype)
        for kept in self.wgmma.operands:
            kept.contents[:] = [self.registers[r.number] for r in kept.registers]
        self.code = code
        self._choose_table()

    def _choose_table(self) -> None:
        """The segments for the lanes that run; they track poison where registers hold some."""
        code = self.code.tracking if self._tracks else self.code
        self._table = code.whole if self.mask == self.live == self.started else code.part

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

    def holds_nothing(self, number: int, segment: int, instruction: Instruction) -> int:
        """A register is about to be used, and no instruction has written it: it is poison. Returns
        the segment to run, which keeps track of it.
        """
        register = self.code.function.registers[number]
        dtype = self.code.content.get(number)
        self.registers[number] = 0 if dtype is None else np.zeros(WARP, dtype)
        said = f"{where(instruction)}: {instruction}: {register} is read, and nothing has written"
        site = Site(-1, self.launch.location(instruction), what=str(instruction))
        self.poison.fill(number, register.type, Origin(f"{said} it.", site))
        self._tracks = True
        self._choose_table()
        return segment

    def loads_are_over(self, sites: frozenset[int]) -> None:
        """A register is used that a tcgen05.ld of `sites` loads."""
        tmem_loads_used(self.agent, sites, self.mask)

    def used_early(self, instruction: Instruction, register: Register) -> None:
        """A register is used before the wait for its tcgen05.ld, on some way to here. In practice
        this is advice, which the launch gives when it starts.
        """
        if self.registers[register.number] is IN_FLIGHT and self.world.asks(LOADED_REGISTERS):
            finding = early_use(instruction, register)
            raise self.world.refused(
                LOADED_REGISTERS, finding, self.launch.location(instruction), WAIT_OF_LOAD, SimFault
            )

    def trap(self, instruction: Instruction) -> NoReturn:
        """The program has come to a `trap`."""
        raise SimFault(f"{where(instruction)}: {instruction}")

    def fault(self, said: str) -> NoReturn:
        """The program has come to an instruction that can only go wrong."""
        raise SimFault(said)

    @property
    def world(self) -> World:
        """The state that all clusters of its launch share."""
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
