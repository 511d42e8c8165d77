"""Loops that poll.

An agent that tests a barrier, or looks at memory by a strong access, in a loop waits for another
agent as soon as a round of the loop changes nothing: neither the place where it stands, nor a live
value that can come to decide something (`engine.front_end`), nor the memory that it writes. Then it
is parked until the barrier or the memory changes. So is an agent that goes round a `while` loop for
long without a visible op.

A loop that does change such a value in each round, say a count of its attempts, is followed for
`MAX_FAILED_LOOKS` polls; after that, the launch is undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Set
from dataclasses import dataclass, field
from enum import IntEnum

from tilepipe.check.key_encoding import digest
from tilepipe.ir import def_use, ops
from tilepipe.ir.memory import NamedBarrier, SmemBuffer, TensorParam
from tilepipe.ir.program import Kernel, Launch, Role, all_ops, blocks, walk
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.cta import Cta
from tilepipe.machine.machine import World
from tilepipe.sim.front_end import TENSOR_MEMORY, KernelFrontEnd, Thing, thing_of

# polls without success, one after another in different states, that are followed
MAX_FAILED_LOOKS = 32
# ops in a row that are not visible, after which a loop is watched for rounds that change nothing
SILENT_OPS = 512
Cell = tuple[int, ...]  # a tensor's number, and an element of it


class Kind(IntEnum):
    """The effect of an op on a loop that polls."""

    OTHER = 0
    TEST = 1  # try_wait
    NOTICED = 2  # another visible op: a round with one has an effect
    SILENT = 3  # in a `while` loop, and not visible
    # an access to memory that others may change; it only reads if it finds what it found
    STRONG = 4


@dataclass(eq=False, slots=True)
class Poll:
    """The polls of an agent since its last op with a visible effect.

    Attributes:
        seen: digests of the states in which it has polled.
        bars, cells: the barriers and elements that it has polled.
        site, mark, left, span: the state with which silent rounds are compared: its op, its digest,
            for how many more rounds it is kept, and for how many it is kept in all (Brent's
            algorithm: the span doubles, so that a cycle of any length is found).
        strange: ops at other sites since that state was last compared.
    """

    seen: set[bytes] = field(default_factory=set)
    bars: list[Mbarrier] = field(default_factory=list)
    cells: set[Cell] = field(default_factory=set)
    site: int = -1
    mark: bytes = b""
    left: int = 0
    span: int = 1
    strange: int = 0

    def again(self, state: bytes) -> bool:
        """Whether the agent has polled in this state before; records the state."""
        if state in self.seen:
            return True
        self.seen.add(state)
        return False

    def repeats(self, site: int, state: Callable[[], bytes]) -> bool:
        """Whether a silent round has come back to the kept state."""
        if self.site != site and self.site >= 0 and self.strange < SILENT_OPS:
            self.strange += 1
            return False
        now = state()
        if self.site == site and self.mark == now:
            return True
        self.left -= 1
        if self.site != site or self.left < 0:
            self.site, self.mark = site, now
            self.span = min(2 * self.span, 1 << 30)
            self.left = self.span
        self.strange = 0
        return False


class Watch(KernelFrontEnd):
    """The front end of a launch, with what the analysis of polling loops needs to know of it.

    Attributes:
        kinds: the kind of each site, by id.
        adds: the ids of atomic adds whose results decide nothing: they commute.
    """

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        kernel = launch.kernel
        loops = (op for op in all_ops(kernel) if isinstance(op, ops.While))
        inside = {id(op) for loop in loops for op in walk(loop.body)}
        alone = _alone(kernel)
        self.kinds: list[Kind] = []
        adds: set[int] = set()
        for site in self.sites:
            kind = Kind.SILENT if id(site.op) in inside else Kind.OTHER
            if isinstance(site.op, ops.MbarTryWait):
                kind = Kind.TEST
            elif isinstance(site.op, ops.Atomic | ops.StrongLoad | ops.StrongStore):
                kind = Kind.STRONG
                if _only_adds(site.op, self.things):
                    adds.add(site.id)
            elif site.facts.noticed and not (
                isinstance(site.op, ops.NamedSync) and site.op.bar in alone
            ):
                kind = Kind.NOTICED
            self.kinds.append(kind)
        self.adds = frozenset(adds)
        setup = _written(kernel.setup) & self.things
        self._written = {r.name: setup | (_written(r.body) & self.things) for r in kernel.roles}

    def polling_state(self, world: World, ctas: Iterable[Cta], ag: Agent) -> bytes:
        """A digest of all that decides what an agent does next, as long as no other agent does
        anything: its place, its live values, and the memory that its role writes.
        """
        written = self._written.get(ag.role_name, frozenset())
        memory: list[Hashable] = []
        if written:
            memory += [
                self.slot(s)
                for cta in ctas
                for s in cta.slots
                if s.buffer in written or s is cta.tmem
            ]
            memory += [self.tensor(t) for t in world.tensors if t.param in written]
        return digest((self.registers(ag), tuple(memory)))


def _only_adds(op: ops.Op, deciding: Set[Thing]) -> bool:
    """Whether an op adds to an element, and what it finds there decides nothing."""
    return isinstance(op, ops.Atomic) and op.operation == "add" and op.result not in deciding


def _alone(kernel: Kernel) -> set[NamedBarrier]:
    """Named barriers that only the warps of one agent use: no other agent can observe them."""
    users: dict[NamedBarrier, list[Role | None]] = {}
    for role, block in blocks(kernel):
        for op in walk(block):
            if isinstance(op, ops.NamedSync | ops.NamedArrive):
                users.setdefault(op.bar, []).append(role)
    found = set()
    for bar, roles in users.items():
        role = roles[0]
        if role is None or any(r is not role for r in roles) or bar.threads != role.agent_threads:
            continue
        if role.agents == 1 or bar.per_warpgroup == role.agents:
            found.add(bar)
    return found


def _written(block: ops.Block) -> frozenset[Thing]:
    """The memory that the ops of a block write."""
    things = (thing_of(x) for op in walk(block) for x, use in def_use.used(op) if use.writes)
    return frozenset(
        x for x in things if isinstance(x, SmemBuffer | TensorParam) or x is TENSOR_MEMORY
    )
