"""Loops that look for something in vain.

An agent that tests a barrier, or adds 0 to a counter, and is told what it was told before, waits
for somebody else as soon as a round of its loop changes nothing: neither where it stands, nor a
value of its own that can come to decide something (`deciding`), nor the memory that it writes. Then
it is parked until what it looks at changes. So is one that goes round a `while` loop for long
without an op that others can notice.

A loop that does change something each time, a count of its attempts in a register, in a fragment or
in memory, is followed, for so many looks as `MAX_FAILED_LOOKS` says; after that nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from tilepipe.check.engine.key_encoding import digest
from tilepipe.ir import ops
from tilepipe.ir.def_use import used
from tilepipe.ir.memory import NamedBarrier, SmemBuffer, TensorParam
from tilepipe.ir.program import Kernel, Role, all_ops, blocks, walk
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.machine import World
from tilepipe.sim.front_end import TENSOR_MEMORY, KernelFrontEnd, Thing, thing_of

if TYPE_CHECKING:
    from tilepipe.machine.cta import Cta

MAX_FAILED_LOOKS = 32  # looks in vain, one after another with different values, that are followed
# ops in a row that nobody can notice, after which a loop is watched for rounds that change nothing
QUIET = 512
Cell = tuple[int, ...]  # a tensor's number, and an element of it


class Kind(IntEnum):
    """What an op means for a loop that it is in."""

    OTHER = 0
    TEST = 1  # try_wait
    ADD = 2  # atomic add, which only looks where it adds 0
    NOTICED = 3  # by others: a round with one has an effect
    QUIET = 4  # in a `while` loop, and noticed by nobody


@dataclass(eq=False, slots=True)
class Poll:
    """What an agent has looked at in vain since it last did what others can notice.

    Attributes:
        seen: digests of the states in which it has looked. bars, cells: what it has looked at.
        site, mark, left, span, strange: the state to which those of quiet rounds are compared: its
            op, its digest, for how many rounds it is kept, and was (Brent's algorithm: the span
            doubles, so that a cycle of any length is found); ops elsewhere since it was met last.
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
        """Whether the agent has looked in this state before; else it has now."""
        if state in self.seen:
            return True
        self.seen.add(state)
        return False

    def repeats(self, site: int, state: Callable[[], bytes]) -> bool:
        """Whether a quiet round has come back to the state that is kept."""
        if self.site != site and self.site >= 0 and self.strange < QUIET:
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


class Watch:
    """What of a kernel matters to its loops.

    Attributes:
        kinds: of each site, by id. adds: ids of the atomic adds whose results decide nothing: they
            commute.
    """

    def __init__(self, kernel: Kernel, front_end: KernelFrontEnd) -> None:
        self.front_end = front_end
        loops = (op for op in all_ops(kernel) if isinstance(op, ops.While))
        inside = {id(op) for loop in loops for op in walk(loop.body)}
        alone = _alone(kernel)
        self.kinds: list[Kind] = []
        adds: set[int] = set()
        for site in front_end.sites:
            kind = Kind.QUIET if id(site.op) in inside else Kind.OTHER
            if isinstance(site.op, ops.MbarTryWait):
                kind = Kind.TEST
            elif isinstance(site.op, ops.AtomicAdd):
                kind = Kind.ADD
                if site.op.result not in front_end.things:
                    adds.add(site.id)
            elif site.noticed and not (isinstance(site.op, ops.NamedSync) and site.op.bar in alone):
                kind = Kind.NOTICED
            self.kinds.append(kind)
        self.adds = frozenset(adds)
        setup = _written(kernel.setup) & front_end.things
        self._written = {
            r.name: setup | (_written(r.body) & front_end.things) for r in kernel.roles
        }

    def state(self, world: World, ctas: Iterable[Cta], ag: Agent) -> bytes:
        """All that can decide what an agent does next, as long as nobody else does anything: where
        it stands, with which values, and what the memory holds that its role writes.
        """
        written = self._written.get(ag.role_name, frozenset())
        memory: list[Hashable] = []
        if written:
            memory += [
                self.front_end.slot(s)
                for cta in ctas
                for s in cta.slots
                if s.buffer in written or s is cta.tmem
            ]
            memory += [self.front_end.tensor(t) for t in world.tensors if t.param in written]
        return digest((self.front_end.registers(ag), tuple(memory)))


def _alone(kernel: Kernel) -> set[NamedBarrier]:
    """Named barriers at which the warps of one agent meet, and nobody else: others do not notice
    that.
    """
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
    things = (thing_of(x) for op in walk(block) for x, use in used(op) if use.writes)
    return frozenset(
        x for x in things if isinstance(x, SmemBuffer | TensorParam) or x is TENSOR_MEMORY
    )
