"""Which extents of a program may differ from launch to launch, and why others may not: found by
binding it again with other values of its settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tilepipe as tp
from tilepipe.ir.program import TensorArg

# A setting is taken as small as this where that gives the same kernel, so that the arrays are.
_SMALL = 256
Make = Callable[..., object]  # a program


@dataclass
class Extents:
    """What settings say of the extents of a program.

    Attributes:
        of: the extents of each tensor, by the names of the settings that they follow.
        free: those settings. fixed: the other ones that are numbers, and why each is fixed.
    """

    of: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    free: list[str] = field(default_factory=list)
    fixed: dict[str, str] = field(default_factory=dict)


def free_extents(program: tp.Program, make: Make, settings: Mapping[str, Any]) -> Extents:
    """The extents of each tensor of `program`, by the names of the settings that they follow.

    A setting is free if with twice and three times its value the kernel is the same to the letter,
    every extent either stays or is the setting's value, and the numbers that are arguments stay.

    Args:
        make: `program` itself, and `make(m=512)` the same with a setting changed.
        settings: with their values.
    """
    shapes = _shapes(program)
    found: dict[str, list[int | str]] = {name: list(shape) for name, shape in shapes.items()}
    free: list[str] = []
    fixed: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            continue
        places = _places(program, make, name, value)
        if isinstance(places, str):
            fixed[name] = places
            continue
        free.append(name)
        for tensor, axis in places:
            found[tensor][axis] = name
    return Extents({name: tuple(extents) for name, extents in found.items()}, free, fixed)


def _places(program: tp.Program, make: Make, name: str, value: int) -> set[tuple[str, int]] | str:
    """The (tensor, axis) whose extents are a setting's value, or why it is not free."""
    why = ""
    for start in dict.fromkeys((min(value, _SMALL), value)):
        others: list[tp.Program] = []
        for times in (1, 2, 3):
            made = _bound(make, **{name: times * start})
            if isinstance(made, str):
                why = f"{name}={times * start}: {made}"
                break
            if made.kernel is not program.kernel:
                why = f"{name}={times * start} is another kernel"
                break
            others.append(made)
        else:
            places = _following(others, name, start)
            if not isinstance(places, str):
                return places
            why = places
    return why


def _bound(make: Make, **changed: int) -> tp.Program | str:
    """A program, or why there is none."""
    try:
        made = make(**changed)
    except tp.TilepipeError as error:
        return str(error).partition("\n")[0]
    return made if isinstance(made, tp.Program) else "there is no program"


def _following(programs: list[tp.Program], name: str, start: int) -> set[tuple[str, int]] | str:
    """The extents that are so many times `start` in the programs, which have once, twice and three
    times that value of a setting; or which other extent differs, or number, or that none does.
    """
    first, *_ = programs
    said = f"with {name}={start}, {2 * start} and {3 * start}"
    numbers = [
        {n: arg for n, arg in x.launch_args.args.items() if not isinstance(arg, TensorArg)}
        for x in programs
    ]
    for scalar in numbers[0]:
        values = [x[scalar] for x in numbers]
        if any(x != values[0] for x in values):
            return f"{scalar} is {_listed(values)} {said}"
    found = set()
    shapes = [_shapes(x) for x in programs]
    for tensor, shape in _shapes(first).items():
        for axis in range(len(shape)):
            extents = [x[tensor][axis] for x in shapes]
            if extents == [start, 2 * start, 3 * start]:
                found.add((tensor, axis))
            elif len(set(extents)) > 1:
                return f"{tensor}.shape[{axis}] is {_listed(extents)} {said}"
    return found or "no extent follows it"


def _listed(values: list[Any]) -> str:
    return f"{', '.join(map(str, values[:-1]))} and {values[-1]}"


def _shapes(program: tp.Program) -> dict[str, tuple[int, ...]]:
    args = program.launch_args.args
    return {n: tuple(arg.shape) for n, arg in args.items() if isinstance(arg, TensorArg)}
