"""Configurations that `tilepipe tune` has measured to be the fastest, remembered in one file that
people can read.

    TILEPIPE_TUNED   the file; `$XDG_CONFIG_HOME/tilepipe/tuned.json` or
    `~/.config/tilepipe/tuned.json` unless set;
                     "off" for none

JSON, one entry for each problem and chip. An entry's name is the chip and those fields of the
problem that are not at their defaults; its "config" holds fields of `GemmConfig`, and what stands
beside it says how it was measured:

    "H200: m=4096 n=4096 k=4096": {"config": {"bm": 128, "bn": 256, ...}, "date": "2026-11-21",
    "us": 172.9}
"""

from __future__ import annotations

import functools
import os
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import tilepipe as tp
from tilepipe import files
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.model import Problem, smem_bytes

_FIELDS = set(GemmConfig.names())


class TunedFileWarning(UserWarning):
    """The file of tuned configurations, or an entry of it, cannot be used."""


@dataclass(frozen=True)
class Tuned:
    """What a file holds. `raw`: its entries as they stand there. `configs`: those that can be used.
    `problems`: what is wrong, each with its line. `broken`: the file as a whole is not what it
    should be.
    """

    raw: dict[str, Any] = field(default_factory=dict)
    configs: dict[str, GemmConfig] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    broken: bool = False


_NOTHING = Tuned()
_State = tuple[str, int, int, int]  # path, time of its last change in ns, size, inode
_last: tuple[_State, Tuned] | None = None


def location() -> Path | None:
    """The file; None where there is no place for one."""
    said = os.environ.get("TILEPIPE_TUNED")
    if said == "off":
        return None
    if said:
        return Path(said)
    directory = files.user_directory("XDG_CONFIG_HOME", ".config")
    return None if directory is None else directory / "tuned.json"


def entry(problem: Problem, chip: tp.Chip) -> str:
    """The name of an entry."""
    parts = [
        f"{f.name}={value}"
        for f in fields(problem)
        if (value := getattr(problem, f.name)) != f.default
    ]
    return f"{chip.name}: {' '.join(parts)}"


def lookup(problem: Problem, chip: tp.Chip) -> GemmConfig | None:
    """The configuration remembered for a problem; None if there is none.

    Costs one stat of the file; it is read once after each change. What cannot be used in it is
    ignored, with one `TunedFileWarning` for each reading.
    """
    found = _current()
    config = found.configs.get(entry(problem, chip)) if found.configs else None
    if config is None:
        return None
    needed = smem_bytes(config, problem.dtype)
    if needed <= chip.smem_per_cta:
        return config
    text = f"it needs {needed:,} bytes of shared memory, {chip.name} has {chip.smem_per_cta:,}"
    warnings.warn(
        f"{location()}: '{entry(problem, chip)}' is ignored: {text}", TunedFileWarning, stacklevel=3
    )
    return None


def entries() -> dict[str, tuple[GemmConfig, dict[str, Any]]]:
    """Every entry that can be used: name -> its configuration, and what it says about how it was
    measured.
    """
    found = _current()
    return {
        name: (config, {k: v for k, v in found.raw[name].items() if k != "config"})
        for name, config in found.configs.items()
    }


def chips() -> list[str]:
    """The names of the chips that the file has entries of, sorted; also of entries that cannot be
    used.
    """
    return sorted({name.partition(": ")[0] for name in _current().raw if ": " in name})


def remember(problem: Problem, chip: tp.Chip, config: GemmConfig, facts: Mapping[str, Any]) -> Path:
    """Writes an entry, in place of one for the same problem and chip; what other processes write
    meanwhile stays.

    Raises:
        BindError: there is no such place, it cannot be written, or what is there is not a file of
            this kind.
    """
    return _edit(
        lambda raw: raw | {entry(problem, chip): dict(facts) | {"config": config.as_dict()}}
    )


def merge(other: Path) -> tuple[int, int, list[str]]:
    """Takes over the entries of another file, such as one of another machine with the same chip;
    an entry that stands here already stays. Entries name their chip, so those of several chips may
    stand in one file.

    Returns:
        How many were taken, how many stood here already, and what is wrong with those of the other
        file that cannot be used, each with its line.

    Raises:
        BindError: as `remember`, or the other file as a whole cannot be used.
    """
    found = _read(other)
    if found.broken:
        raise tp.BindError(found.problems[0])
    known = 0

    def with_others(raw: dict[str, Any]) -> dict[str, Any]:
        nonlocal known
        known = len(found.configs.keys() & raw.keys())
        return {name: found.raw[name] for name in found.configs} | raw

    if found.configs:
        _edit(with_others)
    return len(found.configs) - known, known, found.problems


def forget(problem: Problem | None, chip: tp.Chip) -> int:
    """Removes the entry for a problem, or all entries of the chip; returns how many.

    Raises:
        BindError: as `remember`.
    """
    mine = f"{chip.name}: "
    gone: set[str] = set()

    def without(raw: dict[str, Any]) -> dict[str, Any]:
        gone.update(
            name
            for name in raw
            if (name.startswith(mine) if problem is None else name == entry(problem, chip))
        )
        return {name: value for name, value in raw.items() if name not in gone}

    path = location()
    if path is not None and path.exists():
        _edit(without)
    return len(gone)


@functools.lru_cache(maxsize=16)
def _location(*environment: str | None) -> str | None:
    """`location()`, found once for what the environment says: it is asked for each shape."""
    path = location()
    return None if path is None else str(path)


def _current() -> Tuned:
    """What the file holds now."""
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
    if found.problems:
        warnings.warn("; ".join(found.problems), TunedFileWarning, stacklevel=3)
    return found


def _read(path: Path) -> Tuned:
    import json  # here and below: `import tilepipe` reads no file and pays for none

    twice: set[str] = set()

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        twice.update(name for name, count in counts.items() if count > 1)
        return dict(pairs)

    try:
        text = files.read(path).decode()
        raw = files.parsed_json(text, once)
    except OSError as error:
        return Tuned(problems=[f"{path}: {error.strerror}"], broken=True)
    except UnicodeDecodeError:
        return Tuned(problems=[f"{path}: ignored, it is not UTF-8"], broken=True)
    except json.JSONDecodeError as error:
        return Tuned(
            problems=[f"{path}:{error.lineno}: ignored, it is not JSON: {error.msg}"], broken=True
        )
    except ValueError as error:  # nested too deeply, or a number of thousands of digits
        return Tuned(problems=[f"{path}:1: ignored, {error}"], broken=True)
    if not isinstance(raw, dict):
        return Tuned(problems=[f"{path}:1: ignored, it must be an object of entries"], broken=True)
    configs, problems = {}, []
    for name, value in raw.items():
        try:
            if name in twice:
                raise tp.BindError("it stands there more than once")
            _check_name(name)
            configs[name] = _config(value)
        except tp.BindError as error:
            at = text.find(json.dumps(name, ensure_ascii=False))
            problems.append(
                f"{path}:{text.count(chr(10), 0, max(at, 0)) + 1}: {name!r} is ignored: {error}"
            )
    return Tuned(raw, configs, problems)


def _check_name(name: str) -> None:
    """Raises BindError unless `entry` could have made the name."""
    chip, _, rest = name.partition(": ")
    words = [word.partition("=") for word in rest.split(" ")]
    order = [f.name for f in fields(Problem)]
    named = [word for word, _, _ in words]
    known = [word for word in order if word in named]
    extents = {word: value for word, _, value in words if word in ("m", "n", "k", "batch")}
    right = (
        name.isprintable()
        and chip != ""
        and named == known
        and {"m", "n", "k"} <= extents.keys()
        and all(value.isascii() and value.isdigit() and int(value) for value in extents.values())
    )
    if not right:
        raise tp.BindError("an entry is named as 'H200: m=4096 n=4096 k=4096', extents first")


def _config(value: Any) -> GemmConfig:
    """Raises BindError unless it is an entry."""
    settings = value.get("config") if isinstance(value, dict) else None
    if not isinstance(settings, dict):
        raise tp.BindError('it has no object "config"')
    unknown = sorted(settings.keys() - _FIELDS)
    if unknown:
        raise tp.BindError(
            f"unknown setting {', '.join(unknown)}; there are {', '.join(sorted(_FIELDS))}"
        )
    if settings.get("activation", "none") != "none":
        raise tp.BindError("activation says what is computed, and is not tuned; leave it out")
    return GemmConfig(**settings)


def _edit(change: Any) -> Path:
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
                    f"{found.problems[0]}. It is left as it is: correct it or move it away."
                )
            entries = change(found.raw)
            text = json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
            files.write_atomically(path, text.encode(), mode)
    except OSError as error:
        raise tp.BindError(f"cannot write {path}: {error.strerror}") from None
    return path
