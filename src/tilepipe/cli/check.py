"""`tilepipe check`: a kernel over all its interleavings."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tilepipe.cli import common
from tilepipe.cli.common import (
    InterruptedCommand,
    Json,
    Settings,
    Source,
    What,
    app,
    counting,
    err,
    out,
    print_json,
    print_list,
)
from tilepipe.errors import BindError

if TYPE_CHECKING:
    from tilepipe.check import Bounds, Fault, Verdict
    from tilepipe.check.sensitivity import Sensitivity
    from tilepipe.cli.programs import Target
    from tilepipe.machine.rules import Rules

ONE_CTA = (
    "no launch here has more than one CTA, and what CTAs do to each other takes two. Where the"
    " kernel runs with more, check such a launch as well; --small leaves this line out."
)
MOST_FACTS = 8  # instances; of a larger family --json has the facts


@app.command()
def check(
    what: What,
    settings: Settings = None,
    explore: Annotated[
        bool,
        typer.Option(
            "--explore", help="Explore every interleaving, even where one execution stands for all."
        ),
    ] = False,
    rules: Annotated[
        str,
        typer.Option(
            metavar="practice|strict",
            help="The memory model: what shipped compilers rely on, or the PTX ISA to the letter.",
        ),
    ] = "practice",
    small: Annotated[
        bool,
        typer.Option(
            "--small",
            help="Accept instances in which some ring of S stages completes fewer than 2 S + 1"
            " phases, or that have one CTA.",
        ),
    ] = False,
    seconds: Annotated[
        float, typer.Option(help="Time limit for each instance, in seconds.", min=0.001)
    ] = 600.0,
    traces: Annotated[
        int, typer.Option(help="Limit of executions for each instance.", min=1)
    ] = 100_000,
    jobs: Annotated[
        int,
        typer.Option(
            help="Number of processes; where there are more than instances, they share executions.",
            min=1,
        ),
    ] = 1,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity", help="Also report what each wait, fence, arrive, ... is for."
        ),
    ] = False,
    source: Annotated[
        Source,
        typer.Option(
            "--from",
            help="What is checked: the program itself, or the PTX that its printed CUDA compiles"
            " to.",
        ),
    ] = Source.program,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE.json", help="Write a counterexample to this file."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Proves a kernel on small instances, over every order in which its warps and asynchronous
    units can act, or shows how it fails.

    Exit 0: verified; 1: a fault; 2: undecided, or bad usage.
    """
    from tilepipe import check as checker
    from tilepipe.check.counterexamples import saved
    from tilepipe.check.parallel import check_all
    from tilepipe.check.sizes import TooSmallError
    from tilepipe.cli import programs
    from tilepipe.machine.rules import require_rules

    by = require_rules(rules)
    texts = list(settings or [])
    if save is not None:
        saved.probe(save)
    with contextlib.redirect_stdout(sys.stderr):  # what a file or a kernel prints
        found = programs.target(what, texts, source)
        recipes, bounds = (
            programs.recipes(found, texts, jobs),
            checker.Bounds(traces=traces, seconds=seconds),
        )
        with counting("checking", as_json or not err.is_terminal) as bar:
            # and the execution that is under way
            report = (
                _Heartbeat(seconds)
                if bar is None
                else lambda name, done, left: bar(done, done + left + 1)
            )
            try:
                verdicts = check_all(
                    recipes,
                    jobs=jobs,
                    explore=explore,
                    bounds=bounds,
                    rules=by,
                    progress=report,
                    large=not (small or found.own_launches),
                )
            except TooSmallError as error:
                raise BindError(f"{error}; or check it as it is with --small.") from None
            except KeyboardInterrupt as error:
                raise InterruptedCommand(error) from None
        combined = checker.combine(verdicts)
        if combined.ok and found.own_launches and not small and max(v.grid for v in verdicts) == 1:
            combined = replace(combined, advice=[*combined.advice, ONE_CTA])
        number = next((i for i, v in enumerate(verdicts) if v.faults), -1)
        kept, unsaved = save if number >= 0 else None, ""
        if kept is not None:
            try:
                _save(kept, found, texts, number, verdicts[number].faults[0], by)
            # a full disk, a folder that has gone: the fault is reported in any case
            except BindError as error:
                kept, unsaved = None, str(error)
        lines = _sensitivity(found, by, bounds, as_json) if sensitivity and combined.ok else None
    if as_json:
        print_json(_report(found, by, verdicts, combined, lines, kept))
    else:
        _show(found, verdicts, combined, lines)
        if number >= 0:
            _show_where(found, texts, kept)
    if unsaved:
        err.print(f"the counterexample is not saved: {unsaved}", style="red")
    if not combined.ok:
        raise typer.Exit(1 if combined.verdict == "fault" else 2)


class _Heartbeat:
    """Says on stderr now and then how far a check is, where no progress bar does."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._instance = ""
        self._began = self._said = 0.0

    def __call__(self, instance: str, done: int, left: int) -> None:
        now = time.perf_counter()
        if instance != self._instance:
            self._instance, self._began, self._said = instance, now, now
        if now - self._said >= common.HEARTBEAT:
            self._said = now
            err.print(
                f"still checking '{instance}': {done:,} executions done, {left:,} known to be left,"
                f" {now - self._began:.0f} of at most {self._limit:g} seconds (--seconds)"
            )


def _save(
    path: Path, found: Target, settings: list[str], number: int, fault: Fault, rules: Rules
) -> None:
    from tilepipe.check.counterexamples import saved
    from tilepipe.check.parallel.recipes import launch_of

    instance = found.instances[number]
    launch = launch_of(instance.make())
    program, lines = saved.digest(launch), saved.lines(launch, fault)
    saved.write(
        path,
        saved.Saved(
            found.what, tuple(settings), number, instance.name, rules, program, fault, lines,
            found.source,
        ),
    )  # fmt: skip


def _sensitivity(found: Target, rules: Rules, bounds: Bounds, quiet: bool) -> Sensitivity:
    """The report on the last instance, in which every ring goes round twice."""
    from tilepipe.check import sensitivity

    last = found.instances[-1]
    with counting("taking lines out", quiet) as bar:
        return sensitivity.report(
            last.make(),
            rebind=lambda name, n: last.make(**{name: n}),
            stages=found.stages,
            bounds=bounds,
            rules=rules,
            progress=bar,
            instance=last.name,
        )


# -- what is said ----------------------------------------------------------------------


def _report(
    found: Target,
    rules: Rules,
    verdicts: Sequence[Verdict],
    combined: Verdict,
    lines: Sensitivity | None,
    kept: Path | None,
) -> dict[str, Any]:
    from tilepipe.check.counterexamples import saved

    def of(verdict: Verdict) -> dict[str, Any]:
        return verdict.report() | {"faults": [saved.as_json(fault) for fault in verdict.faults]}

    report = (
        {"kernel": found.what, "config": found.config, "from": found.source.value, "rules": rules}
        | of(combined)
        | {"instances": [of(v) for v in verdicts]}
    )
    if kept is not None:
        report["saved"] = str(kept)
    return report if lines is None else report | {"sensitivity": lines.report()}


def _show(
    found: Target, verdicts: Sequence[Verdict], combined: Verdict, lines: Sensitivity | None
) -> None:
    from tilepipe.check.unreached import listed
    from tilepipe.check.verdict import NOT_MODELLED
    from tilepipe.check.wording import EXPLORED, MEANING, NOT_REACHED

    config = f": {' '.join(f'{n}={v}' for n, v in found.config.items())}" if found.config else ""
    out.print(f"{found.what}{config}")
    table = Table("instance")
    table.add_column("method", no_wrap=True)
    for column in ("executions", "states", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("verdict", overflow="fold")
    for v in verdicts:
        colour = {"verified": "green", "fault": "red", "undecided": "yellow"}[v.verdict]
        answer = v.verdict + (f": {v.bound}" if v.bound else "")
        if v.faults and len(verdicts) > 1:  # the message of each stands below
            first = v.faults[0]
            answer += f": {first.kind}" + (f" at {first.loc}" if first.loc else "")
        table.add_row(
            Text(v.instance),
            v.method,
            f"{v.traces:,}",
            f"{v.states:,}",
            f"{v.seconds:.3f}",
            Text(answer, style=colour),
        )
    out.print(table, soft_wrap=False)
    for v in verdicts if len(verdicts) <= MOST_FACTS else ():
        print_list(f"Facts that hold in every interleaving of '{v.instance}':", v.facts)
    print_list(
        EXPLORED, list(dict.fromkeys(v.explored_because for v in verdicts if v.explored_because))
    )
    print_list("Advice:", combined.advice)
    if combined.unreached:
        print_list(NOT_REACHED, listed(combined.unreached))
    if combined.ok:
        out.print(f"\n{MEANING}")
    if combined.verdict == "undecided" and any(v.bound.startswith(NOT_MODELLED) for v in verdicts):
        out.print(
            "\nUndecided: the kernel does what is not modelled, which no larger bound changes. The"
            " verdict's text says what it is."
        )
    elif combined.verdict == "undecided":
        out.print(
            "\nUndecided: the bound that the verdict names was hit before all executions were seen."
            " Raise --traces if it is a number of executions, --seconds if it is a time; under any"
            " other bound, check a smaller instance."
            + (" Why it is explored stands above." if combined.explored_because else "")
        )
    if lines is not None:
        out.print()
        out.print(lines.table(), soft_wrap=False)
    said: dict[str, list[str]] = {}
    for v in verdicts:
        for fault in v.faults:
            said.setdefault(fault.message, []).append(v.instance)
            if len(said[fault.message]) == 1:
                out.print(f"\n{fault.kind} of the instance '{v.instance}':", style="red")
                show_fault(fault)
    for instances in said.values():
        if len(instances) > 1:
            out.print(f"The same fault occurs with {'; '.join(instances[1:])}.")


def show_fault(fault: Fault) -> None:
    """Prints the message of a fault and the table of its steps."""
    out.print(fault.message)
    if not fault.steps:
        return
    table = Table("step", "agent", title="Counterexample", title_justify="left")
    for column in ("op", "line", "effect"):
        table.add_column(column, overflow="fold")  # names of PTX instructions are long
    for i, step in enumerate(fault.steps, 1):
        table.add_row(str(i), *map(Text, (step.agent, step.op, step.loc, step.effect)))
    out.print()
    out.print(table, soft_wrap=False)
    if fault.left_out:
        out.print(
            f"{fault.left_out:,} more step{'s do' if fault.left_out > 1 else ' does'} not affect"
            " the fault."
        )


def _show_where(found: Target, settings: list[str], kept: Path | None) -> None:
    if kept is not None:
        out.print(f"\nSaved in {kept}; `tilepipe replay {shlex.quote(str(kept))}` shows it again.")
    else:
        given = "".join(f" -s {shlex.quote(text)}" for text in settings)
        if found.source is not Source.program:
            given += f" --from {found.source.value}"
        err.print(
            f"\n`tilepipe check {shlex.quote(found.what)}{given} --save FILE.json` keeps it,"
            " `tilepipe replay FILE.json` shows it again."
        )
