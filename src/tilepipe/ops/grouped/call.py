"""What `grouped_matmul` asks of its arguments, for both kinds of arrays."""

from __future__ import annotations

from typing import NamedTuple

from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.validation import HALVES
from tilepipe.ops.calls import (
    ArrayT,
    Settings,
    check_settings,
    check_shape,
    configured,
    result_dtype,
    setting_names,
)
from tilepipe.ops.grouped.public import NAME, GroupedCall

SETTINGS = setting_names(GroupedGemmConfig)


class Extents(NamedTuple):
    """The extents of a (m, k) and b (groups, k, n)."""

    m: int
    n: int
    k: int
    groups: int

    @property
    def empty(self) -> bool:
        """True if there is nothing to multiply."""
        return 0 in self


def checked(call: GroupedCall[ArrayT]) -> tuple[Extents, DType]:
    """The extents of the products, and the dtype of the result.

    Raises:
        BindError: shapes or dtypes that do not fit together.
    """
    found = _extents(call.a, call.b, call.offsets)
    dtype = result_dtype(NAME, call.out, call.out_dtype, array_dtype(call.a))
    check_shape(NAME, "out", call.out, (found.m, found.n))
    return found, dtype


def _extents(a: ArrayT, b: ArrayT, offsets: ArrayT) -> Extents:
    for name, x, shape in (
        ("a", a, "(m, k)"),
        ("b", b, "(groups, k, n)"),
        ("offsets", offsets, "(groups,)"),
    ):
        if len(x.shape) != shape.count(",") + (shape[-2] != ","):
            raise BindError(f"{NAME}: {name} must be {shape}, it has shape {tuple(x.shape)}")
    a_type, b_type, kind = (array_dtype(x) for x in (a, b, offsets))
    if a_type is not b_type or a_type not in HALVES:
        raise BindError(
            f"{NAME} takes {' or '.join(t.name for t in HALVES)}, the same for a and b; got"
            f" {a_type} and {b_type}"
        )
    if kind is not dtypes.int32:
        raise BindError(f"{NAME}: offsets must be int32, got {kind}")
    (m, k), (groups, kb, n) = a.shape, b.shape
    if k != kb:
        raise BindError(
            f"{NAME}: a is {m}×{k} and b {groups} times {kb}×{n}; {k} columns against {kb} rows"
        )
    if tuple(offsets.shape) != (groups,):
        raise BindError(
            f"{NAME}: b has {groups} groups and offsets {offsets.shape[0]} elements; each group has"
            " one, the row after its last"
        )
    return Extents(m, n, k, groups)


def config(settings: Settings, inputs: DType) -> GroupedGemmConfig:
    """The configuration of these settings; the others have their defaults, bk 128 bytes of K.

    Raises:
        BindError: a setting that `GroupedGemmConfig` does not have, or a rule that it breaks.
    """
    check_settings(NAME, GroupedCall, settings, SETTINGS)
    return configured(GroupedGemmConfig, {"bk": SPAN // inputs.nbytes}, settings)
