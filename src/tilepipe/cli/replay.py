"""`tilepipe replay`: a saved counterexample, on the kernel as it is now."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilepipe.cli.check import show_fault
from tilepipe.cli.common import Json, Source, app, out, print_json
from tilepipe.errors import BindError

if TYPE_CHECKING:
    from tilepipe.check import Fault, Step
    from tilepipe.check.counterexamples.saved import Saved

# messages name files as seen from the present folder
_PLACE = re.compile(r"[^\s'(]*[\w.<>-]+:\d+")
File = Annotated[
    Path, typer.Argument(metavar="FILE.json", help="What `tilepipe check --save` wrote.")
]
Lines = Mapping[str, str]  # "gemm.py:31" -> the text of that line


@app.command()
def replay(
    file: File,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE.html",
            help="Write a page of what happens on the way to the fault, with its steps; or .json,"
            " for ui.perfetto.dev.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Replays a saved counterexample on the simulator.

    Exit 1: the same fault, by the same steps, though their lines may have moved; 2: another or
    none, or bad usage.
    """
    from tilepipe import check as checker
    from tilepipe.check.counterexamples import saved
    from tilepipe.check.parallel.recipes import launch_of
    from tilepipe.cli import programs
    from tilepipe.cli.recording import check_name, recording_of, save_replayed

    if output is not None:
        check_name(output)
    kept = saved.read(file)
    with contextlib.redirect_stdout(sys.stderr):
        found = programs.target(kept.what, kept.settings, Source(kept.source))
        if kept.number >= len(found.instances):
            raise BindError(
                f"{file} is of instance {kept.number + 1} of {kept.what}, which makes"
                f" {len(found.instances)} now"
            )
        launch = launch_of(found.instances[kept.number].make())
        changed = saved.digest(launch) != kept.program
        records = None if output is None else recording_of(launch)
        now = checker.replay_with_steps(
            launch, kept.fault.schedule, rules=kept.rules, records=records
        )
    if records is not None and output is not None:
        save_replayed(records, now, f"{found.what}, {kept.instance}", output)
    differs = _differences(
        kept, now, saved.lines(launch, now) if changed and now is not None else {}
    )
    moved = {} if now is None or differs else _moved(kept.fault, now)
    if as_json:
        print_json(
            {
                "kernel": found.what,
                "config": found.config,
                "instance": kept.instance,
                "replayed": _answer(now, differs),
                "changed": changed,
                "differs": differs,
                "moved": moved,
                "fault": None if now is None else saved.as_json(now),
                "saved": saved.as_json(kept.fault),
            }
        )
    else:
        out.print(f"{found.what}, instance '{kept.instance}':")
        if differs:
            out.print("another fault:" if now is not None else "no fault.", style="yellow")
            for line in differs:
                out.print(f"  {line}")
            out.print(_why(changed))
        else:
            out.print("the same fault.")
        if moved:
            text = ", ".join(f"{then} is {at} now" for then, at in moved.items())
            out.print(f"lines have moved: {text}")
        if now is not None:
            out.print()
            show_fault(now)
    raise typer.Exit(2 if differs else 1)


def _differences(kept: Saved, now: Fault | None, lines: Lines) -> list[str]:
    """Why it is not the fault that was saved, in a line or two; nothing where it is: of its kind,
    at its line, by its steps.

    A line is compared by its text, wherever it is; by its number where the text is not known.
    `lines`: those of `now`, where the kernel has changed: otherwise what differs is a comment.
    """
    then = kept.fault
    if now is None:
        return [f"saved: {then.kind} at {then.loc}", "now: the schedule ends without a fault"]
    if then.kind != now.kind:
        return [f"kind saved: {then.kind}\n  kind now: {now.kind}"]
    if not _same_line(then.loc, now.loc, kept.lines, lines):
        return [
            f"line saved: {_quoted(then.loc, kept.lines)}\n  line now: {_quoted(now.loc, lines)}"
        ]
    if not then.steps or not now.steps:
        same = _PLACE.sub("", then.message) == _PLACE.sub("", now.message)
        return [] if same else [f"message saved: {then.message}\n  message now: {now.message}"]
    for number, (a, b) in enumerate(zip_longest(then.steps, now.steps), 1):
        if (
            a is None
            or b is None
            or (a.agent, a.op) != (b.agent, b.op)
            or not _same_line(a.loc, b.loc, kept.lines, lines)
        ):
            return [
                f"step {number} saved: {_step_text(a, kept.lines)}\n  step {number} now:"
                f" {_step_text(b, lines)}"
            ]
    return []


def _same_line(then: str, now: str, before: Lines, after: Lines) -> bool:
    return before[then] == after[now] if then in before and now in after else then == now


def _quoted(loc: str, lines: Lines) -> str:
    return f"{loc}: {lines[loc]}" if loc in lines else loc or "none"


def _step_text(step: Step | None, lines: Lines) -> str:
    return "none" if step is None else f"{step.agent}, {step.op}, {_quoted(step.loc, lines)}"


def _moved(then: Fault, now: Fault) -> dict[str, str]:
    """Lines of one fault that have another number in the other."""
    pairs = [
        (then.loc, now.loc),
        *((a.loc, b.loc) for a, b in zip(then.steps, now.steps, strict=False)),
    ]
    return {a: b for a, b in sorted(pairs) if a != b}


def _answer(now: Fault | None, differs: list[str]) -> str:
    return "none" if now is None else "other" if differs else "same"


def _why(changed: bool) -> str:
    reason = (
        "The kernel has changed since it was saved"
        if changed
        else "The kernel is the same, so its data or tilepipe has changed"
    )
    return f"{reason}; `tilepipe check` says whether it is right now."
