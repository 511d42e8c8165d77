"""What a kernel is bound to: tensor maps, numbers, and the chip that holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilepipe.errors import BindError
from tilepipe.host_arguments import shown
from tilepipe.ir.chip import H200, Chip
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import Arg, Kernel, TensorArg
from tilepipe.lang.arguments.tensor_map import TensorMap, tensor_map

Argument = TensorMap | int | float | None
FLOAT32_MAX = float(np.finfo(np.float32).max)


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
