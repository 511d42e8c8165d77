"""The options of `matmul`, checked once for both kinds of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tilepipe.errors import BindError
from tilepipe.host_arguments import unknown_keywords
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.gemm import config as gemm_config
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.heuristics import SPAN

INPUTS = (dtypes.bfloat16, dtypes.float16)
OUTPUTS = gemm.OUTPUTS
ACTIVATIONS = tuple(name for name in gemm_config.ACTIVATIONS if name != "none")
FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127
SETTINGS = tuple(f.name for f in fields(gemm.GemmConfig) if f.name != "activation")


def check_inputs(a: DType, b: DType, precision: object) -> None:
    """Raises BindError unless a and b may be multiplied: both bfloat16, both float16, or both
    float32 in tf32.
    """
    if not isinstance(precision, str | None) or precision not in (None, "tf32"):
        raise BindError(f'matmul: precision is None or "tf32", got {precision!r}')
    if a is not b:
        raise BindError(
            f"matmul: a is {a} and b is {b}; convert one with .astype() (NumPy) or .to() (PyTorch)"
        )
    if a is dtypes.float32:
        if precision is None:
            raise BindError(
                "matmul of float32 would run on tensor cores in tf32, with 10 bits of mantissa,"
                " and is not done unasked;"
                ' pass precision="tf32", or convert to bfloat16 or float16 yourself'
            )
    elif a not in INPUTS:
        raise BindError(
            f"matmul takes {', '.join(t.name for t in INPUTS)}, and float32 with"
            f' precision="tf32"; got {a}'
        )
    elif precision is not None:
        raise BindError(f'matmul: precision="tf32" is for float32 operands; a and b are {a}')


def check_output(out: DType, who: str = "matmul") -> None:
    """Raises BindError for a dtype that the kernel does not write."""
    if out not in OUTPUTS:
        raise BindError(f"{who} returns {', '.join(t.name for t in OUTPUTS)}, not {out}")


def check_epilogue(activation: object, alpha: object, beta: object, *, source: bool) -> None:
    """Raises BindError for an unknown activation, scales that are no numbers, or beta without a
    source.
    """
    if activation is not None and (
        not isinstance(activation, str) or activation not in ACTIVATIONS
    ):
        raise BindError(
            f"matmul: activation is None or one of {', '.join(ACTIVATIONS)}; got {activation!r}"
        )
    for name, value in (("alpha", alpha), ("beta", beta)):
        if (name == "alpha" or value is not None) and (
            not isinstance(value, int | float) or isinstance(value, bool)
        ):
            raise BindError(f"matmul: {name} must be a number, got {value!r}")
        if isinstance(value, int | float) and FLOAT32_MAX < abs(value) != math.inf:
            raise BindError(
                f"matmul: {name} is a float32, which holds up to {FLOAT32_MAX:.4g} (or inf)"
            )
    if beta not in (None, 0) and not source:
        raise BindError(
            f"matmul: beta={beta} scales source=, which is not given; out= is only written. To"
            " add to what it holds, pass"
            " source=out as well"
        )


def check_bias(name: str, bias: DType, inputs: DType, out: DType) -> None:
    """Raises BindError unless `bias` has the dtype of the operands, of the result, or float32."""
    if bias not in (inputs, out, dtypes.float32):
        raise BindError(
            f"matmul: {name} is {bias}; it may be {inputs} as the operands, {out} as the result,"
            " or float32"
        )


def config(settings: Mapping[str, Any], activation: str | None, inputs: DType) -> gemm.GemmConfig:
    """The configuration of these settings; the others have their defaults, bk 128 bytes of K."""
    everything: dict[str, Any] = {"bk": SPAN // inputs.nbytes} | dict(settings)
    return (
        gemm.GemmConfig(**everything)
        if activation is None
        else gemm.GemmConfig(**everything, activation=activation)
    )


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises BindError for names that `GemmConfig` does not have."""
    unknown = [name for name in settings if name not in SETTINGS]
    if unknown:
        raise unknown_keywords("matmul", "matmul", unknown, SETTINGS)
