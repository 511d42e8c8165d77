"""What `quantised_matmul` asks of its arguments, for both kinds of arrays."""

from __future__ import annotations

from typing import NamedTuple

from tilepipe.errors import BindError
from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.dtypes import DType, float32, int32
from tilepipe.kernels.common.tiling import ACTIVATIONS
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.layout import bits_of
from tilepipe.kernels.gemm_quantised.validation import HALVES, check_extents, check_group
from tilepipe.ops.calls import (
    ArrayT,
    Settings,
    check_settings,
    check_shape,
    configured,
    result_dtype,
    setting_names,
)
from tilepipe.ops.quantised.public import NAME, QuantisedCall

SETTINGS = setting_names(QuantisedGemmConfig, "activation")


class Extents(NamedTuple):
    """The extents of a (m, k) and weights (n, k), and the bits of a weight."""

    m: int
    n: int
    k: int
    bits: int

    @property
    def empty(self) -> bool:
        """True if there is nothing to multiply."""
        return 0 in self


def checked(call: QuantisedCall[ArrayT]) -> tuple[Extents, DType]:
    """The extents of the product, and the dtype of the result.

    Raises:
        BindError: shapes or dtypes that do not fit together, or another activation or group.
    """
    if not isinstance(call.activation, str) or call.activation not in ACTIVATIONS:
        raise BindError(
            f"{NAME}: activation must be one of {', '.join(ACTIVATIONS)}, got {call.activation!r}"
        )
    check_group(NAME, call.group)
    if len(call.a.shape) != 2 or array_dtype(call.a) not in HALVES:
        raise BindError(
            f"{NAME}: a must be (m, k), {' or '.join(t.name for t in HALVES)}; it is"
            f" {array_dtype(call.a)} of shape {tuple(call.a.shape)}"
        )
    if len(call.weights.shape) != 3 or array_dtype(call.weights) is not int32:
        raise BindError(
            f"{NAME}: weights must be what prepare_weights(weights, bits=...) makes, int32 with 3"
            f" dimensions; they are {array_dtype(call.weights)} of shape"
            f" {tuple(call.weights.shape)}"
        )
    if len(call.scales.shape) != 2 or array_dtype(call.scales) is not float32:
        raise BindError(
            f"{NAME}: scales must be float32 (⌈k / group⌉, n); they are"
            f" {array_dtype(call.scales)} of shape {tuple(call.scales.shape)}"
        )
    check_extents(NAME, call.a, call.weights, call.scales, call.group)
    (m, k), (_, n, words) = call.a.shape, call.weights.shape
    dtype = result_dtype(NAME, call.out, call.out_dtype, array_dtype(call.a))
    check_shape(NAME, "out", call.out, (m, n))
    return Extents(m, n, k, bits_of(words) or 0), dtype


def config(settings: Settings, activation: str) -> QuantisedGemmConfig:
    """The configuration of these settings; the others have their defaults.

    Raises:
        BindError: a setting that `QuantisedGemmConfig` does not have, or a rule that it breaks.
    """
    check_settings(NAME, QuantisedCall, settings, SETTINGS)
    return configured(QuantisedGemmConfig, {"activation": activation}, settings)
