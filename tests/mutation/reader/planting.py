"""Mistakes planted in the modules of the reader and of the machine, while a block runs.

The source of a module is changed and compiled, and what differs takes the place of the original:
the code of functions, whoever has imported them, and the values of tables.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any


@dataclass(frozen=True)
class Edit:
    """One change of a module's source. `old`: what stands there once."""

    module: str
    old: str
    new: str


def _functions(holder: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, FunctionType]]:
    """The functions that a module or a class defines, with their qualified names."""
    for name, value in list(holder.items()):
        inner = getattr(value, "fget", None) or getattr(value, "func", None) or value
        inner = inspect.unwrap(inner) if callable(inner) else inner
        inner = getattr(inner, "__func__", inner)
        if isinstance(inner, FunctionType):
            yield inner.__qualname__, inner
        elif isinstance(value, type) and not prefix:
            yield from _functions(dict(vars(value)), f"{name}.")


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)


def _tables(source: str) -> dict[str, str]:
    """The expressions that a module assigns to names."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = ast.unparse(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = ast.unparse(node.value)
    return found


def _patched(edits: tuple[Edit, ...]) -> dict[str, tuple[str, str]]:
    """module -> its source, and that with all edits."""
    found: dict[str, tuple[str, str]] = {}
    for edit in edits:
        module = importlib.import_module(edit.module)
        before = inspect.getsource(module)
        _, now = found.get(edit.module, (before, before))
        if now.count(edit.old) != 1:
            raise ValueError(
                f"{edit.module}: {edit.old!r} stands there {now.count(edit.old)} times"
            )
        found[edit.module] = before, now.replace(edit.old, edit.new)
    return found


def _change(module: ModuleType, before: str, after: str) -> list[Callable[[], None]]:
    """Makes a change; returns what takes it back."""
    assert module.__file__ is not None
    old, new = (dict(_codes(compile(s, module.__file__, "exec"))) for s in (before, after))
    undo: list[Callable[[], None]] = []
    for name, function in _functions(vars(module)):
        if function.__module__ == module.__name__ and old.get(name) != new.get(name):
            kept = function.__code__
            function.__code__ = new[name]
            undo.append(lambda function=function, kept=kept: setattr(function, "__code__", kept))  # type: ignore[misc]
    was, now = _tables(before), _tables(after)
    for name in (n for n in now if was[n] != now[n]):
        value, held = eval(now[name], vars(module)), vars(module)[name]
        if isinstance(held, dict):  # others have taken it into their own tables
            kept_items = dict(held)
            held.clear()
            held.update(value)
            undo += [held.clear, lambda held=held, items=kept_items: held.update(items)]  # type: ignore[misc]
            continue
        for each in [m for m in list(sys.modules.values()) if vars(m).get(name, None) is held]:
            setattr(each, name, value)
            undo.append(lambda each=each, name=name, held=held: setattr(each, name, held))  # type: ignore[misc]
    if not undo:
        raise ValueError(f"{module.__name__}: the change reaches no function and no table")
    return undo


def forget() -> None:
    """Empties all caches of the reader and of the machine."""
    for module in [m for n, m in sys.modules.items() if n.startswith(("tilepipe", "tests.ptx"))]:
        for value in list(vars(module).values()):
            if callable(getattr(value, "cache_clear", None)):
                value.cache_clear()


@contextmanager
def planted(edits: tuple[Edit, ...]) -> Iterator[None]:
    """The mistakes are there within the block."""
    undo: list[Callable[[], None]] = []
    try:
        for name, (before, after) in _patched(edits).items():
            undo += _change(sys.modules[name], before, after)
        forget()
        yield
    finally:
        for each in undo:
            each()
        forget()
