"""Loading the examples, as they are or with a mistake planted in their text."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import tilepipe as tp

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))

Main = Callable[[int], tp.Program]


def arch(name: str) -> str:
    """What a rung is compiled for."""
    return "sm_100a" if name[:2] in ("08", "09") else "sm_90a"


def load(path: Path) -> Main:
    """The `main(seed)` of a file."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    main: Main = module.main
    return main


def plant(name: str, old: str, new: str, folder: Path) -> Path:
    """A copy of an example in which `old`, which must occur exactly once, has become `new`."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {name}.py"
    path = folder / f"{name}.py"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def line_of(path: Path, text: str) -> int:
    """The number of the last line that contains `text` (the docstring comes first)."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return max(number for number, line in enumerate(lines, 1) if text in line)
