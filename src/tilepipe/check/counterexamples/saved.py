"""Counterexamples in files: what to run, the schedule, and the fault that it ends in. JSON, and
read as such: nothing in it is executed.
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
from tilepipe.check.verdict import Fault, ScheduleStep, Step
from tilepipe.errors import BindError
from tilepipe.ir import printer
from tilepipe.ir.program import Kernel, all_ops
from tilepipe.machine.rules import Rules, require_rules

FORMAT = "tilepipe counterexample"
VERSION = 1
_SCHEDULE_FIELDS = ScheduleStep._fields
_STEP = tuple(f.name for f in fields(Step))
# also of one that is damaged
_HEAD = re.compile(rb'\s*\{.*"format"\s*:\s*"' + FORMAT.encode() + b'"', re.DOTALL)


@dataclass(frozen=True)
class Saved:
    """A counterexample.

    Attributes:
        what: a shipped kernel, or FILE.py:NAME. settings: `name=value` texts. number: of the
            instance among those that they make.
        instance: in words. program: `digest` of the kernel. lines: "gemm.py:31" -> the text of that
            line, of those that the fault names.
    """

    what: str
    settings: tuple[str, ...]
    number: int
    instance: str
    rules: Rules
    program: str
    fault: Fault
    lines: Mapping[str, str] = field(default_factory=dict)


def digest(kernel: Kernel) -> str:
    """A kernel's printed ops, with their lines, in 16 digits: two that differ have changed in
    between.
    """
    return hashlib.sha256(printer.text(kernel).encode()).hexdigest()[:16]


def lines(kernel: Kernel, fault: Fault) -> dict[str, str]:
    """The text of each line of the kernel that a fault and its steps name, where Python has it."""
    named = {fault.loc, *(step.loc for step in fault.steps)}
    found = {op.loc.short: op.loc.source for op in all_ops(kernel) if op.loc.short in named}
    return {loc: found[loc] for loc in sorted(found) if found[loc]}


def as_json(fault: Fault) -> dict[str, Any]:
    """A fault with its story."""
    return {
        "kind": fault.kind,
        "message": fault.message,
        "at": fault.loc,
        "left_out": fault.left_out,
        "steps": [{name: getattr(step, name) for name in _STEP} for step in fault.steps],
    }


def probe(path: Path) -> None:
    """Sees to it, before what may take hours, that `write` can write there, and over nothing but a
    counterexample.

    Raises:
        BindError: it cannot be written, or is there already and something else. An empty file may
            be overwritten.
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
    """Writes the file; a kernel's file is named relative to it. What is there already is
    overwritten: see `probe`.

    Raises:
        BindError: it cannot be written.
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
            "picks": list(_SCHEDULE_FIELDS),
            "schedule": [
                [getattr(pick, name) for name in _SCHEDULE_FIELDS] for pick in saved.fault.schedule
            ],
        }
        text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        # what is no UTF-8 becomes what JSON writes for it
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise BindError(f"cannot write {path}: {error.strerror}") from None


def read(path: Path) -> Saved:
    """What `write` wrote.

    Raises:
        BindError: there is no such file, it is none of these, of another version, or damaged.
    """
    try:
        report = json.loads(files.read(path).decode())
    except OSError as error:
        raise BindError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
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
                f"{path} is of version {report['version']}; this tilepipe reads version"
                f" {VERSION}. {again}"
            )
        return _parsed(report, path.resolve().parent)
    except _Damaged as error:
        raise BindError(f"{path} is damaged: {error}. {again}") from None


class _Damaged(Exception):
    pass


def _parsed(report: Mapping[str, Any], folder: Path) -> Saved:
    told = _field(report, "fault", dict)
    steps = tuple(
        Step(*(_field(_is(step, dict, "a step"), name, str) for name in _STEP))
        for step in _field(told, "steps", list)
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
        _field(told, "kind", str),
        _field(told, "message", str),
        _field(told, "at", str),
        tuple(schedule),
        steps,
        _count(told, "left_out"),
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
    )


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
