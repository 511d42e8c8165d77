"""Counterexamples in files: what to run, the schedule, and the fault that it ends in. JSON, and read as such: nothing in it is executed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tilepipe.check.verdict import Fault, Pick, Step
from tilepipe.errors import BindError
from tilepipe.ir import printer
from tilepipe.ir.program import Kernel

FORMAT = "tilepipe counterexample"
VERSION = 1
_PICK = Pick._fields
_STEP = tuple(f.name for f in fields(Step))


@dataclass(frozen=True)
class Saved:
    """A counterexample.

    Attributes:
        what: a shipped kernel, or FILE.py:NAME. settings: `name=value` texts. number: of the instance among those that they make.
        instance: in words. program: `digest` of the kernel.
    """

    what: str
    settings: tuple[str, ...]
    number: int
    instance: str
    strict_proxy: bool
    program: str
    fault: Fault


def digest(kernel: Kernel) -> str:
    """A kernel's printed ops, with their lines, in 16 digits: two that differ have changed in between."""
    return hashlib.sha256(printer.text(kernel).encode()).hexdigest()[:16]


def as_json(fault: Fault) -> dict[str, Any]:
    """A fault with its story."""
    return {
        "kind": fault.kind, "message": fault.message, "at": fault.loc, "left_out": fault.left_out,
        "steps": [{name: getattr(step, name) for name in _STEP} for step in fault.steps],
    }  # fmt: skip


def write(path: Path, saved: Saved) -> None:
    """Writes the file; a kernel's file is named relative to it.

    Raises:
        BindError: it cannot be written.
    """
    file, colon, name = saved.what.rpartition(":")
    what = f"{os.path.relpath(file, path.resolve().parent)}:{name}" if colon else saved.what
    report = {
        "format": FORMAT, "version": VERSION, "what": what, "settings": list(saved.settings), "number": saved.number,
        "instance": saved.instance, "strict_proxy": saved.strict_proxy, "program": saved.program, "fault": as_json(saved.fault),
        "picks": list(_PICK), "schedule": [[getattr(pick, name) for name in _PICK] for pick in saved.fault.schedule],
    }  # fmt: skip
    try:
        path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise BindError(f"cannot write {path}: {error.strerror}") from None


def read(path: Path) -> Saved:
    """What `write` wrote.

    Raises:
        BindError: there is no such file, it is none of these, of another version, or damaged.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BindError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BindError(f"{path} is no saved counterexample, or cut short: {error}") from None
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise BindError(f"{path} is no saved counterexample: `tilepipe check KERNEL --save FILE.json` writes them")
    if report.get("version") != VERSION or report.get("picks") != list(_PICK):
        raise BindError(
            f"{path} is of version {report.get('version')!r}; this tilepipe reads version {VERSION}. Have it found again:"
            f" tilepipe check {report.get('what')} --save {path}"
        )
    try:
        return _parsed(report, path.resolve().parent)
    except _Damaged as error:
        raise BindError(f"{path} is damaged: {error}. Have it found again: tilepipe check ... --save {path}") from None


class _Damaged(Exception):
    pass


def _parsed(report: Mapping[str, Any], folder: Path) -> Saved:
    told = _field(report, "fault", dict)
    steps = tuple(Step(*(_field(_is(step, dict, "a step"), name, str) for name in _STEP)) for step in _field(told, "steps", list))
    schedule = []
    for row in _field(report, "schedule", list):
        numbers = [_is(n, int, "an entry of the schedule") for n in _is(row, list, "an entry of the schedule")]
        if len(numbers) != len(_PICK):
            raise _Damaged(f"an entry of the schedule has {len(_PICK)} numbers, not {len(numbers)}")
        schedule.append(Pick(*numbers))
    fault = Fault(
        _field(told, "kind", str), _field(told, "message", str), _field(told, "at", str), tuple(schedule), steps,
        _field(told, "left_out", int),
    )  # fmt: skip
    what = _field(report, "what", str)
    file, colon, name = what.rpartition(":")
    return Saved(
        f"{os.path.relpath(folder / file)}:{name}" if colon else what,
        tuple(_is(x, str, "a setting") for x in _field(report, "settings", list)),
        _field(report, "number", int), _field(report, "instance", str), _field(report, "strict_proxy", bool),
        _field(report, "program", str), fault,
    )  # fmt: skip


def _field(report: Mapping[str, Any], name: str, kind: type) -> Any:
    if name not in report:
        raise _Damaged(f"'{name}' is missing")
    return _is(report[name], kind, f"'{name}'")


def _is(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise _Damaged(f"{what} is a {type(value).__name__}, not a {kind.__name__}")
    return value
