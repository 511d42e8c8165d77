"""What `grouped_matmul` asks of its arguments, for both kinds of arrays."""

from __future__ import annotations

from typing import NamedTuple

from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.common.tiling import Sm90Tiling
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.validation import blocks_of
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.validation import HALVES
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.ops.calls import (
    ArrayT,
    Setting,
    Settings,
    Shape,
    check_settings,
    check_shape,
    configured,
    require_array,
    result_dtype,
    setting_names,
)
from tilepipe.ops.grouped.public import NAME, GroupedCall

FORMS = (
    "a (m, k) and b (groups, k, n) with groups of rows of a; (groups, m, k) and (k, n) of columns"
    " of b; (m, k) and (k, n) of k; (groups, m, k) and (groups, k, n) with rows=, or without either"
)
TAKEN = {
    "rows": ("(m, k)", "(groups, k, n)"),
    "padded": ("(groups, m, k)", "(groups, k, n)"),
    "k": ("(m, k)", "(k, n)"),
}
FP8 = dtypes.float8_e4m3
# found here, for PyTorch's compiler does not trace what finds them
BATCH_SETTINGS = setting_names(GemmConfig, "activation", "early")


class Extents(NamedTuple):
    """The extents of a (m, k) and b (groups, k, n); of a (groups, m, k), whose groups have their
    own matrices, if `form` is "padded"; of b (k, n), whose groups are of k, if it is "k".
    """

    m: int
    n: int
    k: int
    groups: int
    form: str = "rows"

    @property
    def empty(self) -> bool:
        """True if there is nothing to multiply."""
        return 0 in self[:4]

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        rows = self.m, self.n
        return rows if self.form == "rows" else (self.groups, *rows)


def checked(call: GroupedCall[ArrayT]) -> tuple[Extents, DType]:
    """The extents of the products, and the dtype of the result.

    Raises:
        BindError: shapes or dtypes that do not fit together.
    """
    found = _extents(call.a, call.b, call.offsets)
    inputs = array_dtype(call.a)
    _check_scales(call, found, inputs)
    default = inputs if inputs in HALVES else dtypes.bfloat16
    dtype = result_dtype(NAME, call.out, call.out_dtype, default)
    check_shape(NAME, "out", call.out, found.shape)
    return found, dtype


def form_of(a: ArrayT, b: ArrayT) -> str:
    """What the groups are of: "rows" of a, "padded" matrices of a, or "k"."""
    return "k" if len(b.shape) == 2 else "padded" if len(a.shape) == 3 else "rows"


def _extents(a: ArrayT, b: ArrayT, offsets: ArrayT) -> Extents:
    form = form_of(a, b)
    ends = "rows" if form == "padded" else "offsets"
    left, right = TAKEN[form]
    for name, x, shape in (("a", a, left), ("b", b, right), (ends, offsets, "(groups,)")):
        if len(x.shape) != shape.count(",") + (shape[-2] != ","):
            raise BindError(
                f"{NAME}: {name} must be {shape}, it has shape {tuple(x.shape)}. It takes {FORMS}"
            )
    a_type, b_type, kind = (array_dtype(x) for x in (a, b, offsets))
    if a_type is not b_type or a_type not in (*HALVES, FP8):
        raise BindError(
            f"{NAME} takes {', '.join(t.name for t in HALVES)} or {FP8}, the same for a and b; got"
            f" {a_type} and {b_type}"
        )
    if kind is not dtypes.int32:
        raise BindError(f"{NAME}: {ends} must be int32, got {kind}")
    (m, k), (kb, n), groups = a.shape[-2:], b.shape[-2:], offsets.shape[0]
    if k != kb:
        times = "" if form == "k" else f"{b.shape[0]} times "
        raise BindError(
            f"{NAME}: a is {m}×{k} and b {times}{kb}×{n}; {k} columns against {kb} rows"
        )
    if form != "k" and groups != b.shape[0]:
        what = "how many rows it has" if form == "padded" else "the row after its last"
        raise BindError(
            f"{NAME}: b has {b.shape[0]} groups and {ends} {groups} elements; each group has"
            f" one, {what}"
        )
    if form == "padded" and a.shape[0] != groups:
        raise BindError(f"{NAME}: a has {a.shape[0]} groups and b {groups}")
    return Extents(m, n, k, groups, form)


def _check_scales(call: GroupedCall[ArrayT], found: Extents, inputs: DType) -> None:
    """Raises BindError for scales that are missing, of other operands than fp8, or that do not
    fit.
    """
    given = call.scale_a is not None, call.scale_b is not None
    if inputs in HALVES:
        if any(given):
            raise BindError(f"{NAME}: scale_a and scale_b are of {FP8}; a and b are {inputs}")
        return
    k_blocks, n_blocks = blocks_of(found.k), blocks_of(found.n)
    batch: Shape = (found.groups,) if found.form == "padded" else ()
    left: Shape = (*batch, found.m, k_blocks)
    right: Shape = (found.groups, k_blocks, n_blocks)
    of_b = f"{BLOCK}×{BLOCK}"
    if found.form == "k":
        right, of_b = (k_blocks, found.n), f"{BLOCK}×1"
    wanted = f"float32 scales of a and b, for each 1×{BLOCK} of a {left} and {of_b} of b {right}"
    if not all(given):
        missing = " and ".join(
            name for name, there in zip(("scale_a", "scale_b"), given, strict=True) if not there
        )
        raise BindError(f"{NAME} of {FP8} takes {wanted}; {missing} is not given")
    for name, x, shape in (("scale_a", call.scale_a, left), ("scale_b", call.scale_b, right)):
        assert x is not None
        if tuple(x.shape) != shape or array_dtype(x) is not dtypes.float32:
            raise BindError(
                f"{NAME} of {FP8} takes {wanted}; {name} is {array_dtype(x)} of shape"
                f" {tuple(x.shape)}"
            )


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
    require_array(NAME, "offsets", offsets)
    if tuple(offsets.shape) != (groups,):
        raise BindError(
            f"{NAME}: a has {groups} groups and offsets shape {tuple(offsets.shape)}; each group"
            " has one element, the column of b after its last"
        )
    check_shape(NAME, "out", out, (m, n))


def check_batches(
    a: ArrayT, b: ArrayT, offsets: object, scales: tuple[object, object], settings: Settings
) -> None:
    """Checks a (groups, m, k) and b (groups, k, n), groups of one size each, which `ops.matmul`
    multiplies.

    Raises:
        BindError: offsets or scales are given, the groups differ in number, or a setting that
            `GemmConfig` does not have.
    """
    if offsets is not None:
        raise BindError(
            f"{NAME}: a {tuple(a.shape)} and b {tuple(b.shape)} are a matrix for each group;"
            " offsets would be of nothing, omit them, or give rows=, how many rows of each"
            f" count. It takes {FORMS}"
        )
    if any(x is not None for x in scales):
        raise BindError(
            f"{NAME}: scale_a and scale_b of a matrix for each group go with rows=, how many rows"
            " of each count"
        )
    if a.shape[0] != b.shape[0]:
        raise BindError(f"{NAME}: a has {a.shape[0]} groups and b {b.shape[0]}")
    a_type, b_type = (array_dtype(x) for x in (a, b))
    if a_type is not b_type or a_type not in HALVES:
        raise BindError(
            f"{NAME} of one matrix for each group takes {' or '.join(t.name for t in HALVES)}, the"
            f" same for a and b; got {a_type} and {b_type}"
        )
    which = " of one matrix for each group"
    check_settings(NAME, GroupedCall, settings, BATCH_SETTINGS, which=which)


Config = GroupedGemmConfig | KGroupedGemmConfig | BlockwiseGemmConfig | KGroupedBlockwiseGemmConfig


def config(settings: Settings, inputs: DType, form: str) -> Config:
    """The configuration of these settings; the others have their defaults, bk 128 bytes of K.

    Raises:
        BindError: a setting that the configuration does not have, or a rule that it breaks.
    """
    of_k = form == "k"
    kind: type[Sm90Tiling] = KGroupedGemmConfig if of_k else GroupedGemmConfig
    if inputs is FP8:
        kind = KGroupedBlockwiseGemmConfig if of_k else BlockwiseGemmConfig
    which = f"{f' of {FP8}' if inputs is FP8 else ''}{' with groups of k' if of_k else ''}"
    check_settings(NAME, GroupedCall, settings, setting_names(kind), which=which)
    if inputs is FP8:
        return (
            configured(KGroupedBlockwiseGemmConfig, {}, settings)
            if of_k
            else configured(BlockwiseGemmConfig, {}, settings)
        )
    defaults: dict[str, Setting] = {"bk": SPAN // inputs.nbytes}
    if of_k:
        return configured(KGroupedGemmConfig, defaults, settings)
    return configured(GroupedGemmConfig, defaults, settings)
