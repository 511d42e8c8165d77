"""Configurations that `tilepipe tune` has measured to be the fastest, remembered in one file that
people can read.

    TILEPIPE_TUNED   the file; `$XDG_CONFIG_HOME/tilepipe/tuned.json` or
    `~/.config/tilepipe/tuned.json` unless set;
                     "off" for none

JSON, one entry for each kernel, problem and chip. An entry's name is the chip, the kernel (left out
for `gemm`), and those fields of the problem that are not at their defaults; its "config" holds
fields of the kernel's configuration, and what stands beside it says how it was measured:

    "H200: m=4096 n=4096 k=4096": {"config": {"bm": 128, "bn": 256, ...}, "date": "2026-11-21",
    "us": 172.9}
    "H200: attention_decode batch=16 tokens=1 ...": {"config": {"bn": 64, ...}, ...}
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import tilepipe as tp
from tilepipe import files
from tilepipe.kernels.common import tuned_names
from tilepipe.kernels.common.settings import Settings
from tilepipe.kernels.common.tunable import Tunable

P = TypeVar("P")
C = TypeVar("C", bound=Settings)


class TunedFileWarning(UserWarning):
    """The file of tuned configurations, or an entry of it, cannot be used."""


@dataclass(frozen=True)
class Entries:
    """The entries of one kernel, by name. `configs`: of those that can be used. `problems`: what is
    wrong with the others, with its line.
    """

    configs: dict[str, Any] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class File:
    """What a file holds. `raw`: its entries as they stand there. `twice`: names that stand there
    more than once. `broken`: why the file as a whole is not what it should be, or "".
    """

    path: Path | None = None
    text: str = ""
    raw: dict[str, Any] = field(default_factory=dict)
    twice: frozenset[str] = frozenset()
    broken: str = ""
    _of: dict[str, Entries] = field(default_factory=dict)

    def of(self, tunable: Tunable[Any, Any]) -> Entries:
        """The entries of a kernel, read once."""
        found = self._of.get(tunable.kernel)
        if found is None:
            mine = {
                name: x
                for name, x in self.raw.items()
                if tuned_names.kernel_of(name) == tunable.kernel
            }
            found = self._of[tunable.kernel] = self._read(mine, tunable)
        return found

    def others(self, known: Sequence[str]) -> dict[str, str]:
        """What is wrong with entries of kernels that are not `known`, by name."""
        kernels = {name: tuned_names.kernel_of(name) for name in self.raw}
        return {
            name: self.ignored(name, f"there is no kernel {kernel!r} that is tuned")
            for name, kernel in kernels.items()
            if kernel not in known
        }

    def _read(self, mine: Mapping[str, Any], tunable: Tunable[Any, C]) -> Entries:
        found = Entries()
        for name, value in mine.items():
            try:
                if name in self.twice:
                    raise tp.BindError("it stands there more than once")
                tuned_names.problem_of(name, tunable)
                found.configs[name] = _config(value, tunable)
            except tp.BindError as error:
                found.problems[name] = self.ignored(name, str(error))
        return found

    def ignored(self, name: str, why: str) -> str:
        """The sentence that an entry is ignored, with its line."""
        import json  # here and below: `import tilepipe` reads no file and pays for none

        at = self.text.find(json.dumps(name, ensure_ascii=False))
        line = self.text.count("\n", 0, max(at, 0)) + 1
        return f"{self.path}:{line}: {name!r} is ignored: {why}"


_NOTHING = File()
_State = tuple[str, int, int, int]  # path, time of its last change in ns, size, inode
_last: tuple[_State, File] | None = None
_warned: set[str] = set()  # kernels and entries of `_last` that have been complained of
_unused: contextvars.ContextVar[bool] = contextvars.ContextVar("unused", default=False)


@contextlib.contextmanager
def unused() -> Iterator[None]:
    """While it lasts, nothing is remembered: configurations are the heuristics'."""
    token = _unused.set(True)
    try:
        yield
    finally:
        _unused.reset(token)


def location() -> Path | None:
    """The file; None where there is no place for one."""
    said = os.environ.get("TILEPIPE_TUNED")
    if said == "off":
        return None
    if said:
        return Path(said)
    directory = files.user_directory("XDG_CONFIG_HOME", ".config")
    return None if directory is None else directory / "tuned.json"


def choose(tunable: Tunable[P, C], problem: P, chip: tp.Chip) -> C:
    """The configuration for a problem: what is remembered, or what the heuristic picks."""
    return lookup(tunable, problem, chip) or tunable.best(problem, chip)


def lookup(tunable: Tunable[P, C], problem: P, chip: tp.Chip) -> C | None:
    """The configuration remembered for a kernel's problem; None if there is none.

    Costs one stat of the file; it is read once after each change. What cannot be used in it is
    ignored, with one `TunedFileWarning` for each reading: of what no kernel could use, and of each
    entry that breaks a rule of its problem.
    """
    file = _current()
    if _unused.get():
        return None
    if not file.raw:
        if file.broken and file.broken not in _warned:
            _warned.add(file.broken)
            text = f"{file.broken}. The file is ignored"
            warnings.warn(text, TunedFileWarning, stacklevel=4)
        return None
    found = file.of(tunable)
    if found.problems and tunable.kernel not in _warned:
        _warned.add(tunable.kernel)
        warnings.warn("; ".join(found.problems.values()), TunedFileWarning, stacklevel=4)
    if not found.configs:
        return None
    name = tunable.entry(problem, chip)
    config: C | None = found.configs.get(name)
    if config is None:
        return None
    try:
        tunable.check(config, problem, chip)
    except (tp.BindError, tp.LimitError) as error:
        if name not in _warned:
            _warned.add(name)
            warnings.warn(file.ignored(name, str(error)), TunedFileWarning, stacklevel=4)
        return None
    return config


def entries(
    tunables: Sequence[Tunable[Any, Any]], of: str | None = None
) -> tuple[dict[str, tuple[Settings, dict[str, Any]]], list[str]]:
    """Every entry of these kernels that can be used: name -> its configuration, and what it says
    about how it was measured; and what is wrong with the others, each with its line. `of`: the
    kernel whose entries are wanted alone.
    """
    file = _current()
    configs, problems = _usable(file, tunables)
    if of is not None:
        configs = {name: x for name, x in configs.items() if tuned_names.kernel_of(name) == of}
        problems = {name: x for name, x in problems.items() if tuned_names.kernel_of(name) == of}
    found = {
        name: (config, {k: v for k, v in file.raw[name].items() if k != "config"})
        for name, config in configs.items()
    }
    broken = [file.broken] if file.broken else []
    return dict(sorted(found.items())), [*broken, *problems.values()]


def chips() -> list[str]:
    """The names of the chips that the file has entries of, sorted; also of entries that cannot be
    used.

    Raises:
        BindError: the file as a whole cannot be used.
    """
    if _current().broken:
        raise tp.BindError(_current().broken)
    return sorted({tuned_names.chip_of(name) for name in _current().raw if ": " in name})


def remember(
    tunable: Tunable[P, C], problem: P, chip: tp.Chip, config: C, facts: Mapping[str, Any]
) -> Path:
    """Writes an entry, in place of one for the same problem and chip; what other processes write
    meanwhile stays.

    Raises:
        BindError: there is no such place, it cannot be written, or what is there is not a file of
            this kind.
    """
    name = tunable.entry(problem, chip)
    return _edit(lambda here: here.raw | {name: dict(facts) | {"config": config.as_dict()}})


def merge(other: Path, tunables: Sequence[Tunable[Any, Any]]) -> tuple[int, int, list[str]]:
    """Takes over the entries of another file, such as one of another machine with the same chip;
    an entry that stands here already stays, unless it cannot be used. Entries name their chip, so
    those of several chips may stand in one file.

    Returns:
        How many were taken, how many stood here already and stay, and what is wrong, each with its
        line: with those of the other file that cannot be used, and with those here that were
        replaced.

    Raises:
        BindError: as `remember`, or the other file as a whole cannot be used.
    """
    file = _read(other)
    if file.broken:
        raise tp.BindError(file.broken)
    usable, problems = _usable(file, tunables)
    known = 0

    def with_others(here: File) -> dict[str, Any]:
        nonlocal known
        stay, wrong = _usable(here, tunables)
        known = len(usable.keys() & stay.keys())
        for name in usable.keys() & wrong.keys():
            problems[name] = f"{wrong[name]}; the entry of {other} takes its place"
        return here.raw | {name: file.raw[name] for name in usable if name not in stay}

    if usable:
        _edit(with_others)
    return len(usable) - known, known, list(problems.values())


def forget(chip: tp.Chip, kernel: str | None = None, name: str | None = None) -> int:
    """Removes an entry, all entries of a kernel, or all of the chip; returns how many.

    Args:
        kernel: whose entries; None: those of all. name: the one entry that is removed.

    Raises:
        BindError: as `remember`.
    """
    gone: set[str] = set()

    def is_meant(entry: str) -> bool:
        if name is not None:
            return entry == name
        mine = entry.startswith(f"{chip.name}: ")
        return mine and (kernel is None or tuned_names.kernel_of(entry) == kernel)

    def without(here: File) -> dict[str, Any]:
        gone.update(filter(is_meant, here.raw))
        return {entry: value for entry, value in here.raw.items() if entry not in gone}

    path = location()
    if path is not None and path.exists():
        _edit(without)
    return len(gone)


def _usable(
    file: File, tunables: Sequence[Tunable[Any, Any]]
) -> tuple[dict[str, Settings], dict[str, str]]:
    """The entries of these kernels that can be used, by name; and what is wrong with all others,
    each with its line. Whether there is such a problem, of 3 heads beside 2, is not asked.
    """
    configs: dict[str, Settings] = {}
    problems: dict[str, str] = {}
    for tunable in tunables:
        found = file.of(tunable)
        problems |= found.problems
        for name, config in found.configs.items():
            try:
                # Tuning is for Hopper, whose chips have the same limits for a CTA.
                chip = replace(tp.H200, name=tuned_names.chip_of(name))
                tunable.check(config, tuned_names.problem_of(name, tunable), chip)
                configs[name] = config
            except (tp.BindError, tp.LimitError) as error:
                problems[name] = file.ignored(name, str(error))
    return configs, problems | file.others([tunable.kernel for tunable in tunables])


@functools.lru_cache(maxsize=16)
def _location(*environment: str | None) -> str | None:
    """`location()`, found once for what the environment says: it is asked for each shape."""
    path = location()
    return None if path is None else str(path)


def _current() -> File:
    """The contents of the file now; read again only where it has changed."""
    global _last
    path = _location(*map(os.environ.get, ("TILEPIPE_TUNED", "XDG_CONFIG_HOME", "HOME")))
    if path is None:
        return _NOTHING
    try:
        now = os.stat(path)
    except OSError:
        return _NOTHING  # no file, usually
    state = path, now.st_mtime_ns, now.st_size, now.st_ino
    last = _last
    if last is not None and last[0] == state:
        return last[1]
    found = _read(Path(path))
    _last = state, found
    _warned.clear()
    return found


def _read(path: Path) -> File:
    import json

    twice: set[str] = set()

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        twice.update(name for name, count in counts.items() if count > 1)
        return dict(pairs)

    try:
        text = files.read(path).decode()
        raw = files.parsed_json(text, once)
    except OSError as error:
        return File(broken=f"{path}: {error.strerror}")
    except UnicodeDecodeError:
        return File(broken=f"{path}: it is not UTF-8")
    except json.JSONDecodeError as error:
        return File(broken=f"{path}:{error.lineno}: it is not JSON: {error.msg}")
    except ValueError as error:  # nested too deeply, or a number of thousands of digits
        return File(broken=f"{path}:1: {error}")
    if not isinstance(raw, dict):
        return File(broken=f"{path}:1: it must be an object of entries")
    return File(path, text, raw, frozenset(twice))


def _config(value: Any, tunable: Tunable[Any, C]) -> C:
    """Raises BindError unless it is an entry."""
    settings = value.get("config") if isinstance(value, dict) else None
    if not isinstance(settings, dict):
        raise tp.BindError('it has no object "config"')
    names = set(tunable.config.names())
    unknown = sorted(settings.keys() - names)
    if unknown:
        raise tp.BindError(
            f"unknown setting {', '.join(unknown)}; there are {', '.join(sorted(names))}"
        )
    found = tunable.config(**settings)
    default = tunable.config()
    for name in tunable.computes:
        if getattr(found, name) != getattr(default, name):
            raise tp.BindError(f"{name} says what is computed, and is not tuned; leave it out")
    return found


def _edit(change: Callable[[File], dict[str, Any]]) -> Path:
    """Replaces the entries by what `change` makes of them, under a lock."""
    import json

    path = location()
    if path is None:
        raise tp.BindError(
            "there is no file of tuned configurations: TILEPIPE_TUNED is off, or there is no home"
            " directory"
        )
    path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.locked(path.with_name(f".{path.name}.lock")):
            found = _read(path) if path.exists() else _NOTHING
            if found.broken:
                raise tp.BindError(
                    f"{found.broken}. It is left as it is: correct it or move it away."
                )
            entries = change(found)
            text = json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
            files.write_atomically(path, text.encode(), mode)
    except OSError as error:
        raise tp.BindError(f"cannot write {path}: {error.strerror}") from None
    return path
