"""What a kernel is bound to: tensor maps, numbers, the chip that holds them, and the grid and the
clusters of the launch, given as numbers or as functions of arguments; and the launch preconditions
that they must meet.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilepipe.errors import BindError
from tilepipe.host_arguments import plain_int, shown
from tilepipe.ir.chip import CTAS_PER_SM, H200, Chip
from tilepipe.ir.expressions import Expr
from tilepipe.ir.program import Arg, Kernel, Launch, TensorArg
from tilepipe.ir.static_evaluation import IntArray, evaluate
from tilepipe.lang.arguments.tensor_map import TensorMap, described
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
        return described(arg)
    except BindError as error:
        raise BindError(f"argument '{name}': {error}") from None


def chip_of(named: Mapping[str, Argument]) -> Chip | None:
    """The GPU whose memory the arguments are in; None where they are in the host's.

    Raises:
        BindError: some are in a GPU's memory and some in the host's, or they are on several GPUs.
    """
    arrays = {n: a.array for n, a in named.items() if isinstance(a, TensorMap)}
    others = [x for x in arrays.values() if not isinstance(x, np.ndarray)]
    if not others:
        return None
    from tilepipe.cuda.runtime import driver, interop

    there = [name for name, x in arrays.items() if interop.is_device_array(x)]
    here = [name for name, x in arrays.items() if isinstance(x, np.ndarray)]
    if there and here:
        raise BindError(
            f"argument '{there[0]}' is in the memory of a GPU and '{here[0]}' in the host's; a"
            " kernel's arrays are all in one place. Move one of them: .cuda() or .cpu() of a tensor"
        )
    ordinal = interop.device_of(others)
    return H200 if ordinal is None else driver.chip(ordinal)


def launch_argument(arg: TensorMap | int | float) -> Arg:
    """An argument as a launch holds it."""
    return TensorArg(arg.array, arg.shape) if isinstance(arg, TensorMap) else arg


def resolved(what: Any, name: str, known: Mapping[str, Any]) -> Any:
    """A value as it is, or what a function makes of those of `known` that it names.

    Args:
        name: of the decorator's parameter, "grid", "cluster" or "ctas_per_sm", for messages.

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


def cta_count(kernel: str, found: object) -> int:
    """What `ctas_per_sm` comes to. Raises BindError unless it is a number that an SM may hold."""
    number = plain_int(found)
    if number is None or not 1 <= number <= CTAS_PER_SM:
        raise BindError(
            f"kernel '{kernel}': ctas_per_sm= is the number of CTAs that share an SM, 1 to"
            f" {CTAS_PER_SM}; got {shown(found)}"
        )
    return number


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


def check_conditions(
    kernel: Kernel, grid: int, args: Mapping[str, tuple[int, ...] | int | float | None]
) -> None:
    """Checks the conditions on arguments; `args`: numbers, and the shapes of tensors. A condition
    that depends on more is not checked.

    Raises:
        BindError: a condition does not hold.
    """
    if not kernel.requirements:
        return
    env: dict[str, IntArray] = {"num_clusters": np.asarray(grid // kernel.cluster_size)}
    for name, arg in args.items():
        if isinstance(arg, tuple):
            env.update({f"{name}.shape[{axis}]": np.asarray(n) for axis, n in enumerate(arg)})
        elif arg is not None:
            env[name] = np.asarray(arg)
    for requirement in kernel.requirements:
        holds = evaluate(requirement.holds, env) if isinstance(requirement.holds, Expr) else None
        if holds is not None and not holds:
            raise BindError(
                requirement.message.format(*(evaluate(x, env) for x in requirement.shows)),
                requirement.loc,
            )


def check_zeros(launch: Launch) -> None:
    """Checks the NumPy arrays among the tensors that must hold zeros.

    Raises:
        BindError: one holds another value.
    """
    for requirement in launch.kernel.requirements:
        arg = (
            None if isinstance(requirement.holds, Expr) else launch.args.get(requirement.holds.name)
        )
        if isinstance(arg, TensorArg) and isinstance(arg.array, np.ndarray) and arg.array.any():
            raise BindError(
                requirement.message.format(arg.array[arg.array != 0].flat[0]), requirement.loc
            )
