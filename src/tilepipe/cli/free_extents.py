"""Which extents of a program may differ from launch to launch: found by binding it again with other
values of its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tilepipe as tp
from tilepipe.ir.program import TensorArg

# A setting is taken as small as this where that gives the same kernel, so that the arrays are.
_SMALL = 256
Make = Callable[..., object]  # a program


def free_extents(
    program: tp.Program, make: Make, settings: Mapping[str, Any]
) -> tuple[dict[str, tuple[int | str, ...]], list[str]]:
    """The extents of each tensor of `program`, by the names of the settings that they follow, and
    those settings.

    A setting is free if with twice and three times its value the kernel is the same to the letter,
    every extent either stays or is the setting's value, and the numbers that are arguments stay.

    Args:
        make: `program` itself, and `make(m=512)` the same with a setting changed.
        settings: with their values.
    """
    shapes = _shapes(program)
    found: dict[str, list[int | str]] = {name: list(shape) for name, shape in shapes.items()}
    free = []
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            continue
        places = _places(program, make, name, value)
        if not places:
            continue
        free.append(name)
        for tensor, axis in places:
            found[tensor][axis] = name
    return {name: tuple(extents) for name, extents in found.items()}, free


def _places(program: tp.Program, make: Make, name: str, value: int) -> set[tuple[str, int]]:
    """The (tensor, axis) whose extents are a setting's value; none where it is not free."""
    for start in dict.fromkeys((min(value, _SMALL), value)):
        others = [_bound(make, **{name: times * start}) for times in (1, 2, 3)]
        found = [x for x in others if x is not None and x.kernel is program.kernel]
        if len(found) == len(others):
            return _following(found, start)
    return set()


def _bound(make: Make, **changed: int) -> tp.Program | None:
    try:
        made = make(**changed)
    except tp.TilepipeError:
        return None
    return made if isinstance(made, tp.Program) else None


def _following(programs: list[tp.Program], start: int) -> set[tuple[str, int]]:
    """The extents that are so many times `start` in the programs; none where another extent
    differs, or a number.
    """
    first, *_ = programs
    numbers = [
        {n: arg for n, arg in x.launch_args.args.items() if not isinstance(arg, TensorArg)}
        for x in programs
    ]
    shapes = [_shapes(x) for x in programs]
    if any(x != numbers[0] for x in numbers):
        return set()
    found = set()
    for tensor, shape in _shapes(first).items():
        for axis in range(len(shape)):
            extents = [x[tensor][axis] for x in shapes]
            if extents == [start, 2 * start, 3 * start]:
                found.add((tensor, axis))
            elif len(set(extents)) > 1:
                return set()
    return found


def _shapes(program: tp.Program) -> dict[str, tuple[int, ...]]:
    args = program.launch_args.args
    return {n: tuple(arg.shape) for n, arg in args.items() if isinstance(arg, TensorArg)}
