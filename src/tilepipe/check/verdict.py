"""What a check answers: a verdict on one instance, with the story of the fault where there is
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Literal, NamedTuple

from tilepipe.arguments import plain, plain_int, require_bool, require_function, shown
from tilepipe.errors import BindError, SimFault
from tilepipe.machine.rules import require_rules

Answer = Literal["verified", "fault", "undecided"]
Method = Literal["greedy", "explored"]
# how a bound begins that no more time would lift: of a NotModelledError
NOT_MODELLED = "not modelled: "
_RANK: dict[str, int] = {"verified": 0, "undecided": 1, "fault": 2}


@dataclass(frozen=True, slots=True)
class Bounds:
    """When an exploration gives up, undecided.

    Attributes:
        traces: executions begun, at least 1. seconds: of wall time, 0 or more; `math.inf`: no
            bound. steps: ops and asynchronous units performed in one execution, at least 1.

    Raises:
        BindError: a bound that is no such number.
    """

    traces: int = 100_000
    seconds: float = 600.0
    steps: int = 5_000_000

    def __post_init__(self) -> None:
        for name, what in (
            ("traces", "how many executions may begin"),
            ("steps", "how many steps one execution may take"),
        ):
            given = plain_int(getattr(self, name))
            if given is None or given < 1:
                raise BindError(
                    f"Bounds({name}=) is {what}, an integer of at least 1; got"
                    f" {shown(getattr(self, name))}"
                )
            object.__setattr__(self, name, given)
        seconds = plain(self.seconds)
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds >= 0:
            raise BindError(
                "Bounds(seconds=) is a number of seconds, 0 or more, or math.inf for no such"
                f" bound; got {shown(seconds)}"
            )
        object.__setattr__(self, "seconds", seconds)


@dataclass(frozen=True, slots=True)
class Reductions:
    """What an exploration may leave out. Each can be turned off, to see what it is worth and that
    it changes no verdict.

    Attributes:
        partial_order: orders of independent steps count as one.
        hashing: what follows a state that was met before is not looked at again.
        symmetry: states that differ by the names of interchangeable agents count as one.
    """

    partial_order: bool = True
    hashing: bool = True
    symmetry: bool = True

    def __post_init__(self) -> None:
        for name in ("partial_order", "hashing", "symmetry"):
            object.__setattr__(
                self, name, require_bool(getattr(self, name), f"Reductions({name}=)")
            )


def require_options(
    explore: object,
    bounds: object,
    reductions: object,
    rules: object,
    instance: object = "",
    progress: object = None,
) -> None:
    """The arguments that all ways to check have in common.

    Raises:
        BindError: one is not of its type; the message says what to write.
    """
    require_bool(explore, "explore=")
    require_function(progress, "progress=")
    if not isinstance(instance, str):
        raise BindError(
            f"instance= is a text, what the verdict calls the launch; got {shown(instance)}"
        )
    require_rules(rules)
    if not isinstance(bounds, Bounds):
        raise BindError(
            "bounds= takes tilepipe.check.Bounds, such as Bounds(traces=1000, seconds=60); got"
            f" {bounds!r}"
        )
    if not isinstance(reductions, Reductions):
        raise BindError(
            "reductions= takes tilepipe.check.Reductions, such as Reductions(hashing=False); got"
            f" {reductions!r}"
        )


class Pick(NamedTuple):
    """`agent` goes on until it has performed `until` ops; or, `unit` >= 0, its `unit`-th
    asynchronous unit acts.

    Attributes:
        cluster: in the grid. agent: its number in the cluster.
        outcome: of a request that can be refused: 1 granted, 0 refused; -1 where there is no such
            choice. 2: no step, but a choice for the whole execution: elect.sync elects lane `agent`
            wherever it is active.
    """

    cluster: int
    agent: int
    until: int = 0
    unit: int = -1
    outcome: int = -1

    @classmethod
    def of_lane(cls, lane: int) -> Pick:
        """The choice of the lane that is elected."""
        return cls(-1, lane, outcome=2)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a counterexample: who does what.

    Attributes:
        agent: "role 'load' of CTA 0", or "unit of ..." for an asynchronous one. op: with its
            operands. loc: "gemm.py:31".
        effect: what it did to a barrier: "inputs.full[1]: phase 0 complete"; "" where nothing.
    """

    agent: str
    op: str
    loc: str
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, and how it comes about.

    Attributes:
        kind: the class of the error (`RaceError`). message: all of it. loc: "gemm.py:31", "" where
            it has no line.
        schedule: what a replay does, in order; everything else runs afterwards. steps: the story,
            only what matters to it.
        left_out: steps of the execution that do not matter to the fault.
    """

    kind: str
    message: str
    loc: str
    schedule: tuple[Pick, ...] = ()
    steps: tuple[Step, ...] = ()
    left_out: int = 0

    @classmethod
    def of(
        cls,
        error: SimFault,
        schedule: tuple[Pick, ...] = (),
        steps: tuple[Step, ...] = (),
        left_out: int = 0,
    ) -> Fault:
        """The fault of an error."""
        return cls(
            type(error).__name__,
            str(error),
            error.loc.short if error.loc is not None else "",
            schedule,
            steps,
            left_out,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one instance, or for several together.

    Attributes:
        method: "greedy": one execution, whose facts say that it stands for all; "explored": as many
            as there are.
        instance: in words. states: distinct points of the executions at which an agent or a unit
            could be picked. traces: executions.
        facts: what the greedy method established. bound: which one was hit, where the verdict is
            "undecided".
        completions: mbarrier array -> for each CTA of the grid, how many phases of each of its
            barriers completed.
        grid: CTAs.
    """

    verdict: Answer
    method: Method
    instance: str
    states: int
    traces: int
    seconds: float
    faults: list[Fault] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    bound: str = ""
    completions: dict[str, list[list[int]]] = field(default_factory=dict)
    grid: int = 1

    @property
    def ok(self) -> bool:
        """Whether it is "verified"."""
        return self.verdict == "verified"

    def report(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "instance": self.instance, "verdict": self.verdict, "method": self.method, "states": self.states, "traces": self.traces,
            "seconds": round(self.seconds, 6), "bound": self.bound, "facts": self.facts, "advice": self.advice,
            "faults": [{"kind": f.kind, "message": f.message, "at": f.loc} for f in self.faults],
        }  # fmt: skip


def the_fault(given: object) -> Fault:
    """What to replay: a fault, or that of a verdict.

    Raises:
        BindError: it is neither, or there is not exactly one.
    """
    match given:
        case Fault():
            return given
        case Verdict(faults=[Fault() as only]):
            return only
        case Verdict(verdict=answer, faults=[]):
            raise BindError(f"replay takes a fault, and this verdict has none: it is '{answer}'")
        case Verdict(faults=several):
            raise BindError(
                f"replay takes one fault, and this verdict has {len(several)}: give that of this"
                " program, one of verdict.faults"
            )
    cure = ""
    if isinstance(given, str | PathLike):
        cure = ". A file that `tilepipe check --save` wrote is replayed with `tilepipe replay FILE.json`"
    elif isinstance(given, Sequence):
        cure = ". A schedule alone is replayed with tilepipe.check.replay(program.launch_args, schedule)"
    raise BindError(
        "replay takes a fault that check found, verdict.faults[0], or the verdict; got"
        f" {given!r:.80}{cure}"
    )


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """One verdict for several instances: the worst, with the sums of the figures."""
    every = list(verdicts) if isinstance(verdicts, Iterable) else []
    if not every or not all(isinstance(v, Verdict) for v in every):
        raise BindError(f"together takes verdicts, one at least; got {shown(verdicts)}")
    first, *rest = every
    for v in rest:
        first = replace(
            first,
            verdict=max(first.verdict, v.verdict, key=_RANK.__getitem__),
            method="explored" if "explored" in (first.method, v.method) else "greedy",
            instance=f"{first.instance}; {v.instance}",
            states=first.states + v.states,
            traces=first.traces + v.traces,
            seconds=first.seconds + v.seconds,
            faults=first.faults + v.faults,
            advice=first.advice + [a for a in v.advice if a not in first.advice],
            facts=first.facts + v.facts,
            bound=first.bound or v.bound,
        )
    return first
