"""Saved counterexamples: a file with what to run, the schedule, and the fault in which it ends.

The file is JSON and is only read as data: nothing in it is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tilepipe import files
from tilepipe.check.choose_front_end import AnyLaunch, front_end_of
from tilepipe.check.verdict import Fault, ScheduleStep, Step
from tilepipe.errors import BindError
from tilepipe.machine.rules import Rules, require_rules

FORMAT = "tilepipe counterexample"
VERSION = 1
_SCHEDULE_FIELDS = ScheduleStep._fields
_STEP = tuple(f.name for f in fields(Step))
# also matches a damaged file
_HEAD = re.compile(rb'\s*\{.*"format"\s*:\s*"' + FORMAT.encode() + b'"', re.DOTALL)


@dataclass(frozen=True)
class Saved:
    """A counterexample, and how to make the launch that it belongs to.

    Attributes:
        what: a shipped kernel, or FILE.py:NAME.
        settings: its settings, as `name=value`.
        number: the index of the instance among those of the kernel with these settings.
        instance: the name of the instance.
        rules: the rules under which it was checked.
        program: `digest` of the kernel.
        fault: the fault with its schedule.
        lines: "gemm.py:31" -> the text of that line, for each line that the fault names.
        source: "program", or "ptx" where the PTX of a program's printed CUDA was checked.
    """

    what: str
    settings: tuple[str, ...]
    number: int
    instance: str
    rules: Rules
    program: str
    fault: Fault
    lines: Mapping[str, str] = field(default_factory=dict)
    source: str = "program"


def digest(launch: AnyLaunch) -> str:
    """A digest of the program that is launched, its text and its lines, in 16 digits."""
    text = front_end_of(launch, "practice").text
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def lines(launch: AnyLaunch, fault: Fault) -> dict[str, str]:
    """The text of each line of the program that a fault and its steps name, if it is available."""
    named = {fault.loc, *(step.loc for step in fault.steps)}
    found = front_end_of(launch, "practice").lines
    return {loc: text for loc, text in sorted(found.items()) if loc in named}


def as_json(fault: Fault) -> dict[str, Any]:
    """A fault with its steps as JSON data."""
    return {
        "kind": fault.kind,
        "message": fault.message,
        "at": fault.loc,
        "left_out": fault.left_out,
        "steps": [{name: getattr(step, name) for name in _STEP} for step in fault.steps],
    }


def probe(path: Path) -> None:
    """Checks, before a check that may take hours, that `write` can write to this path, and
    overwrites at most an older counterexample.

    Raises:
        BindError: the file cannot be written, or exists and is something else. An empty file may be
            overwritten.
    """
    if str(path) == "-":
        raise BindError(
            "--save takes the name of a file, and - is none; --json has the counterexample on"
            " stdout"
        )
    try:
        target = path.resolve()
        if target.is_dir():
            raise BindError(f"cannot write {path}: it is a folder; name a file")
        if not target.parent.is_dir():
            raise BindError(f"cannot write {path}: there is no such folder")
        if not target.exists():
            target.open("xb").close()
            target.unlink()
            return
        if not target.is_file():
            raise BindError(f"cannot write {path}: it is no ordinary file")
        with target.open("r+b") as file:
            head = file.read(4096)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise BindError(
            f"cannot write {path}: {getattr(error, 'strerror', None) or error}"
        ) from None
    if head and not _HEAD.match(head):
        raise BindError(
            f"{path} is there already, and no counterexample: it is not overwritten. Name another"
            " file, or remove that one"
        )


def write(path: Path, saved: Saved) -> None:
    """Writes the file, and overwrites an existing one: see `probe`. The path of a kernel's file is
    relative to it.

    Raises:
        BindError: the file cannot be written.
    """
    try:
        file, colon, name = saved.what.rpartition(":")
        what = f"{os.path.relpath(file, path.resolve().parent)}:{name}" if colon else saved.what
        report = {
            "format": FORMAT,
            "version": VERSION,
            "what": what,
            "settings": list(saved.settings),
            "number": saved.number,
            "instance": saved.instance,
            "rules": saved.rules,
            "program": saved.program,
            "fault": as_json(saved.fault),
            "lines": dict(saved.lines),
            "from": saved.source,
            "picks": list(_SCHEDULE_FIELDS),
            "schedule": [
                [getattr(pick, name) for name in _SCHEDULE_FIELDS] for pick in saved.fault.schedule
            ],
        }
        text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        # characters that UTF-8 cannot encode become JSON escapes
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise BindError(f"cannot write {path}: {error.strerror}") from None


def read(path: Path) -> Saved:
    """Reads what `write` has written.

    Raises:
        BindError: there is no such file, it is no counterexample, has another version, or is
            damaged.
    """
    try:
        report = files.parsed_json(files.read(path).decode())
    except OSError as error:
        raise BindError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise BindError(f"{path} is no saved counterexample, or cut short: {error}") from None
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise BindError(
            f"{path} is no saved counterexample: `tilepipe check KERNEL --save FILE.json` writes"
            " them"
        )
    what = report.get("what")
    again = (
        f"Have it found again: tilepipe check {what if isinstance(what, str) else '...'} --save"
        f" {path}"
    )
    try:
        if _field(report, "version", int) != VERSION:
            raise BindError(
                f"{path} is of version {report['version']}; this tilepipe reads version {VERSION}."
                f" {again}"
            )
        return _parsed(report, path.resolve().parent)
    except _Damaged as error:
        raise BindError(f"{path} is damaged: {error}. {again}") from None


class _Damaged(Exception):
    pass


def _parsed(report: Mapping[str, Any], folder: Path) -> Saved:
    fault_data = _field(report, "fault", dict)
    steps = tuple(
        Step(*(_field(_is(step, dict, "a step"), name, str) for name in _STEP))
        for step in _field(fault_data, "steps", list)
    )
    if _field(report, "picks", list) != list(_SCHEDULE_FIELDS):
        raise _Damaged(f"'picks' is {report['picks']}, not {list(_SCHEDULE_FIELDS)}")
    schedule = []
    for row in _field(report, "schedule", list):
        numbers = [
            _is(n, int, "an entry of the schedule")
            for n in _is(row, list, "an entry of the schedule")
        ]
        if len(numbers) != len(_SCHEDULE_FIELDS):
            raise _Damaged(
                f"an entry of the schedule has {len(_SCHEDULE_FIELDS)} numbers, not {len(numbers)}"
            )
        schedule.append(ScheduleStep(*numbers))
    fault = Fault(
        _field(fault_data, "kind", str),
        _field(fault_data, "message", str),
        _field(fault_data, "at", str),
        tuple(schedule),
        steps,
        _count(fault_data, "left_out"),
    )
    what = _field(report, "what", str)
    file, colon, name = what.rpartition(":")
    return Saved(
        f"{os.path.relpath(folder / file)}:{name}" if colon else what,
        tuple(_is(x, str, "a setting") for x in _field(report, "settings", list)),
        _count(report, "number"),
        _field(report, "instance", str),
        _rules(report),
        _field(report, "program", str),
        fault,
        {loc: _is(text, str, f"line {loc}") for loc, text in _field(report, "lines", dict).items()},
        _source(report),
    )


def _source(report: Mapping[str, Any]) -> str:
    source: str = _is(report.get("from", "program"), str, "'from'")
    if source not in ("program", "ptx"):
        raise _Damaged(f"'from' is '{source}', neither 'program' nor 'ptx'")
    return source


def _rules(report: Mapping[str, Any]) -> Rules:
    given = _field(report, "rules", str)
    try:
        return require_rules(given)
    except BindError as error:
        raise _Damaged(str(error)) from None


def _field(report: Mapping[str, Any], name: str, kind: type) -> Any:
    if name not in report:
        raise _Damaged(f"'{name}' is missing")
    return _is(report[name], kind, f"'{name}'")


def _count(report: Mapping[str, Any], name: str) -> int:
    value: int = _field(report, name, int)
    if value < 0:
        raise _Damaged(f"'{name}' is {value}, which is negative")
    return value


def _is(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise _Damaged(
            f"{what} is {indefinite(type(value).__name__)}, not {indefinite(kind.__name__)}"
        )
    return value


def indefinite(name: str) -> str:
    """The name of a type with its article: "an int", "a str"."""
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"
