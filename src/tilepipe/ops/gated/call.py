"""What `gated_matmul` asks of its arguments, for both kinds of arrays."""

from __future__ import annotations

from typing import NamedTuple

from tilepipe.errors import BindError
from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.common.tiling import ACTIVATIONS
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig
from tilepipe.kernels.gemm_gated.validation import HALVES
from tilepipe.ops.calls import (
    ArrayT,
    Setting,
    Settings,
    check_settings,
    check_shape,
    configured,
    result_dtype,
    setting_names,
)
from tilepipe.ops.gated.public import NAME, GatedCall

SETTINGS = setting_names(GatedGemmConfig, "activation")


class Extents(NamedTuple):
    """The extents of a (m, k), gate and up (k, n)."""

    m: int
    n: int
    k: int

    @property
    def empty(self) -> bool:
        """True if there is nothing to multiply."""
        return 0 in self


def checked(call: GatedCall[ArrayT]) -> tuple[Extents, DType]:
    """The extents of the products, and the dtype of the result.

    Raises:
        BindError: shapes or dtypes that do not fit together, or another activation.
    """
    if not isinstance(call.activation, str) or call.activation not in ACTIVATIONS:
        raise BindError(
            f"{NAME}: activation must be one of {', '.join(ACTIVATIONS)}, got {call.activation!r}"
        )
    found = _extents(call.a, call.gate, call.up)
    dtype = result_dtype(NAME, call.out, call.out_dtype, array_dtype(call.a))
    check_shape(NAME, "out", call.out, (found.m, found.n))
    return found, dtype


def _extents(a: ArrayT, gate: ArrayT, up: ArrayT) -> Extents:
    for name, x, shape in (("a", a, "(m, k)"), ("gate", gate, "(k, n)"), ("up", up, "(k, n)")):
        if len(x.shape) != 2:
            raise BindError(f"{NAME}: {name} must be {shape}, it has shape {tuple(x.shape)}")
    types = [array_dtype(x) for x in (a, gate, up)]
    if len(set(types)) > 1 or types[0] not in HALVES:
        raise BindError(
            f"{NAME} takes {' or '.join(t.name for t in HALVES)}, the same for a, gate and up; got"
            f" {', '.join(t.name for t in types)}"
        )
    (m, k), (kb, n) = a.shape, gate.shape
    if tuple(up.shape) != (kb, n):
        raise BindError(
            f"{NAME}: gate and up must have one shape; they have {(kb, n)} and {tuple(up.shape)}"
        )
    if k != kb:
        raise BindError(
            f"{NAME}: a is {m}×{k}, gate and up are {kb}×{n}; {k} columns against {kb} rows"
        )
    return Extents(m, n, k)


def config(settings: Settings, activation: str, inputs: DType) -> GatedGemmConfig:
    """The configuration of these settings; the others have their defaults, bk 128 bytes of K.

    Raises:
        BindError: a setting that `GatedGemmConfig` does not have, or a rule that it breaks.
    """
    check_settings(NAME, GatedCall, settings, SETTINGS)
    defaults: dict[str, Setting] = {"bk": SPAN // inputs.nbytes, "activation": activation}
    return configured(GatedGemmConfig, defaults, settings)
