"""Finds Python state that a traced block changes: the silent wrong answer of tracing, made an error.

A loop body is traced once. If it rebinds a Python name, or changes a list, dict or attribute, and reads it in the
next iteration, the kernel would mean something else than the Python text says. So the state reachable from the frames
of the kernel is recorded before a body and compared after it. In a loop, what changed is tried: the body is traced a
second time (and discarded); if it comes out different, or the state goes on changing, the change was carried from one
iteration to the next: `TraceError`. In a branch there is no second iteration; there a surviving change is the error.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from operator import length_hint
from types import CellType, CodeType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

from tilepipe.ir.location import is_library_file
from tilepipe.lang.values import Value

_PLAIN = (int, float, str, bytes, bool, type(None))
_DEPTH = 3
_ITEMS = 64  # a container longer than this is compared by length and by its first items

State = dict[tuple[Any, ...], Any]


@dataclass(eq=False)
class Snapshot:
    """State reachable from the user's frames: path -> object."""

    state: State
    frames: list[FrameType]


def take(entry: FrameType | None) -> Snapshot:
    """Records locals, free variables, used globals and, a few levels deep, containers and attributes of the user's
    frames.
    """
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not entry:
        if not is_library_file(frame.f_code.co_filename) and not frame.f_code.co_filename.endswith("contextlib.py"):
            frames.append(frame)
        frame = frame.f_back
    state: State = {}
    seen: set[int] = set()
    for f in frames:
        key = (id(f),)
        for name, value in dict(f.f_locals).items():
            _record(state, (*key, name), value, _DEPTH, seen)
        for name in f.f_code.co_names:
            value = f.f_globals.get(name, f)
            if value is not f and not isinstance(value, ModuleType | FunctionType | type):
                _record(state, ("global", id(f.f_globals), name), value, _DEPTH, seen)
    return Snapshot(state, frames)


def _record(state: State, path: tuple[Any, ...], value: Any, depth: int, seen: set[int]) -> None:
    state[path] = value
    if depth == 0 or isinstance(value, _PLAIN) or id(value) in seen:
        return
    if isinstance(value, list | tuple):
        if isinstance(value, list):
            state[(*path, "len()")] = len(value)
        items: Any = enumerate(value[:_ITEMS])
    elif isinstance(value, dict):
        state[(*path, "len()")] = len(value)
        items = list(value.items())[:_ITEMS]
    elif isinstance(value, set):
        state[(*path, "len()")] = len(value)
        return
    else:
        items = _parts(value)
    seen.add(id(value))
    for key, item in items:
        _record(state, (*path, key), item, depth - 1, seen)


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """What else can hold state: attributes, closures, default arguments, the object of a bound method, the place of
    an iterator.
    """
    if isinstance(value, MethodType):
        return [(".__self__", value.__self__)]
    if isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
        hidden = [(f".{name}", cell.cell_contents) for name, cell in cells if _filled(cell)]
        return [*hidden, *((f".__defaults__[{i}]", x) for i, x in enumerate(value.__defaults__ or ()))]
    if isinstance(value, deque):
        return [("len()", len(value)), *enumerate(list(value)[:_ITEMS])]
    if isinstance(value, GeneratorType):
        return [(".gi_frame", value.gi_frame.f_lasti if value.gi_frame is not None else -1)]
    if isinstance(value, Iterator):
        return [(".__next__", (length_hint(value, 0), repr(value) if isinstance(value, count) else ""))]
    if isinstance(value, type):
        return [(f".{n}", v) for n, v in vars(value).items() if not n.startswith("__") and _is_users_class(value)]
    if _is_users_class(type(value)):
        slots = [n for c in type(value).__mro__ for n in _slots(c) if hasattr(value, n)]
        return (
            [(f".{n}", v) for n, v in vars(value).items()] if hasattr(value, "__dict__") else [(f".{n}", getattr(value, n)) for n in slots]
        )
    return []


def _filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # not bound yet
        return False


def _slots(c: type) -> tuple[str, ...]:
    slots = c.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_users_class(c: type) -> bool:
    """Whether a class is a user's: attributes of its objects are a user's state."""
    return not (c.__module__ or "").startswith(("tilepipe.lang", "tilepipe.pipelines", "tilepipe.ir", "numpy", "builtins", "torch"))


def changes(before: Snapshot, after: Snapshot) -> dict[tuple[Any, ...], Any]:
    """Paths that existed before and hold something else after, with the new object."""
    changed = {}
    for path, old in before.state.items():
        new = after.state.get(path, old)
        if new is old or _same(old, new) or is_dead(old):
            continue
        changed[path] = new
    return changed


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, MethodType) and isinstance(b, MethodType):
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(x is y or _same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and isinstance(a, _PLAIN) and (a == b or (a != a and b != b))


def is_dead(thing: object) -> bool:
    """Whether any use of a traced object would raise, so that rebinding its name loses nothing."""
    if isinstance(thing, Value):
        return thing._scope.closed
    dead = getattr(type(thing), "_is_dead", None)
    return bool(dead(thing)) if dead is not None else False


def path_name(path: tuple[Any, ...]) -> str:
    """`x`, `state['k']`, `self.count`: how the user writes a path."""
    parts = path[2:] if path[0] == "global" else path[1:]
    text = str(parts[0])
    for part in parts[1:]:
        if part == "len()":
            return f"len({text})"
        text += part if isinstance(part, str) and part.startswith(".") else f"[{part!r}]"
    return text


# -- reading the source: lint only, never meaning --------------------------------------------------------------------

_trees: dict[str, tuple[int, ast.Module | None]] = {}
_withs: dict[int, dict[int, tuple[str, int]]] = {}  # id of a tree (kept alive in _trees) -> line of a with -> jump


def _tree(code: CodeType) -> ast.Module | None:
    """The syntax tree of the file a code object comes from; None where Python does not have the source."""
    lines = linecache.getlines(code.co_filename)
    key = hash(tuple(lines))
    cached = _trees.get(code.co_filename)
    if cached is None or cached[0] != key:
        try:
            tree = ast.parse("".join(lines)) if lines else None
        except SyntaxError:
            tree = None
        cached = _trees[code.co_filename] = (key, tree)
    return cached[1]


def leaves_block(frame: FrameType) -> tuple[str, int] | None:
    """A `continue`, `break` or `return` that would leave the with statement at the frame's line: its keyword and
    line.
    """
    tree = _tree(frame.f_code)
    if tree is None:
        return None
    found = _withs.get(id(tree))
    if found is None:
        found = _withs[id(tree)] = {}
        for node in ast.walk(tree):
            jump = next(_jumps(node.body, loops=False), None) if isinstance(node, ast.With) else None
            if jump is not None and isinstance(node, ast.With):
                last = node.items[-1].context_expr.end_lineno or node.lineno
                found.update(dict.fromkeys(range(node.lineno, last + 1), jump))
    return found.get(frame.f_lineno)


def _jumps(body: list[ast.stmt], loops: bool) -> Any:
    for node in body:
        if isinstance(node, ast.Return):
            yield "return", node.lineno
        elif isinstance(node, ast.Continue | ast.Break) and not loops:
            yield type(node).__name__.lower(), node.lineno
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = loops or isinstance(node, ast.For | ast.While)
            for name in ("body", "orelse", "finalbody"):
                yield from _jumps(getattr(node, name, []), inner)
            for part in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
                yield from _jumps(part.body, inner)


def only_loop_target(frame_code: CodeType, name: str) -> bool:
    """Whether every binding of `name` in the function is the target of a `for`: bound afresh wherever it is read."""
    tree = _tree(frame_code)
    if tree is None:
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == frame_code.co_name and node.lineno >= frame_code.co_firstlineno:
            stores = sum(_stores(n, name) for n in ast.walk(node))
            targets = sum(_stores(n, name) for loop in ast.walk(node) if isinstance(loop, ast.For) for n in ast.walk(loop.target))
            return stores == targets > 0
    return False


def _stores(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
