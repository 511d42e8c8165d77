"""The recipes of `scaled_matmul`: what the scales belong to, found by shapes and dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from tilepipe.errors import BindError
from tilepipe.ir.dtypes import dtype
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm_block_scaled.config import BlockScaledGemmConfig
from tilepipe.kernels.gemm_block_scaled.layout import KINDS, blocked_shape
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.validation import blocks_of
from tilepipe.ops.calls import ArrayT, Settings, Shape, check_settings, setting_names
from tilepipe.ops.scaled.public import NAME, ScaledCall

Config = GemmConfig | BlockwiseGemmConfig | BlockScaledGemmConfig
# Element and scale types as NumPy and PyTorch name them.
FP8 = ("float8_e4m3fn", "float8_e5m2")
UNPACKED = "float4_e2m1fn"  # NumPy's, a byte each
PACKED = ("uint8", "float4_e2m1fn_x2")  # two numbers of fp4 to a byte, along k
_KINDS = {  # (family of the elements, dtype of the scales) -> kind
    ("fp4" if kind.elements == ("float4_e2m1",) else "fp8", dtype(kind.scale).numpy.name): kind.name
    for kind in KINDS.values()
}
_SCALES = {
    family: (*others, *(x for f, x in _KINDS if f == family))
    for family, others in (("fp8", ("float32",)), ("fp4", ()))
}


class ArrayKind(NamedTuple):
    """Shape of an argument, and its dtype by name."""

    shape: Shape
    dtype: str

    @classmethod
    def of(cls, x: ArrayT) -> ArrayKind:
        """The kind of an array of NumPy or a tensor of PyTorch."""
        return cls(tuple(x.shape), str(x.dtype).removeprefix("torch."))

    def __str__(self) -> str:
        return f"{'×'.join(map(str, self.shape)) or 'a scalar'} {self.dtype}"


@dataclass(frozen=True)
class Recipe:
    """A product a (m, k) @ b (k, n) and what its scales are of: "tensor", "row" (of a, and columns
    of b), "block" (of 1×128 and 128×128), or one of `layout.KINDS`.
    """

    name: str
    m: int
    n: int
    k: int

    @property
    def config(self) -> type[GemmConfig] | type[BlockwiseGemmConfig] | type[BlockScaledGemmConfig]:
        """The class of the kernel's settings."""
        return (
            BlockScaledGemmConfig
            if self.block_scaled
            else BlockwiseGemmConfig
            if self.name == "block"
            else GemmConfig
        )

    @property
    def block_scaled(self) -> bool:
        """True if the tensor cores multiply by the scales: those of Blackwell."""
        return self.name in KINDS

    def check_settings(self, settings: Settings) -> None:
        """Raises BindError for names that the kernel's configuration does not have."""
        what = self.name if self.block_scaled else f"scales of each {self.name}"
        known = setting_names(self.config, "activation", "kind", "early")
        check_settings(NAME, ScaledCall, settings, known, which=f" with {what}")

    def check_bias(self, bias: ArrayKind | None, result: str) -> None:
        """Raises BindError for a bias that the kernel does not add, or of another shape or
        dtype.
        """
        if bias is None:
            return
        if self.name == "block":
            raise BindError(f"{NAME} with scales of blocks has no bias; add it to the result")
        if bias.shape not in ((self.n,), (self.m, 1)) or bias.dtype not in (result, "float32"):
            raise BindError(
                f"{NAME}: bias must have shape {(self.n,)}, one value a column of the product, or"
                f" {(self.m, 1)}, one value a row, and the dtype of the result, {result}, or"
                f" float32; it is {bias}"
            )


def recipe(a: ArrayKind, b: ArrayKind, scale_a: ArrayKind, scale_b: ArrayKind) -> Recipe:
    """What the scales of a product are of.

    Raises:
        BindError: operands that do not multiply, or scales that fit none of the recipes.
    """
    m, n, k, family = _extents(a, b)
    for name, x in (("scale_a", scale_a), ("scale_b", scale_b)):
        if x.dtype not in _SCALES[family]:
            raise BindError(
                f"{NAME}: {name} is {x}; scales of {a.dtype} are {' or '.join(_SCALES[family])}"
            )
    if scale_a.dtype != scale_b.dtype:
        raise BindError(
            f"{NAME}: scale_a is {scale_a.dtype} and scale_b {scale_b.dtype}; they must agree"
        )
    kind = _KINDS.get((family, scale_a.dtype))
    if kind is None:
        return Recipe(_of_float32(a, b, scale_a, scale_b, m, n, k), m, n, k)
    _check_kind(kind, scale_a, scale_b, m, n, k)
    return Recipe(kind, m, n, k)


def _check_kind(kind: str, scale_a: ArrayKind, scale_b: ArrayKind, m: int, n: int, k: int) -> None:
    block = KINDS[kind].block
    if k % block:
        raise BindError(f"{NAME}: k = {k}; a scale of {kind} is of {block} elements along k")
    blocks = k // block
    for name, x, rows, natural in (
        ("scale_a", scale_a, m, (m, blocks)),
        ("scale_b", scale_b, n, (blocks, n)),
    ):
        pieces = blocked_shape(rows, blocks)
        if x.shape not in (natural, pieces, (prod(pieces),)):
            raise BindError(
                f"{NAME}: {name} has shape {x.shape}; scales of {kind} of this product are"
                f" {natural}, or in the layout of the tensor cores (32_4_4) {pieces} or"
                f" ({prod(pieces)},)"
            )


def _extents(a: ArrayKind, b: ArrayKind) -> tuple[int, int, int, str]:
    """(m, n, k), and whether the operands are "fp8" or "fp4"."""
    for name, x in (("a", a), ("b", b)):
        if len(x.shape) != 2:
            raise BindError(f"{NAME} multiplies matrices, a (m, k) and b (k, n); {name} is {x}")
        if x.dtype not in (*FP8, UNPACKED, *PACKED):
            raise BindError(
                f"{NAME} takes {', '.join(FP8)} and fp4, packed as uint8; {name} is {x}"
            )
    families = ["fp8" if x.dtype in FP8 else "fp4" for x in (a, b)]
    if families[0] != families[1]:
        raise BindError(f"{NAME}: a is {a.dtype} and b {b.dtype}; both are fp8 or both fp4")
    (m, k), (kb, n) = a.shape, b.shape
    k, kb = (extent * (2 if x.dtype in PACKED else 1) for extent, x in ((k, a), (kb, b)))
    if k != kb:
        raise BindError(f"{NAME}: a is {a} and b is {b}; {k} columns against {kb} rows")
    return m, n, k, families[0]


def _of_float32(
    a: ArrayKind, b: ArrayKind, scale_a: ArrayKind, scale_b: ArrayKind, m: int, n: int, k: int
) -> str:
    if all(set(x.shape) <= {1} for x in (scale_a, scale_b)):
        return "tensor"
    if scale_a.shape in ((m, 1), (m,)) and scale_b.shape in ((1, n), (n,)):
        return "row"
    blocks = (m, blocks_of(k)), (blocks_of(k), blocks_of(n))
    if (scale_a.shape, scale_b.shape) == blocks:
        if (a.dtype, b.dtype) != ("float8_e4m3fn",) * 2:
            raise BindError(
                f"{NAME}: scales of blocks of 128 are for float8_e4m3fn; a is {a.dtype} and b"
                f" {b.dtype}"
            )
        return "block"
    raise BindError(
        f"{NAME}: a is {a}, b {b}; scale_a has shape {scale_a.shape} and scale_b {scale_b.shape},"
        " which is no recipe. One number for each tensor: one element each. For each row of a and"
        f" column of b: {(m, 1)} and {(1, n)}. For each 1×128 of a and 128×128 of b: {blocks[0]}"
        f" and {blocks[1]}"
    )
