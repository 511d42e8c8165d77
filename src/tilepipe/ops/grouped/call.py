"""What `grouped_matmul` asks of its arguments, for both kinds of arrays."""

from __future__ import annotations

from typing import NamedTuple

from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.validation import HALVES
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
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
from tilepipe.ops.grouped.public import NAME, GroupedCall

FORMS = (
    "a (m, k) and b (groups, k, n) with groups of rows of a; (groups, m, k) and (k, n) of columns"
    " of b; (m, k) and (k, n) of k; (groups, m, k) and (groups, k, n) without offsets"
)


class Extents(NamedTuple):
    """The extents of a (m, k) and b (groups, k, n), whose groups are of rows of a, or, `along_k`,
    of a (m, k) and b (k, n), whose groups are of k.
    """

    m: int
    n: int
    k: int
    groups: int
    along_k: bool = False

    @property
    def empty(self) -> bool:
        """True if there is nothing to multiply."""
        return 0 in self[:4]

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        rows = self.m, self.n
        return (self.groups, *rows) if self.along_k else rows


def checked(call: GroupedCall[ArrayT]) -> tuple[Extents, DType]:
    """The extents of the products, and the dtype of the result.

    Raises:
        BindError: shapes or dtypes that do not fit together.
    """
    found = _extents(call.a, call.b, call.offsets)
    dtype = result_dtype(NAME, call.out, call.out_dtype, array_dtype(call.a))
    check_shape(NAME, "out", call.out, found.shape)
    return found, dtype


def _extents(a: ArrayT, b: ArrayT, offsets: ArrayT) -> Extents:
    along_k = len(b.shape) == 2
    for name, x, shape in (
        ("a", a, "(m, k)"),
        ("b", b, "(k, n)" if along_k else "(groups, k, n)"),
        ("offsets", offsets, "(groups,)"),
    ):
        if len(x.shape) != shape.count(",") + (shape[-2] != ","):
            raise BindError(
                f"{NAME}: {name} must be {shape}, it has shape {tuple(x.shape)}. It takes {FORMS}"
            )
    a_type, b_type, kind = (array_dtype(x) for x in (a, b, offsets))
    if a_type is not b_type or a_type not in HALVES:
        raise BindError(
            f"{NAME} takes {' or '.join(t.name for t in HALVES)}, the same for a and b; got"
            f" {a_type} and {b_type}"
        )
    if kind is not dtypes.int32:
        raise BindError(f"{NAME}: offsets must be int32, got {kind}")
    (m, k), (kb, n), groups = a.shape, b.shape[-2:], offsets.shape[0]
    if k != kb:
        times = "" if along_k else f"{b.shape[0]} times "
        raise BindError(
            f"{NAME}: a is {m}×{k} and b {times}{kb}×{n}; {k} columns against {kb} rows"
        )
    if not along_k and groups != b.shape[0]:
        raise BindError(
            f"{NAME}: b has {b.shape[0]} groups and offsets {groups} elements; each group has"
            " one, the row after its last"
        )
    return Extents(m, n, k, groups, along_k)


def check_columns(a: ArrayT, b: ArrayT, offsets: ArrayT, out: ArrayT | None) -> None:
    """Checks the shapes of a (groups, m, k) and b (k, n), whose groups are of columns of b, before
    they are transposed: then rows of b are those of the groups.

    Raises:
        BindError: they do not fit together.
    """
    (groups, m, k), (kb, n) = a.shape, b.shape
    if k != kb:
        raise BindError(
            f"{NAME}: a is {groups} times {m}×{k} and b {kb}×{n}; {k} columns against {kb} rows"
        )
    if tuple(offsets.shape) != (groups,):
        raise BindError(
            f"{NAME}: a has {groups} groups and offsets shape {tuple(offsets.shape)}; each group"
            " has one element, the column of b after its last"
        )
    check_shape(NAME, "out", out, (m, n))


def check_batches(a: ArrayT, b: ArrayT, offsets: object, settings: Settings) -> None:
    """Checks a (groups, m, k) and b (groups, k, n), groups of one size each, which `ops.matmul`
    multiplies.

    Raises:
        BindError: offsets are given, the groups differ in number, or a setting that `GemmConfig`
            does not have.
    """
    if offsets is not None:
        raise BindError(
            f"{NAME}: a {tuple(a.shape)} and b {tuple(b.shape)} are a matrix for each group;"
            f" offsets would be of nothing, leave them away. It takes {FORMS}"
        )
    if a.shape[0] != b.shape[0]:
        raise BindError(f"{NAME}: a has {a.shape[0]} groups and b {b.shape[0]}")
    names = setting_names(GemmConfig, "activation", "early")
    check_settings(NAME, GroupedCall, settings, names, which=" of one matrix for each group")


def config(
    settings: Settings, inputs: DType, along_k: bool
) -> GroupedGemmConfig | KGroupedGemmConfig:
    """The configuration of these settings; the others have their defaults, bk 128 bytes of K.

    Raises:
        BindError: a setting that the configuration does not have, or a rule that it breaks.
    """
    kind = KGroupedGemmConfig if along_k else GroupedGemmConfig
    which = " with groups of k" if along_k else ""
    check_settings(NAME, GroupedCall, settings, setting_names(kind), which=which)
    defaults: dict[str, Setting] = {"bk": SPAN // inputs.nbytes}
    if along_k:
        return configured(KGroupedGemmConfig, defaults, settings)
    return configured(GroupedGemmConfig, defaults, settings)
