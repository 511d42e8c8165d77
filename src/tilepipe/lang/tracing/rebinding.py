"""Detects Python state that a traced block changes, which would silently make a wrong program.

A loop body is traced once. If it rebinds a Python name, or changes a list, dict or attribute, and
reads it in the next iteration, the program would differ from the Python text. So the state
reachable from the frames of the kernel is recorded before a body and compared after it.

In a loop a change alone is no error: a temporary that every iteration assigns before it reads is
harmless. The body is therefore traced a second time, and that trace discarded. If the second trace
differs, or the state changes again, one iteration depends on the one before: `TraceError`. In a
branch there is no second iteration: both sides are traced, so a change that outlives the branch is
itself the error.
"""

from __future__ import annotations

import array
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from operator import length_hint
from types import CellType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import numpy as np

from tilepipe.ir.location import is_library_file

_PLAIN = (int, float, str, bytes, bool, type(None))
_DEPTH = 6  # nesting of containers and objects that is followed
_ITEMS = 4096  # a container longer than this is compared by length and by its first items
# of modules, each with the dot that ends its name
_LIBRARIES = (
    "tilepipe.lang.",
    "tilepipe.pipelines.",
    "tilepipe.ir.",
    "numpy.",
    "builtins.",
    "torch.",
)
_PATHS = 50_000  # paths of one snapshot; breadth first, so deeper state is what is left out
_ARRAY_BYTES = 1 << 20  # contents of larger arrays are not compared

LENGTH, CONTENTS = "len()", "contents"  # parts of a path other than keys

State = dict[tuple[Any, ...], Any]


@dataclass(eq=False)
class Snapshot:
    """State reachable from the user's frames: path -> object."""

    state: State
    frames: list[FrameType]


def take(entry: FrameType | None) -> Snapshot:
    """Records locals, free variables, used globals and, a few levels deep, containers and
    attributes of the user's frames.
    """
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not entry:
        if not is_library_file(frame.f_code.co_filename) and not frame.f_code.co_filename.endswith(
            "contextlib.py"
        ):
            frames.append(frame)
        frame = frame.f_back
    state: State = {}
    queue: deque[tuple[tuple[Any, ...], Any, int]] = deque()
    for f in frames:
        queue.extend(((id(f), name), value, _DEPTH) for name, value in dict(f.f_locals).items())
        for name in f.f_code.co_names:
            value = f.f_globals.get(name, f)
            if value is not f and not isinstance(value, ModuleType | FunctionType | type):
                queue.append((("global", id(f.f_globals), name), value, _DEPTH))
    seen: set[int] = set()
    while queue and len(state) < _PATHS:
        path, value, depth = queue.popleft()
        state[path] = value
        if depth == 0 or isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        queue.extend(((*path, key), item, depth - 1) for key, item in _inside(value))
    return Snapshot(state, frames)


def _inside(value: Any) -> list[tuple[Any, Any]]:
    """What an object holds, by index, key or name; for an object without parts, a number that
    changes with its contents.
    """
    if isinstance(value, tuple):
        return list(enumerate(value[:_ITEMS]))
    if isinstance(value, list | deque):
        return [(LENGTH, len(value)), *enumerate(islice(value, _ITEMS))]
    if isinstance(value, dict):
        return [(LENGTH, len(value)), *islice(value.items(), _ITEMS)]
    contents = _contents(value)
    return _parts(value) if contents is None else [(CONTENTS, contents)]


def _contents(value: Any) -> int | None:
    if isinstance(value, set):
        return hash(
            (len(value), frozenset((type(x), x if isinstance(x, _PLAIN) else id(x)) for x in value))
        )
    if isinstance(value, np.ndarray):
        return hash((value.shape, value.tobytes())) if value.nbytes <= _ARRAY_BYTES else None
    if isinstance(value, bytearray | array.array):
        return hash(bytes(value))
    # looked up only if loaded already: importing them takes 15 ms
    random = sys.modules.get("random")
    if random is not None and isinstance(value, random.Random):
        return hash(value.getstate())
    drawn = sys.modules.get("numpy.random")
    if drawn is not None and isinstance(value, drawn.Generator):
        return hash(repr(value.bit_generator.state))
    return None


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Other state of an object: attributes, closures, default arguments, the object of a bound
    method, the position of an iterator.
    """
    if isinstance(value, MethodType):
        return [(".__self__", value.__self__)]
    if isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
        hidden = [(f".{name}", cell.cell_contents) for name, cell in cells if _filled(cell)]
        return [
            *hidden,
            *((f".__defaults__[{i}]", x) for i, x in enumerate(value.__defaults__ or ())),
        ]
    if isinstance(value, GeneratorType):
        if is_library_file(value.gi_code.co_filename):
            return []  # the library's own: a traced loop in a comprehension
        return [(".gi_frame", value.gi_frame.f_lasti if value.gi_frame is not None else -1)]
    if isinstance(value, Iterator):
        return [
            (".__next__", (length_hint(value, 0), repr(value) if isinstance(value, count) else ""))
        ]
    if isinstance(value, type):
        return [
            (f".{n}", v)
            for n, v in vars(value).items()
            if not n.startswith("__") and _is_users_class(value)
        ]
    if _is_users_class(type(value)):
        slots = [n for c in type(value).__mro__ for n in _slots(c) if hasattr(value, n)]
        return (
            [(f".{n}", v) for n, v in vars(value).items()]
            if hasattr(value, "__dict__")
            else [(f".{n}", getattr(value, n)) for n in slots]
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
    """True if a class is defined outside the library, so that its objects' attributes are user
    state.
    """
    return not f"{c.__module__ or ''}.".startswith(_LIBRARIES)


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
    """True if any use of a traced object would raise, so that rebinding its name is harmless."""
    dead = getattr(type(thing), "_is_dead", None)
    return bool(dead(thing)) if dead is not None else False


def path_name(path: tuple[Any, ...]) -> str:
    """A path as the user writes it: `x`, `state['k']`, `self.count`."""
    parts = path[2:] if path[0] == "global" else path[1:]
    text = str(parts[0])
    for part in parts[1:]:
        if part == LENGTH:
            return f"len({text})"
        if part == CONTENTS:
            return text
        text += part if isinstance(part, str) and part.startswith(".") else f"[{part!r}]"
    return text
