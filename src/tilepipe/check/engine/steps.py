"""What the causal order of an execution is made of: its steps, the races between them, and what is
kept of barriers and agents.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from tilepipe.machine.sites import Site

Who = tuple[int, int]  # cluster, number of the agent in it
Why = Literal["phase", "ahead", "lapped", "bytes", "test", "turn"]
WARPS = 4  # of an agent, at most


@dataclass(eq=False, slots=True)
class Node:
    """A step that other agents can notice.

    Attributes:
        who: the agent, or the one whose unit it is. ordinal: ops that it had performed before; of a
            unit, its number among the agent's units. unit: whether it is one. site: the op, of a
            unit the one that issued it.
        bits: one for each warp that took the step. after: the nodes that it knows, all warps of an
            agent as one.
        behind: those, and the nodes that it comes after only because they depend on each other.
        outcome: of a request that could be refused, whether it was granted; -1 of other steps.
    """

    index: int
    who: Who
    ordinal: int
    unit: bool
    site: Site | None
    bits: int = 0
    after: int = 0
    behind: int = 0
    outcome: int = -1

    @property
    def mark(self) -> int:
        return 1 << self.index


@dataclass(frozen=True, eq=False, slots=True)
class Race:
    """`second` depends on `first`, came after it, and need not have.

    Attributes:
        why: which rule is open. "phase": `second` counts in the phase after that of `first`.
            "ahead": `second` waits for a phase without knowing the one before to be complete.
            "lapped": `first` waits for a phase, and `second` completes the next. "bytes": `first`
            announces bytes of the phase that `second` completes. "test": what try_wait says.
            "turn": who comes first.
        warps: the agent of `second` knows `first`, but not that these warps have taken that step:
            the machine performs the warps of an agent together. None of them: another agent.
    """

    first: Node
    second: Node
    why: Why
    barrier: Hashable
    phase: int
    warps: tuple[int, ...] = ()


@dataclass(eq=False, slots=True)
class Phase:
    """One phase of a barrier: who took part, what they knew, who waited for it and who tested it in
    vain.
    """

    members: list[Node] = field(default_factory=list)
    bits: int = 0
    known: int = 0
    after: int = 0
    behind: int = 0
    counted: list[int] = field(default_factory=list)
    announced: list[Node] = field(default_factory=list)
    waits: list[Node] = field(default_factory=list)
    failed: list[Node] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Track:
    """What is kept of a barrier: its last phases, and what all completed ones have published.
    `unobserved`: phases after which another one completed although nobody had waited for them.
    `awaited`: somebody has waited for one.
    """

    name: Hashable
    meets: bool = False
    phases: dict[int, Phase] = field(default_factory=dict)
    known: int = 0
    after: int = 0
    behind: int = 0
    story: list[Hashable] = field(default_factory=list)
    unobserved: list[int] = field(default_factory=list)
    awaited: bool = False
    kind: str = ""
    turns: list[Node] = field(default_factory=list)
    earlier: list[Node] = field(default_factory=list)

    def phase(self, number: int) -> Phase:
        found = self.phases.get(number)
        if found is None:
            found = self.phases[number] = Phase()
        return found


@dataclass(eq=False, slots=True)
class Mind:
    """What one agent knows: `known` of each warp, `after` and `behind` as in `Node`; `groups`: what
    its MMA groups will tell.
    """

    known: list[int] = field(default_factory=lambda: [0] * WARPS)
    after: int = 0
    behind: int = 0
    groups: list[int] = field(default_factory=list)
