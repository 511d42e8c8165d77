"""What each synchronising line of a kernel is for: what goes wrong without it, or that nothing
does; and the smallest number of stages that verifies.

    report = sensitivity.report(program)
    rich.print(report.table())

A row is one op of one line, with all its copies: a method of a pipeline may emit several, and a
Python loop repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tilepipe.check import front_ends
from tilepipe.check.decide import check
from tilepipe.check.front_ends import Made
from tilepipe.check.mutation import rewriting
from tilepipe.check.mutation.judging import Outcome, judge, outputs
from tilepipe.check.mutation.mutants import SUBJECTS, Mutant, described, subjects, text
from tilepipe.check.mutation.observations import Observations
from tilepipe.check.mutation.redundancy import explain
from tilepipe.check.mutation.rewriting import Place
from tilepipe.check.parallel.recipes import launch_of
from tilepipe.check.verdict import Bounds, Reductions, require_options
from tilepipe.errors import BindError, TilepipeError
from tilepipe.ir.location import Loc
from tilepipe.ir.program import Kernel, Launch
from tilepipe.machine.rules import Rules

if TYPE_CHECKING:
    from rich.table import Table

Role = Literal["load-bearing", "redundant", "undecided"]
Rebind = Callable[[str, int], Made]
Progress = Callable[[int, int], None]  # called with (rows and stage counts done, total)

NAMES = ("wait", "named sync", "arrive", "expect", "fence", "syncwarp", "commit", "dealloc")
QUICK = Bounds(traces=20_000, seconds=60.0, steps=200_000)


@dataclass(frozen=True, slots=True)
class Line:
    """One op of one line of the kernel, and the checker's judgement of the kernel without it.

    Attributes:
        loc, source: the line.
        what: the op with its operands; the first one if the line emits several.
        count: how many the line emits.
        kind: "wait", "fence", "arrive", ...
        roles: the roles that perform it.
        answer: "load-bearing": without it the kernel is wrong. "redundant": without it, exploration
            verifies the kernel with the same results. "undecided": a bound was hit.
        without: the judgement of the kernel without it.
        why: why it is redundant, if a rule explains that.
    """

    loc: Loc
    source: str
    what: str
    count: int
    kind: str
    roles: tuple[str, ...]
    answer: Role
    without: Outcome
    why: str = ""

    @property
    def says(self) -> str:
        """What happens without it, in one line."""
        match self.without.fate:
            case "fault" | "refused":
                where = f" at {self.without.loc}" if self.without.loc else ""
                return f"{self.without.kind}{where}: {self.without.headline}"
            case "redundant":
                return f"verified without it{f': {self.why}' if self.why else ''}"
        return self.without.message


@dataclass(frozen=True, slots=True)
class Stages:
    """The smallest value of a setting, a number of stages, with which the kernel verifies.

    Attributes:
        now: its value.
        fewest: the smallest value that verifies, tried from `now` downwards; 0 if `now` does not.
        below: what is wrong with one stage fewer than `fewest`; "" if that is 0 stages.
    """

    name: str
    now: int
    fewest: int
    below: str


@dataclass(frozen=True)
class Sensitivity:
    """The report on one kernel and instance. `instance`: a description of it."""

    kernel: str
    instance: str
    lines: list[Line]
    stages: list[Stages] = field(default_factory=list)

    @property
    def redundant(self) -> list[Line]:
        """The lines that the kernel does not need."""
        return [line for line in self.lines if line.answer == "redundant"]

    def report(self) -> dict[str, Any]:
        """The report as JSON data."""
        return {
            "kernel": self.kernel,
            "instance": self.instance,
            "lines": [
                {
                    "at": line.loc.short,
                    "source": line.source,
                    "op": line.what,
                    "count": line.count,
                    "kind": line.kind,
                    "roles": list(line.roles),
                    "answer": line.answer,
                    "without": line.says,
                }
                for line in self.lines
            ],
            "stages": [
                {"name": s.name, "now": s.now, "fewest": s.fewest, "below": s.below}
                for s in self.stages
            ],
        }

    def table(self) -> Table:
        """The report as a table: `rich.print(report.table())`."""
        from rich.table import Table
        from rich.text import Text

        # each cell is a Text, so that no part of the user's source is read as markup
        title = Text(f"{self.kernel}: what each line is for ({self.instance})")
        table = Table(title=title, title_justify="left", show_lines=False)
        for column in ("line", "op", "", "without it"):
            table.add_column(column, overflow="fold")
        colour = {"load-bearing": "green", "redundant": "yellow", "undecided": "red"}
        for line in self.lines:
            times = f" ×{line.count}" if line.count > 1 else ""
            answer = Text(line.answer, style=colour[line.answer])
            table.add_row(
                Text(line.loc.short),
                Text(f"{line.what}{times} ({', '.join(line.roles)})"),
                answer,
                Text(line.says),
            )
        for s in self.stages:
            few = (
                Text.assemble((str(s.fewest), "green"), f" of {s.now} verify")
                if s.fewest
                else Text("none verifies", style="red")
            )
            table.add_row(Text(s.name), "stages", few, Text(s.below))
        return table


def report(
    program: Made,
    *,
    rebind: Rebind | None = None,
    stages: Mapping[str, int] | None = None,
    bounds: Bounds = QUICK,
    rules: Rules = "practice",
    progress: Progress | None = None,
    instance: str = "",
) -> Sensitivity:
    """Removes each synchronising line in turn, all its ops of one kind together, and checks the
    rest of the kernel.

    Args:
        program: a kernel that verifies, on a small instance.
        rebind: for the report on stages: (name, n) -> the program with that setting at n. It may
            raise whatever `bind` raises.
        stages: the settings to lower, and their values.
        bounds: the limits of each exploration.
        progress: called with (done, total).

    Raises:
        SimFault: the unchanged kernel ends in a fault.
        BindError: an argument has the wrong type.
    """
    launch = front_ends.launch_of(program)
    if not isinstance(launch, Launch):
        raise BindError(
            "sensitivity.report takes a program, which kernel.bind(...) gives, or a launch; got"
            f" {program!r:.80}"
        )
    require_options(False, bounds, Reductions(), rules, instance, progress)
    if rebind is not None and not callable(rebind):
        raise BindError(
            "rebind= is a function (name, n) that gives the program with that setting at n; got"
            f" {rebind!r}"
        )
    kernel = launch.kernel
    settings = {} if rebind is None else dict(stages or {})
    groups = _groups(kernel)
    total, done = len(groups) + len(settings), 0
    reference, observations = outputs(launch), Observations([launch])
    lines: list[Line] = []
    for members in groups.values():
        if progress is not None:
            progress(done, total)
        done += 1
        mutant = Mutant(
            f"drop {SUBJECTS[type(members[0].op)]}",
            f"dropped: {described(members[0])}",
            members[0],
            rewriting.without(kernel, members),
        )
        outcome = judge(mutant, launch, reference, bounds=bounds, rules=rules)
        why = (
            explain(mutant, kernel, observations, bool(outcome.advice))
            if outcome.fate == "redundant"
            else ""
        )
        lines.append(_line(members, outcome, why))
    found: list[Stages] = []
    for name, now in settings.items():
        if progress is not None:
            progress(done, total)
        done += 1
        assert rebind is not None
        found.append(_fewest(name, now, rebind, bounds, rules))
    if progress is not None:
        progress(total, total)
    return Sensitivity(kernel.name, instance or f"{launch.grid} CTAs", lines, found)


def _groups(kernel: Kernel) -> dict[tuple[Loc, str], list[Place]]:
    """The ops to remove together: those of one line that do the same to the same barriers."""
    groups: dict[tuple[Loc, str], list[Place]] = {}
    for name, place in subjects(kernel):
        if name in NAMES:
            groups.setdefault((place.op.loc, _kind(place)), []).append(place)
    return groups


def _kind(place: Place) -> str:
    bar = getattr(place.op, "bar", None)
    name = getattr(getattr(bar, "array", bar), "name", "")
    return f"{type(place.op).__name__} {name}"


def _line(members: Sequence[Place], outcome: Outcome, why: str) -> Line:
    first = members[0].op
    roles = tuple(
        dict.fromkeys(place.role.name if place.role is not None else "set-up" for place in members)
    )
    answer: Role = (
        "undecided"
        if outcome.fate == "undecided"
        else "load-bearing"
        if outcome.caught
        else "redundant"
    )
    return Line(
        first.loc,
        first.loc.source,
        text(first),
        len(members),
        SUBJECTS[type(first)],
        roles,
        answer,
        outcome,
        why,
    )


# -- stages ----------------------------------------------------------------------------


def _fewest(name: str, now: int, rebind: Rebind, bounds: Bounds, rules: Rules) -> Stages:
    """Tries n stages from `now` down to the first n that does not verify."""
    fewest, below = 0, ""
    for n in range(now, 0, -1):
        below = _wrong(name, n, rebind, bounds, rules)
        if below:
            break
        fewest = n
    return Stages(name, now, fewest, below)


def _wrong(name: str, n: int, rebind: Rebind, bounds: Bounds, rules: Rules) -> str:
    """What is wrong with n stages; "" if they verify."""
    try:
        made = rebind(name, n)
    except TilepipeError as error:
        return f"{n} is refused: {str(error).splitlines()[0]}"
    verdict = check(
        launch_of(made),
        bounds=bounds,
        rules=rules,
        shorten=False,
    )
    if verdict.ok:
        return ""
    if not verdict.faults:
        return f"{n} is undecided: {verdict.bound}"
    fault = verdict.faults[0]
    return f"{n}: {fault.kind} at {fault.loc}: {fault.message.splitlines()[0]}"
