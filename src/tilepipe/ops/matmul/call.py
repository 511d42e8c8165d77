"""The arguments of one call of `ops.matmul`, and what is asked of them, for both kinds of
arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic

from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.common.tiling import ACTIVATIONS as ALL_ACTIVATIONS
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.ops.calls import (
    ArrayT,
    Setting,
    Settings,
    Shape,
    check_settings,
    check_shape,
    configured,
    result_dtype,
    setting_names,
)
from tilepipe.ops.matmul.shapes import Product, product

NAME = "matmul"
INPUTS = (dtypes.bfloat16, dtypes.float16)
ACTIVATIONS = tuple(name for name in ALL_ACTIVATIONS if name != "none")
SETTINGS = setting_names(GemmConfig, "activation")
FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127


@dataclass
class MatmulCall(Generic[ArrayT]):
    """activation(alpha · (a @ b) + beta · source + bias); `ops.matmul` says what each may be.

    Attributes:
        operation: the name of the operation that was called, in which its mistakes are told.
    """

    a: ArrayT
    b: ArrayT
    out: ArrayT | None
    bias: ArrayT | None
    activation: str | None
    source: ArrayT | None
    alpha: float
    beta: float | None
    out_dtype: object
    precision: str | None
    settings: Settings
    operation: str = NAME

    @property
    def source_scale(self) -> float:
        """What the source is multiplied by; 0: it is not read."""
        if self.source is None:
            return 0.0
        return 1.0 if self.beta is None else float(self.beta)


def checked(call: MatmulCall[ArrayT], a_strides: Shape) -> tuple[Product, DType]:
    """The shapes of a product and the dtype of its result.

    Args:
        a_strides: of a, in any unit.

    Raises:
        BindError: as `ops.matmul`.
    """
    inputs = array_dtype(call.a)
    name = call.operation
    _check_inputs(name, inputs, array_dtype(call.b), call.precision)
    check_epilogue(call)
    check_settings(name, MatmulCall, call.settings, SETTINGS)
    shapes = product(name, tuple(call.a.shape), tuple(call.b.shape), a_strides)
    out = result_dtype(name, call.out, call.out_dtype, inputs)
    check_shape(name, "out", call.out, shapes.result)
    _check_addends(call, shapes, inputs, out)
    return shapes, out


def _check_inputs(name: str, a: DType, b: DType, precision: object) -> None:
    """Raises BindError unless a and b may be multiplied: both bfloat16, both float16, or both
    float32 in tf32.
    """
    if not isinstance(precision, str | None) or precision not in (None, "tf32"):
        raise BindError(f'{name}: precision is None or "tf32", got {precision!r}')
    if a is not b:
        raise BindError(
            f"{name}: a is {a} and b is {b}; convert one with .astype() (NumPy) or .to() (PyTorch)"
        )
    if a is dtypes.float32:
        if precision is None:
            raise BindError(
                f"{name} of float32 would run on tensor cores in tf32, with 10 bits of mantissa,"
                " and is not done unasked;"
                ' pass precision="tf32", or convert to bfloat16 or float16 yourself'
            )
    elif a not in INPUTS:
        raise BindError(
            f"{name} takes {', '.join(t.name for t in INPUTS)}, and float32 with"
            f' precision="tf32"; got {a}'
        )
    elif precision is not None:
        raise BindError(f'{name}: precision="tf32" is for float32 operands; a and b are {a}')


def check_epilogue(call: MatmulCall[ArrayT]) -> None:
    """Raises BindError for an unknown activation, scales that are no numbers, or beta without a
    source.
    """
    if call.activation is not None and (
        not isinstance(call.activation, str) or call.activation not in ACTIVATIONS
    ):
        raise BindError(
            f"matmul: activation is None, 'none' or one of {', '.join(ACTIVATIONS)}; got"
            f" {call.activation!r}"
        )
    for name, value in (("alpha", call.alpha), ("beta", call.beta)):
        if name == "beta" and value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise BindError(f"matmul: {name} must be a number, got {value!r}")
        if FLOAT32_MAX < abs(value) != math.inf:
            raise BindError(
                f"matmul: {name} is a float32, which holds up to {FLOAT32_MAX:.4g} (or inf)"
            )
    if call.beta not in (None, 0) and call.source is None:
        raise BindError(
            f"matmul: beta={call.beta} scales source=, which is not given; out= is only written. To"
            " add to what it holds, pass source=out as well"
        )


def _check_addends(call: MatmulCall[ArrayT], shapes: Product, inputs: DType, out: DType) -> None:
    """Raises BindError for a bias or a source of another shape or dtype than the kernel adds."""
    if call.bias is not None:
        found, m, n = tuple(call.bias.shape), shapes.m, shapes.n
        if found != ((n,) if len(found) == 1 else (m, 1)):
            raise BindError(
                f"matmul: bias must have shape ({n},), one value a column of the product, or"
                f" ({m}, 1), one value a row; it has {found}"
            )
        bias = array_dtype(call.bias)
        if bias not in (inputs, out, dtypes.float32):
            raise BindError(
                f"matmul: bias is {bias}; it may be {inputs} as the operands, {out} as the result,"
                " or float32"
            )
    if call.source is not None:
        source, shape = array_dtype(call.source), tuple(call.source.shape)
        if source is not out:
            raise BindError(
                f"matmul: source is {source} and the result {out}; convert one with .astype()"
                " (NumPy) or .to() (PyTorch)"
            )
        if not _broadcasts(shape, shapes.result):
            raise BindError(
                f"matmul: source of shape {shape} does not broadcast to {shapes.result}, the"
                " result's"
            )


def _broadcasts(shape: Shape, to: Shape) -> bool:
    if len(shape) > len(to):
        return False
    return all(x in (1, y) for x, y in zip(reversed(shape), reversed(to), strict=False))


def without_early(settings: Settings) -> Settings:
    """The settings but `early`: it says something of b, and nothing of the tiles, so that the
    heuristic still chooses these where it is the only one; and it does not hold of a copy of b.
    """
    return tuple(item for item in settings if item[0] != "early")


def config(settings: Settings, activation: str | None, inputs: DType) -> GemmConfig:
    """The configuration of these settings; the others have their defaults, bk 128 bytes of K."""
    defaults: dict[str, Setting] = {"bk": SPAN // inputs.nbytes}
    if activation is not None:
        defaults["activation"] = activation
    return configured(GemmConfig, defaults, settings)
