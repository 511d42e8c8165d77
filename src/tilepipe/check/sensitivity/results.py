"""The report on a kernel: a row for each line, and one for each number of stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tilepipe.check.mutation.outcomes import Outcome
from tilepipe.ir.location import Loc

if TYPE_CHECKING:
    from rich.table import Table

Role = Literal["load-bearing", "redundant", "undecided"]


@dataclass(frozen=True, slots=True)
class Line:
    """One op of one line of the kernel, and the checker's judgement of the kernel without it.

    Attributes:
        loc, source: the line.
        what: the op with its operands; the first one if the line emits several.
        count: how many the line emits.
        kind: "wait", "fence", "arrive", ...
        roles: the roles that perform it; none of a kernel of PTX.
        answer: "load-bearing": without it the kernel is wrong. "redundant": without it, the kernel
            is verified with the same results. "undecided": a bound was hit, or its effect is not
            modelled.
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

    @classmethod
    def of(
        cls,
        loc: Loc,
        source: str,
        what: str,
        count: int,
        kind: str,
        roles: tuple[str, ...],
        without: Outcome,
        why: str = "",
    ) -> Line:
        """The row on an op, given the judgement of the kernel without it."""
        answer: Role = (
            "undecided"
            if without.fate == "undecided"
            else "load-bearing"
            if without.caught
            else "redundant"
        )
        return cls(loc, source, what, count, kind, roles, answer, without, why)

    @property
    def says(self) -> str:
        """The consequence of removing it, in one line."""
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
            who = f" ({', '.join(line.roles)})" if line.roles else ""
            answer = Text(line.answer, style=colour[line.answer])
            table.add_row(
                Text(line.loc.short),
                Text(f"{line.what}{times}{who}"),
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
