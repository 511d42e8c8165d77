"""The programs of the operations on rows, for arrays and tensors alike: what is bound to what."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.host_arguments import INT32_MAX, plain_int, shown
from tilepipe.ir.arrays import array_dtype
from tilepipe.kernels.common import tuned
from tilepipe.kernels.cross_entropy import sm90 as cross_entropy_kernel
from tilepipe.kernels.layer_norm import sm90 as layer_norm_kernel
from tilepipe.kernels.rms_norm import sm90 as rms_norm_kernel
from tilepipe.kernels.rows.choice import TUNABLES, RowProblem
from tilepipe.kernels.rows.column_sums import column_sums
from tilepipe.kernels.rows.config import RowConfig
from tilepipe.kernels.rows.team import part_rows
from tilepipe.kernels.softmax import sm90 as softmax_kernel
from tilepipe.ops.calls import Settings, Shape, configured, setting_names

Named = Mapping[str, Any]  # arrays, or views of tensors, by the kernel's arguments
Binder = Callable[[Named, RowConfig | None], tp.Program]


def config(operation: str, settings: Settings) -> RowConfig | None:
    """The configuration of these settings, None where there are none.

    Raises:
        BindError: a setting that `RowConfig` does not have, or a rule that it breaks.
    """
    unknown = [name for name, _ in settings if name not in setting_names(RowConfig)]
    if unknown:
        known = ", ".join(setting_names(RowConfig))
        raise BindError(
            f"{operation} does not know the setting {', '.join(unknown)}; it has {known}"
        )
    return configured(RowConfig, {}, settings) if settings else None


def matrix_shape(operation: str, shape: Shape) -> tuple[int, int]:
    """(rows, columns) of an array of a shape. Raises BindError for a scalar."""
    if not shape:
        raise BindError(f"{operation}: x must have at least one dimension, it is a scalar")
    return math.prod(shape[:-1]), shape[-1]


def checked_eps(operation: str, eps: object) -> float:
    """Raises BindError for what is no number of at least 0."""
    number = isinstance(eps, Real) and not isinstance(eps, bool)
    if not number or not 0 <= float(eps) < math.inf:  # type: ignore[arg-type]
        raise BindError(f"{operation}: eps must be a number of at least 0, got {eps!r}")
    return float(eps)  # type: ignore[arg-type]


def checked_label(operation: str, label: object) -> int:
    """Raises BindError for an `ignore_index` that is no integer of 32 bits."""
    number = plain_int(label)
    if number is None or not -INT32_MAX - 1 <= number <= INT32_MAX:
        raise BindError(
            f"{operation}: ignore_index must be an integer of 32 bits, got {shown(label)}"
        )
    return number


def layer_norm(eps: float) -> Binder:
    """y of x, weight, bias."""
    return lambda v, cfg: layer_norm_kernel.bind(
        v["x"], v.get("weight"), v.get("bias"), v["y"], cfg, eps=eps
    )


def norm_backward(name: str, eps: float) -> Binder:
    """dx and parts, or dx alone, of x, weight, dy; of the norm `name`."""
    kernel = {"rms_norm": rms_norm_kernel, "layer_norm": layer_norm_kernel}[name]
    return lambda v, cfg: kernel.bind_backward(
        v["x"], v.get("weight"), v["dy"], v["dx"], v.get("parts"), cfg, eps=eps
    )


def partial_sums(name: str, problem: RowProblem, chip: tp.Chip | None) -> tuple[int, Settings]:
    """Rows of the partial sums of a norm's backward pass on a GPU, or on the simulated one (None),
    and the settings of the configuration that writes so many.
    """
    tunable = TUNABLES[name]
    cfg = tunable.best(problem, tp.H200) if chip is None else tuned.choose(tunable, problem, chip)
    return part_rows(problem.m, cfg, (chip or tp.H200).sms), tuple(cfg.as_dict().items())


def problem_of(backward: bool, x: Any, *vectors: Any) -> RowProblem:
    """The problem of a matrix and of the vectors beside it, each of which may be None."""
    dtype, (m, n) = array_dtype(x), x.shape
    wide = any(v is not None and array_dtype(v).nbytes > dtype.nbytes for v in vectors)
    return RowProblem(m, n, dtype, wide, backward)


def remembered(operation: str, named: Named, chip: tp.Chip) -> RowConfig | None:
    """What tuning has remembered for the arguments of a program; None if there is nothing."""
    kernel = operation.removesuffix("_backward")
    if kernel not in TUNABLES:
        return None
    backward = kernel != operation
    x = named["y"] if operation == "softmax_backward" else named["x"]
    problem = problem_of(backward, x, named.get("weight"), named.get("bias"))
    return tuned.lookup(TUNABLES[kernel], problem, chip)


def sums(v: Named, cfg: RowConfig | None) -> tp.Program:
    """out of parts."""
    return column_sums.bind(v["parts"], v["out"])


def softmax(v: Named, cfg: RowConfig | None) -> tp.Program:
    """y of x."""
    return softmax_kernel.bind(v["x"], v["y"], cfg)


def softmax_backward(v: Named, cfg: RowConfig | None) -> tp.Program:
    """dx, the kernel's x, of y and dy."""
    return softmax_kernel.bind_backward(v["y"], v["dy"], v["x"], cfg)


def cross_entropy(ignore_index: int) -> Binder:
    """loss and lse of x and labels."""
    return lambda v, cfg: cross_entropy_kernel.bind(
        v["x"], v["labels"], v["loss"], v["lse"], cfg, ignore_index=ignore_index
    )


def cross_entropy_backward(ignore_index: int) -> Binder:
    """dx of x, labels, lse and dloss."""
    return lambda v, cfg: cross_entropy_kernel.bind_backward(
        v["x"], v["labels"], v["lse"], v["dloss"], v["dx"], cfg, ignore_index=ignore_index
    )
