"""What `grouped_matmul` asks of its arguments, checked once for both kinds of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from tilepipe.errors import BindError
from tilepipe.host_arguments import unknown_keywords
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_grouped.sm90 import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.validation import HALVES
from tilepipe.lang.arguments.arrays import array_dtype

NAME = "grouped_matmul"
SETTINGS = tuple(f.name for f in fields(GroupedGemmConfig))


class Extents(NamedTuple):
    """Of a (m, k) and b (groups, k, n)."""

    m: int
    n: int
    k: int
    groups: int

    @property
    def empty(self) -> bool:
        """Whether there is nothing to multiply."""
        return 0 in self


def extents(a: Any, b: Any, offsets: Any) -> Extents:
    """The extents of the products.

    Raises:
        BindError: shapes or dtypes that do not fit together.
    """
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
            f"{NAME}: b has {groups} groups and offsets {offsets.shape[0]} elements; each group"
            " has one, the row behind its last"
        )
    return Extents(m, n, k, groups)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises BindError for names that `GroupedGemmConfig` does not have."""
    unknown = [name for name in settings if name not in SETTINGS]
    if unknown:
        raise unknown_keywords(NAME, "grouped_matmul", unknown, SETTINGS)


def config(settings: Mapping[str, Any], inputs: DType) -> GroupedGemmConfig:
    """The configuration of these settings; the others have their defaults, bk 128 bytes of K."""
    check_settings(settings)
    return GroupedGemmConfig(**{"bk": SPAN // inputs.nbytes} | dict(settings))
