"""What a kernel is bound to: tensor maps, numbers, the chip that holds them, and the grid and the
clusters of the launch, given as numbers or as functions of arguments.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilepipe.errors import BindError
from tilepipe.host_arguments import plain_int, shown
from tilepipe.ir.chip import H200, Chip
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import Arg, Kernel, TensorArg
from tilepipe.lang.arguments.tensor_map import TensorMap, tensor_map
from tilepipe.lang.tracing.kernel import explain_none

Argument = TensorMap | int | float | None
FLOAT32_MAX = float(np.finfo(np.float32).max)
MAX_GRID = 2**31 - 1


def plain_argument(name: str, arg: Any) -> Argument:
    """An argument as it is traced: an array becomes a tensor map, a number of NumPy one of Python.

    Raises:
        BindError: something else, or a number beyond int32 or float32.
    """
    if isinstance(arg, TensorMap):
        if arg.array is None:
            raise BindError(f"argument '{name}': the tensor map has no array")
        return arg
    if arg is None:
        return None
    if isinstance(arg, np.integer | np.floating):
        arg = arg.item()
    if isinstance(arg, bool | np.bool_ | str):
        raise BindError(
            f"argument '{name}': expected a tensor map, an array or a number, got {shown(arg)}"
        )
    if isinstance(arg, int):
        if not -(2**31) <= arg < 2**31:
            raise BindError(f"argument '{name}': {arg} does not fit in int32")
        return arg
    if isinstance(arg, float):
        if math.isfinite(arg) and abs(arg) > FLOAT32_MAX:
            raise BindError(
                f"argument '{name}': {arg} does not fit in float32, which holds up to"
                f" {FLOAT32_MAX:.4g} (or inf)"
            )
        return arg
    try:
        return tensor_map(arg)
    except BindError as error:
        raise BindError(f"argument '{name}': {error}") from None


def refuse_shared_memory(kernel: Kernel, named: Mapping[str, Argument]) -> None:
    """Raises BindError when an argument that the kernel writes overlaps another one: each is taken
    for memory of its own.
    """
    arrays = {
        n: a.array
        for n, a in named.items()
        if isinstance(a, TensorMap) and isinstance(a.array, np.ndarray)
    }
    for written in sorted(tensor_uses(kernel)[0] & arrays.keys()):
        for other, array in arrays.items():
            if other != written and np.shares_memory(arrays[written], array):
                raise BindError(
                    f"arguments '{written}', which kernel '{kernel.name}' writes, and '{other}'"
                    " share memory: accesses through the two"
                    " would not be ordered against each other. Pass one argument for both, or a"
                    " copy."
                )


def chip_of(named: Mapping[str, Argument]) -> Chip | None:
    """The GPU whose memory the arguments are in; None where they are NumPy arrays."""
    arrays = [
        a.array
        for a in named.values()
        if isinstance(a, TensorMap) and not isinstance(a.array, np.ndarray)
    ]
    if not arrays:
        return None
    from tilepipe.cuda.runtime import driver, interop

    ordinal = interop.device_of(arrays)
    return H200 if ordinal is None else driver.chip(ordinal)


def launch_argument(arg: TensorMap | int | float) -> Arg:
    """An argument as a launch holds it."""
    return TensorArg(arg.array, arg.shape) if isinstance(arg, TensorMap) else arg


def resolved(what: Any, name: str, known: Mapping[str, Any]) -> Any:
    """A value as it is, or what a function makes of those of `known` that it names.

    Args:
        name: of the decorator's parameter, "grid" or "cluster", for messages.

    Raises:
        BindError: the function asks for something else, or does not say what it asks for.
    """
    if not callable(what):
        return what
    may = f"a function of any of {', '.join(known)}, by name"
    try:
        parameters = inspect.signature(what).parameters.values()
    except (TypeError, ValueError):  # a class, or a function of C, does not say
        raise BindError(
            f"{name}= is {may}; the parameters of {shown(what)} are not known"
        ) from None
    if any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise BindError(
            f"{name}= is {may}, not of *args, **kwargs or what stands before a slash: {shown(what)}"
        )
    unknown = [p.name for p in parameters if p.name not in known and p.default is p.empty]
    if unknown:
        raise BindError(f"{name}= asks for {', '.join(unknown)}; it may use {', '.join(known)}")
    given = {p.name: known[p.name] for p in parameters if p.name in known}
    with explain_none(f"{name}=", given):
        return what(**given)


def cluster_extents(value: Any, chip: Chip) -> tuple[int, int, int]:
    """The extents (x, y, z) of a cluster, in CTAs.

    Raises:
        BindError: no positive integers, or more CTAs than the chip takes.
    """
    shape = tuple(value) if isinstance(value, tuple | list) else (value,)
    extents = [n for n in map(plain_int, shape[:4]) if n is not None and n >= 1]
    if not 1 <= len(shape) <= 3 or len(extents) != len(shape):
        raise BindError(
            f"a cluster is (x,), (x, y) or (x, y, z) of positive integers, got {shown(value)}"
        )
    x, y, z = (*extents, 1, 1)[:3]
    if x * y * z > chip.max_cluster:
        raise BindError(
            f"a cluster of {x}×{y}×{z} = {x * y * z} CTAs; {chip.name} takes at most"
            f" {chip.max_cluster}"
        )
    return x, y, z
