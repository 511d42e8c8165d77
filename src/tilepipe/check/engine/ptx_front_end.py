"""The start of every execution of a launch of PTX, as an exploration sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from math import prod

from tilepipe.check.key_encoding import digest
from tilepipe.check.proofs.guards import Guards
from tilepipe.check.proofs.polling import Kind
from tilepipe.check.unreached import Coverage
from tilepipe.ir.facts import Sync
from tilepipe.machine.agents import Agent
from tilepipe.machine.cta import Cta
from tilepipe.machine.journal import Journal
from tilepipe.machine.machine import World
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import ByteSpace, Slot
from tilepipe.machine.rules import ELECTED_LANE, Rules, asks
from tilepipe.machine.sites import Site
from tilepipe.ptx.compiler.election import UNNAMED, lanes_to_elect
from tilepipe.ptx.compiler.peeks import peeks
from tilepipe.ptx.compiler.uniformity import reads, results
from tilepipe.ptx.definition import Perform
from tilepipe.ptx.execution.separated_lanes import WatchedWarp
from tilepipe.ptx.execution.time_limit import TimeLimit
from tilepipe.ptx.execution.warp import Warp
from tilepipe.ptx.launch import Launch
from tilepipe.ptx.states import Places
from tilepipe.ptx.syntax.nodes import Instruction


class PtxFrontEnd:
    """The start of every execution of a launch of PTX: see `front_end.FrontEnd`.

    Attributes:
        launch: the launch, on copies of its memory.
    """

    other_lanes: Sequence[int] = ()

    def __init__(self, launch: Launch, rules: Rules) -> None:
        self.launch = launch.on_copies()
        self.rules = rules
        program = self.launch.program
        self.sites: Sequence[Site] = self.launch.sites
        self.grid = prod(self.launch.grid)
        self.clusters = self.grid // program.cluster_size
        self.resident = self.launch.resident
        self.residents: Sequence[int] = (self.resident,)
        self.shares_work = program.shares_work
        self.guards = Guards()
        self.waits_for_flags = False
        self.flag_looks: frozenset[int] = frozenset()
        self.requests: frozenset[int] = frozenset()
        code = launch.kernel.code
        self.lanes = lanes_to_elect(code.flow, code.operations, launch.block)
        if len(self.lanes) > 1 and not asks(rules, ELECTED_LANE):
            self.lanes, self.other_lanes = (0,), (UNNAMED,)
        self.elected = self.lanes[0]
        self._places = Places(code)
        self._tests = {s.id for s in self.sites if Sync.TEST in s.sync}
        self.kinds: Sequence[Kind] = [_kind(s.instruction, s.perform) for s in code.sites.values()]
        read = {r for op in code.operations for r in reads(op)}
        # What an addition acquires cannot be relied on where nothing reads its result, since no
        # thread knows which value it has found: it acquires nothing where executions are explored.
        self.adds = frozenset(
            s.number
            for s in code.sites.values()
            if self.sites[s.number].adds and not any(r in read for r in results(s.perform))
        )
        self._looks = any(
            kind is Kind.STRONG and number not in self.adds
            for number, kind in enumerate(self.kinds)
        )
        looped = code.flow.in_loops()
        self.may_poll = any(
            self.kinds[site.number] is Kind.STRONG
            and site.number not in self.adds
            and code.flow.of_instruction[at] in looped
            for at, site in code.sites.items()
        )
        if self.may_poll and not launch.cooperative:
            self.residents = range(min(self.resident, self.clusters), 0, -1)

    @property
    def text(self) -> str:
        """The PTX of the module."""
        return self.launch.kernel.module.text

    @property
    def lines(self) -> dict[str, str]:
        """The lines that instructions with requests come from, by location: of the source where
        its file can be read, else of the PTX.
        """
        sites = self.launch.kernel.code.sites.values()
        found = (self.launch.source_of(site.instruction) for site in sites)
        return {loc.short: text for loc, text in found}

    @property
    def has_tests(self) -> bool:
        """True if it has a try_wait that does not count as a wait."""
        return not self._tests <= self.guards.tests.keys()

    def possible_guards(self) -> Guards:
        """The tests that only decide whether a wait is made."""
        code = self.launch.kernel.code
        found = peeks(code)
        tests = {code.sites[at].number: group for at, group in found.tests.items()}
        waits = {code.sites[at].number: group for at, group in found.waits.items()}
        return Guards(tests, waits, read_at_once=True, unread=found.unread)

    def coverage(self, unmade: Collection[int]) -> Coverage:
        """Nothing: which lines of PTX are meant to be reached is not known."""
        return Coverage()

    def explained(self, error: Exception, agent: Agent, site: Site) -> Exception:
        """The use of a register that nothing has written, or the error itself."""
        return self.launch.explained_at(error, agent.body, site)

    def standing(self, agent: Agent) -> str:
        """The loop in which a warp is, and its place there; "" where it is in none."""
        body = agent.body
        return body.standing() if isinstance(body, Warp) else ""

    def interchangeable(self) -> Sequence[str]:
        """No warps are known to do the same: which warp it is decides what a kernel does."""
        return ()

    def world(self, journal: Journal | None) -> World:
        """The start of an execution: all memory as it was given."""
        self.launch.memory.restore()
        world = self.launch.start(self.rules, TimeLimit.of(None), WatchedWarp)
        world.journal = journal
        world.elected = self.elected
        world.silent = True
        world.unread |= self.adds
        world.looks = self._looks
        return world

    def registers(self, agent: Agent) -> Hashable:
        """A key that is equal for warps that go on alike."""
        return self._places.of(agent)

    def slot(self, slot: Slot) -> bytes:
        """The contents of shared memory, or of tensor memory."""
        if isinstance(slot, ByteSpace):
            return slot.memory.tobytes()
        return slot.data.tobytes() if isinstance(slot, TensorMemory) else b""

    def tensor(self, tensor: GlobalTensor) -> bytes:
        """The contents of an allocation of global memory that has been written."""
        assert tensor.order is not None
        return tensor.array.tobytes() if tensor.order.history else b""

    def ends_wait(self, agent: Agent) -> Callable[[object], bool] | None:
        """None: which loops of PTX only wait for a value is not known."""
        return None

    def polling_state(self, world: World, ctas: Iterable[Cta], ag: Agent) -> bytes:
        """All that can decide what an agent does next, as long as no other agent does anything."""
        memory = [self.slot(s) for cta in ctas for s in cta.slots]
        memory += [self.tensor(t) for t in world.tensors]
        return digest((self.registers(ag), tuple(memory)))


def _kind(instruction: Instruction, perform: Perform) -> Kind:
    if instruction.name.startswith(("mbarrier.try_wait", "mbarrier.test_wait")):
        return Kind.TEST  # a wait is one, too, while other lanes of its warp stand elsewhere
    if perform.strong:
        return Kind.STRONG
    return Kind.NOTICED if perform.facts.noticed else Kind.OTHER
