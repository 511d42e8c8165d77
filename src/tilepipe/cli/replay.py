"""`tilepipe replay`: a saved counterexample, on the kernel as it is now."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilepipe.cli.check import story
from tilepipe.cli.common import Json, app, out
from tilepipe.errors import BindError

if TYPE_CHECKING:
    from tilepipe.check import Fault

_FOLDER = re.compile(r"[^\s'(]*[/\\](?=[\w.-]+\.py:\d)")  # messages name files as seen from the present folder
File = Annotated[Path, typer.Argument(metavar="FILE.json", help="What `tilepipe check --save` wrote.")]


@app.command()
def replay(file: File, as_json: Json = False) -> None:
    """Replays a saved counterexample on the simulator.

    Exit 1: the same fault; 2: another or none, since the kernel has changed, or bad usage.
    """
    from dataclasses import replace as but

    from tilepipe import check as checker
    from tilepipe.check.counterexamples import saved
    from tilepipe.check.verdict import Fault
    from tilepipe.cli import programs

    kept = saved.read(file)
    with contextlib.redirect_stdout(sys.stderr):
        found = programs.target(kept.what, kept.settings)
        if not 0 <= kept.number < len(found.instances):
            raise BindError(f"{file} is of instance {kept.number + 1} of {kept.what}, which makes {len(found.instances)} now")
        program = found.instances[kept.number].make()
        changed = saved.digest(program.kernel) != kept.program
        error = checker.replay(program.launch_args, kept.fault.schedule, strict_proxy=kept.strict_proxy)
    now = None if error is None else Fault.of(error)
    differs = _differences(kept.fault, now)
    if as_json:
        report: dict[str, Any] = {
            "kernel": found.what, "config": found.config, "instance": kept.instance, "replayed": _answer(now, differs),
            "changed": changed, "differs": differs, "fault": None if now is None else saved.as_json(now),
            "saved": saved.as_json(kept.fault),
        }  # fmt: skip
        print(json.dumps(report, ensure_ascii=False))
    else:
        out.print(f"{found.what}, instance '{kept.instance}':", markup=False)
        if not differs:
            out.print("the same fault.\n")
            story(kept.fault if now is None else but(now, steps=kept.fault.steps, left_out=kept.fault.left_out))
        else:
            out.print("another fault:" if now is not None else "no fault.", style="yellow")
            for line in differs:
                out.print(f"  {line}", markup=False)
            out.print(_why(changed))
            if now is not None:
                out.print()
                story(now)
    raise typer.Exit(2 if differs else 1)


def _differences(then: Fault, now: Fault | None) -> list[str]:
    """What is not as it was saved, in a line each."""
    if now is None:
        return [f"saved: {then.kind} at {then.loc}", "now: the schedule ends without a fault"]
    pairs = (("kind", then.kind, now.kind), ("line", then.loc, now.loc), ("message", then.message, now.message))
    return [f"{name} saved: {a}\n  {name} now: {b}" for name, a, b in pairs if _FOLDER.sub("", a) != _FOLDER.sub("", b)]


def _answer(now: Fault | None, differs: list[str]) -> str:
    return "none" if now is None else "other" if differs else "same"


def _why(changed: bool) -> str:
    if changed:
        return "The kernel has changed since it was saved; `tilepipe check` says whether it is right now."
    return "The traced kernel is the same, so its data or tilepipe has changed; `tilepipe check` says whether it is right now."
