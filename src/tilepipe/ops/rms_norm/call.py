"""What `rms_norm` asks of its arguments, for both kinds of arrays."""

from __future__ import annotations

import math
from numbers import Real

from tilepipe.errors import BindError
from tilepipe.ir.arrays import array_dtype
from tilepipe.kernels.rows.config import RowConfig
from tilepipe.kernels.rows.validation import ELEMENTS
from tilepipe.ops.calls import (
    ArrayT,
    Settings,
    Shape,
    check_settings,
    check_shape,
    configured,
    setting_names,
)
from tilepipe.ops.rms_norm.public import NAME, NormCall

SETTINGS = setting_names(RowConfig)


def checked(call: NormCall[ArrayT]) -> Shape:
    """(rows, columns) that the kernel sees.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an eps that is no number >= 0.
    """
    shape = tuple(call.x.shape)
    if not shape:
        raise BindError(f"{NAME}: x must have at least one dimension, it is a scalar")
    named = {"x": call.x, "weight": call.weight, "out": call.out}
    for name, x in named.items():
        if x is not None and array_dtype(x) not in ELEMENTS:
            takes = ", ".join(t.name for t in ELEMENTS)
            raise BindError(f"{NAME}: {name} is {array_dtype(x)}; it may be {takes}")
    check_shape(NAME, "weight", call.weight, shape[-1:])
    check_shape(NAME, "out", call.out, shape)
    eps = call.eps
    number = isinstance(eps, Real) and not isinstance(eps, bool)
    if not number or not (math.isfinite(eps) and eps >= 0):
        raise BindError(f"{NAME}: eps must be a number of at least 0, got {eps!r}")
    return math.prod(shape[:-1]), shape[-1]


def config(settings: Settings) -> RowConfig | None:
    """The configuration of these settings, None where there are none.

    Raises:
        BindError: a setting that `RowConfig` does not have, or a rule that it breaks.
    """
    check_settings(NAME, NormCall, settings, SETTINGS)
    return configured(RowConfig, {}, settings) if settings else None
