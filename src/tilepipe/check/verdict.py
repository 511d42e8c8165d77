"""The result of a check: a verdict on one instance, with a counterexample where it has a fault.

Also the options that every way to check shares: bounds on the search, and its reductions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Literal

from tilepipe.check.faults import Fault as Fault, ScheduleStep as ScheduleStep, Step as Step
from tilepipe.check.sizes import Completions
from tilepipe.check.unreached import Coverage, Unreached
from tilepipe.errors import BindError
from tilepipe.host_arguments import plain, plain_int, require_bool, require_function, shown
from tilepipe.machine.advice import add
from tilepipe.machine.rules import require_rules

Conclusion = Literal["verified", "fault", "undecided"]
Method = Literal["single-execution", "explored"]
UNLIMITED = 1 << 60  # steps of one execution
# the prefix of a bound that comes from what the machine, or the reader of PTX, does not model: more
# time would not lift it
NOT_MODELLED = "not modelled: "
_SEVERITY: dict[str, int] = {"verified": 0, "undecided": 1, "fault": 2}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits after which an exploration stops without a decision ("undecided").

    Attributes:
        traces: executions that may begin, at least 1.
        seconds: wall time, 0 or more; `math.inf` sets no limit.
        steps: ops and asynchronous units that one execution may perform, at least 1.

    Raises:
        BindError: a value is outside its range or not a number.
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
                "Bounds(seconds=) is a number of seconds, 0 or more, or math.inf for no such bound;"
                f" got {shown(seconds)}"
            )
        object.__setattr__(self, "seconds", seconds)


def steps_bound(steps: int) -> str:
    """The beginning of `Verdict.bound` where an execution has taken more steps than it may."""
    return f"{steps:,} step{'' if steps == 1 else 's'} of one execution (Bounds(steps=))"


class ExecutionLimitError(Exception):
    """An execution goes on for longer than the bounds allow. The message says which bound; it is
    empty for the deadline.
    """


@dataclass(frozen=True, slots=True)
class Reductions:
    """Reductions of the search. Each can be turned off to measure its effect on the cost; none
    changes a verdict.

    Attributes:
        partial_order: of the executions that differ only in the order of independent steps, explore
            one.
        hashing: do not explore again from a state that was reached before.
        symmetry: treat states as equal if they differ only in which of several interchangeable
            agents is which.
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
    """Validate the options that every way to check takes.

    Raises:
        BindError: an option has the wrong type; the message says what to write.
    """
    require_bool(explore, "explore=")
    require_function(progress, "progress=")
    if not isinstance(instance, str):
        raise BindError(
            f"instance= is a text, the name of the launch in the verdict; got {shown(instance)}"
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one instance, or on several combined.

    Attributes:
        method: "single-execution" if the causal order of one execution proves that all others are
            equivalent to it; "explored" if several executions were needed.
        instance: a description of the launch.
        states: distinct points of the executions at which a scheduling decision was possible.
        traces: executions performed.
        faults: what was found, each with its counterexample.
        advice: remarks that are not faults; those of one rule about the same lines are one.
        facts: what the single execution proves for all interleavings.
        bound: the limit that was hit, if the verdict is "undecided".
        completions: mbarrier array -> for each CTA of the grid, the number of completed phases of
            each barrier of the array; where several numbers of clusters at once are tried, with the
            one with which a CTA completes most.
        grid: the number of CTAs.
        coverage: of a verified instance, the lines of source that its executions have reached, and
            those that none has.
        explored_because: which lines keep one execution from deciding, where several were needed,
            or the limit was hit before; "" where that is not known, and with `explore`.
    """

    verdict: Conclusion
    method: Method
    instance: str
    states: int
    traces: int
    seconds: float
    faults: list[Fault] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    bound: str = ""
    completions: Completions = field(default_factory=dict)
    grid: int = 1
    coverage: Coverage = field(default_factory=Coverage)
    explored_because: str = ""

    @property
    def unreached(self) -> list[Unreached]:
        """The lines of source that hold ops and that no execution has reached: nothing is verified
        about them. Of a traced kernel that is verified; else empty.
        """
        return self.coverage.places()

    @property
    def ok(self) -> bool:
        """True if the verdict is "verified"."""
        return self.verdict == "verified"

    def __repr__(self) -> str:
        found = "".join(f", {f.kind}" + (f" at {f.loc}" if f.loc else "") for f in self.faults[:3])
        more = f", {len(self.faults) - 3} more" if len(self.faults) > 3 else ""
        bound = f": {self.bound}" if self.bound else ""
        executions = f"{self.traces:,} execution{'' if self.traces == 1 else 's'}"
        of = f" of '{self.instance}'" if self.instance else ""
        text = f"<Verdict {self.verdict}{bound}{of}: {executions}{found}{more}>"
        return " ".join(text.split())

    def _repr_html_(self) -> str:
        from tilepipe.check.page import part

        kind = {"verified": "good", "fault": "bad", "undecided": "open"}[self.verdict]
        row = (
            self.instance or "this launch",
            self.method,
            f"{self.traces:,}",
            f"{self.states:,}",
            f"{self.seconds:.3f}",
            self.verdict + (f": {self.bound}" if self.bound else ""),
        )
        return part(
            row, kind, self.faults, self.facts, self.explored_because, self.advice, self.unreached
        )

    def report(self) -> dict[str, Any]:
        """The verdict as JSON data."""
        return {
            "instance": self.instance,
            "verdict": self.verdict,
            "method": self.method,
            "states": self.states,
            "traces": self.traces,
            "seconds": round(self.seconds, 6),
            "bound": self.bound,
            "explored_because": self.explored_because,
            "facts": self.facts,
            "advice": self.advice,
            "faults": [{"kind": f.kind, "message": f.message, "at": f.loc} for f in self.faults],
            "unreached": [
                {"lines": place.lines, "role": place.role, "why": place.why}
                for place in self.unreached
            ],
        }


def fault_to_replay(given: object) -> Fault:
    """The fault itself, or the only fault of a verdict.

    Raises:
        BindError: `given` is neither, or the verdict does not have exactly one fault.
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
                f"replay takes one fault, and this verdict has {len(several)}: give the one that"
                " belongs to this program, from verdict.faults"
            )
    cure = ""
    if isinstance(given, str | PathLike):
        cure = (
            ". A file that `tilepipe check --save` wrote is replayed with `tilepipe replay"
            " FILE.json`"
        )
    elif isinstance(given, Sequence):
        cure = (
            ". A schedule alone is replayed with tilepipe.check.replay(program.launch_args,"
            " schedule)"
        )
    raise BindError(
        "replay takes a fault that check found, verdict.faults[0], or the verdict; got"
        f" {given!r:.80}{cure}"
    )


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """One verdict for several instances: the worst of them, with the sums of their figures."""
    every = list(verdicts) if isinstance(verdicts, Iterable) else []
    if not every or not all(isinstance(v, Verdict) for v in every):
        raise BindError(f"combine takes one or more verdicts; got {shown(verdicts)}")
    first, *rest = every
    advice = list(first.advice)
    for v in rest:
        add(advice, v.advice)
        first = replace(
            first,
            verdict=max(first.verdict, v.verdict, key=_SEVERITY.__getitem__),
            method="explored" if "explored" in (first.method, v.method) else "single-execution",
            instance=f"{first.instance}; {v.instance}",
            states=first.states + v.states,
            traces=first.traces + v.traces,
            seconds=first.seconds + v.seconds,
            faults=first.faults + v.faults,
            advice=advice,
            facts=first.facts + v.facts,
            bound=first.bound or v.bound,
            explored_because=first.explored_because or v.explored_because,
            coverage=first.coverage | v.coverage,
        )
    return first
