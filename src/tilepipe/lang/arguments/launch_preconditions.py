"""Launch preconditions, checked on the host (`ir.program.Requirement`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilepipe.errors import BindError
from tilepipe.ir.expressions import Expr
from tilepipe.ir.program import Kernel, Launch, TensorArg
from tilepipe.ir.static_evaluation import IntArray, evaluate


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
