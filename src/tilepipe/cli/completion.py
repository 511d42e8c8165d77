"""What a shell offers for an unfinished word: kernels, files and what is in them, settings.

A file is parsed, never run: completing a word must have no effect.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import typer

TARGETS = ("what", "kernel")  # parameters of commands that name what is run


def kernels(incomplete: str) -> list[str]:
    """Shipped kernels."""
    from tilepipe.registry.catalog import KERNELS

    return [name for name in KERNELS if name.startswith(incomplete)]


def targets(incomplete: str) -> list[str]:
    """Shipped kernels, and FILE.py:NAME."""
    return [*kernels(incomplete), *files(incomplete)]


def files(incomplete: str) -> list[str]:
    """Files of Python and folders; after FILE.py: the names that may make a program."""
    path, colon, name = incomplete.rpartition(":")
    if colon and path.endswith(".py"):
        return [f"{path}:{x}" for x in _names(Path(path)) if x.startswith(name)]
    start = Path(incomplete)
    folder = start if incomplete.endswith("/") else start.parent
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    before = incomplete[: incomplete.rfind("/") + 1]
    found = [
        f"{before}{x.name}{'/' if x.is_dir() else ':'}"
        for x in entries
        if not x.name.startswith(".") and (x.is_dir() or x.suffix == ".py")
    ]
    return [x for x in found if x.startswith(incomplete)]


def settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """`name=` of the settings of the kernel that the line names, or of the function's arguments."""
    # an option that still lacks its value leaves the words before it unparsed
    named = [ctx.params[x] for x in TARGETS if ctx.params.get(x)] + ctx.args
    what = str(named[0]) if named else ""
    return [f"{name}=" for name in _settings(what) if name.startswith(incomplete)]


def _settings(what: str) -> list[str]:
    from tilepipe.registry.catalog import KERNELS

    if what in KERNELS:
        return list(KERNELS[what].settings)
    path, _, name = what.rpartition(":")
    for made in _functions(Path(path)):
        if made.name == name:
            given = made.args
            return [x.arg for x in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return []


def _tree(path: Path) -> list[ast.stmt]:
    try:
        return ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []


def _functions(path: Path) -> Iterator[ast.FunctionDef]:
    """The functions of a file that are no kernels: a kernel has a decorator."""
    for x in _tree(path):
        if isinstance(x, ast.FunctionDef) and not x.decorator_list:
            yield x


def _names(path: Path) -> list[str]:
    assigned = [
        target.id
        for x in _tree(path)
        if isinstance(x, ast.Assign | ast.AnnAssign)
        for part in (x.targets if isinstance(x, ast.Assign) else [x.target])
        for target in (part.elts if isinstance(part, ast.Tuple) else [part])
        if isinstance(target, ast.Name)
    ]
    return [x for x in [*(f.name for f in _functions(path)), *assigned] if not x.startswith("_")]
