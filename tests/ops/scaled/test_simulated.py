"""ops.scaled_matmul of NumPy arrays: every recipe, any shape and layout; scales that fit no recipe
are told what would.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.cases.ops.scaled import E4M3, E5M2, RECIPES, SHAPES, Array, Operands, operands
from tilepipe.kernels.gemm_block_scaled import reference
from tilepipe.kernels.gemm_block_scaled.layout import KINDS, to_blocked

BF16 = np.dtype(ml_dtypes.bfloat16)
scaled_matmul = tp.ops.scaled_matmul
A, B = np.zeros((32, 160), E4M3), np.zeros((160, 48), E4M3)


def f32(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


ROWS = (f32(32, 1), f32(1, 48))
BLOCKS = (f32(32, 2), f32(2, 1))


def check(x: Operands, bias: Array | None = None, **options: Any) -> Array:
    c: Array = scaled_matmul(*x.all, bias=bias, **options)
    comparison = x.compare(c, bias)
    assert comparison.ok, comparison
    assert c.flags.c_contiguous
    return c


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("recipe", RECIPES)
def test_any_size(recipe: str, shape: tuple[int, int, int]) -> None:
    assert check(operands(recipe, shape)).dtype == BF16


@pytest.mark.parametrize("recipe", ["tensor", "row"])
@pytest.mark.parametrize("dtypes", [(E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)], ids=str)
def test_any_mix_of_fp8(recipe: str, dtypes: tuple[Any, Any]) -> None:
    check(operands(recipe, (70, 40, 90), dtypes))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("out", ["bfloat16", "float16", "float32"])
def test_output_dtypes(recipe: str, out: str) -> None:
    assert check(operands(recipe, (70, 40, 150)), out_dtype=out).dtype == tp.dtype(out).numpy


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "row": np.ascontiguousarray,
    "column": np.asfortranarray,
    "every second": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "read-only": lambda x: np.broadcast_to(x, x.shape),
}


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_operands_and_scales(recipe: str, layout: str) -> None:
    x = operands(recipe, (72, 136, 260))
    kept = [array.copy() for array in x.all]
    check(Operands(*(LAYOUTS[layout](array) for array in x.all)))
    for array, before in zip(x.all, kept, strict=True):
        assert (array.astype(np.float32) == before.astype(np.float32)).all()


def test_scales_of_rows_may_be_vectors_and_that_of_a_tensor_a_scalar() -> None:
    x = operands("row", (70, 40, 90))
    check(Operands(x.a, x.b, x.scale_a[:, 0], x.scale_b[0]))
    y = operands("tensor", (70, 40, 90))
    check(Operands(y.a, y.b, y.scale_a.reshape(()), y.scale_b[0]))


@pytest.mark.parametrize("recipe", ["tensor", "row"])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_bias(recipe: str, dtype: Any) -> None:
    check(
        operands(recipe, (70, 40, 90)),
        bias=np.random.default_rng(3).standard_normal(40).astype(dtype),
    )


@pytest.mark.parametrize("recipe", ["tensor", "row"])
def test_a_bias_of_rows(recipe: str) -> None:
    x, bias = operands(recipe, (70, 40, 96)), np.arange(210, dtype=np.float32).reshape(70, 3)
    check(x, bias=bias[:, 1:2], out_dtype="float32")
    empty = scaled_matmul(*operands(recipe, (70, 40, 0)).all, bias=bias[:, :1])
    assert (empty == bias[:, :1].astype(BF16)).all()


@pytest.mark.parametrize("recipe", RECIPES)
def test_out(recipe: str) -> None:
    x = operands(recipe, (70, 40, 150))
    for out in (
        np.zeros((70, 40), np.float32),
        np.zeros((40, 70), np.float16).T,
        np.zeros((70, 80), BF16)[:, ::2],
    ):
        assert scaled_matmul(*x.all, out=out) is out
        assert x.compare(np.ascontiguousarray(out)).ok


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("shape", [(0, 4, 8), (4, 0, 8), (4, 4, 0), (0, 0, 0)], ids=str)
def test_zero_sizes(recipe: str, shape: tuple[int, int, int]) -> None:
    m, n, _ = shape
    c = scaled_matmul(*operands(recipe, shape).all)
    assert (c.shape, c.dtype) == ((m, n), BF16)
    assert not c.astype(np.float32).any()
    if recipe != "block":
        bias = np.arange(n, dtype=np.float32)
        assert (
            scaled_matmul(*operands(recipe, shape).all, bias=bias).astype(np.float32) == bias
        ).all()


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_scale_that_is_no_number_makes_its_products_none(recipe: str) -> None:
    x = operands(recipe, (20, 30, 200))
    x.scale_a[-1, -1] = np.nan
    c = scaled_matmul(*x.all).astype(np.float32)
    assert np.isnan(c[-1]).all()
    assert recipe == "tensor" or not np.isnan(c[:-1]).any()


@pytest.mark.slow
def test_settings_are_those_of_the_kernel() -> None:
    check(operands("row", (300, 200, 300)), bm=64, consumers=1, bn=64, accumulate="promote")
    check(operands("block", (300, 200, 300)), bm=64, consumers=1, bn=64, cluster=2)
    with pytest.raises(
        tp.BindError,
        match="scales of each block does not know the setting accumulate, bk; it has bm, bn, "
        "stages",
    ):
        scaled_matmul(*operands("block", (8, 8, 8)).all, bk=64, accumulate="fast")
    with pytest.raises(tp.BindError, match="scales of each row does not know the setting splits"):
        scaled_matmul(*operands("row", (8, 8, 8)).all, splits=2)
    with pytest.raises(tp.BindError, match="bm must be 64, 128 or 192 rows"):
        scaled_matmul(*operands("row", (8, 8, 8)).all, bm=65)


def test_seed_and_progress_reach_the_simulator() -> None:
    seen: list[tuple[int, int]] = []
    check(
        operands("row", (300, 200, 300)),
        seed=3,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen
    assert seen[-1][0] == seen[-1][1]


# -- scales that the tensor cores multiply by ------------------------------------------


def quantized(kind: str, m: int, n: int, k: int) -> tuple[Any, Any, Any, Any, Any, Any]:
    """(a, b, scale_a, scale_b, and the scales of the whole) of a kind, in the orientation of `a @
    b`.
    """
    rng = np.random.default_rng(m + k)
    x, y = (rng.standard_normal((rows, k)).astype(np.float32) for rows in (m, n))
    if kind == "nvfp4":
        (a, sa, whole_a), (b, sb, whole_b) = (
            reference.quantize_nvfp4(x),
            reference.quantize_nvfp4(y),
        )
        return a, b.T, sa, sb.T, whole_a, whole_b
    (a, sa), (b, sb) = (reference.quantize_mx(z, KINDS[kind].elements[0]) for z in (x, y))
    return a, b.T, sa, sb.T, None, None


def check_kind(c: Array, given: tuple[Any, ...], scale: Any = 1.0) -> None:
    a, b, scale_a, scale_b, *_ = given
    comparison = reference.compare(np.ascontiguousarray(c), a, scale_a, b.T, scale_b.T, scale)
    assert comparison.ok, comparison


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [(1, 1, 32), (70, 40, 96), (129, 136, 352), (8, 300, 1024)], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_block_scaled(kind: str, shape: tuple[int, int, int]) -> None:
    """Scales as matrices, and in the layout of the tensor cores."""
    given = a, b, scale_a, scale_b, *_ = quantized(kind, *shape)
    c = scaled_matmul(a, b, scale_a, scale_b)
    assert c.dtype == BF16
    check_kind(c, given)
    blocked = to_blocked(scale_a), to_blocked(scale_b.T)
    for scales in (blocked, tuple(x.reshape(-1) for x in blocked)):
        again = scaled_matmul(a, b, *scales)
        assert again.tobytes() == c.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_options_of_block_scaled(kind: str) -> None:
    given = a, b, scale_a, scale_b, *_ = quantized(kind, 70, 40, 96)
    scales: tuple[Array, Array] = (scale_a, scale_b)
    out = np.zeros((40, 70), np.float32).T
    assert scaled_matmul(a, b, *scales, out=out, cta_group=2, cluster=2, bn=64) is out
    check_kind(out, given)
    for bias in (np.arange(40, dtype=np.float32), np.arange(70, dtype=np.float32)[:, None]):
        assert np.allclose(
            scaled_matmul(a, b, *scales, out_dtype="float32", bias=bias), out + bias, atol=1e-4
        )
    layouts = (
        np.asfortranarray(a),
        np.ascontiguousarray(b),
        np.asfortranarray(scale_a),
        np.ascontiguousarray(scale_b),
    )
    check_kind(scaled_matmul(*layouts), given)
    assert not scaled_matmul(a[:, :0], b[:0], scale_a[:, :0], scale_b[:0]).astype(np.float32).any()
    with pytest.raises(
        tp.BindError,
        match=f"with {kind} does not know the setting consumers, kind; it has bm, bn, bk",
    ):
        scaled_matmul(a, b, *scales, consumers=2, kind="mxfp8")


def test_numbers_of_fp4_may_be_unpacked() -> None:
    given = a, b, scale_a, scale_b, *_ = quantized("mxfp4", 70, 40, 96)
    check_kind(
        scaled_matmul(
            reference.unpack_fp4(a), reference.unpack_fp4(b.T.copy()).T, scale_a, scale_b
        ),
        given,
    )


def test_scales_of_the_whole() -> None:
    given = a, b, scale_a, scale_b, whole_a, whole_b = quantized("nvfp4", 70, 40, 96)
    c = scaled_matmul(a, b, (scale_a, np.array([whole_a])), [scale_b, whole_b], out_dtype="float32")
    check_kind(c, given, np.float64(whole_a) * np.float64(whole_b))
    check_kind(
        scaled_matmul(a, b, (scale_a, whole_a), scale_b, out_dtype="float32"), given, whole_a
    )
    with pytest.raises(
        tp.BindError,
        match=r"scale_a is the scales, or a pair of them: of the blocks, and of the whole "
        r"tensor; got 3",
    ):
        scaled_matmul(a, b, (scale_a, whole_a, 1), scale_b)
    with pytest.raises(
        tp.BindError, match=r"the scale of a whole tensor is one float32, .*got 2\.0"
    ):
        scaled_matmul(a, b, (scale_a, 2.0), scale_b)
    with pytest.raises(
        tp.BindError, match="go together in mxfp8, mxfp4, nvfp4; these are of each row"
    ):
        scaled_matmul(A, B, (ROWS[0], whole_a), ROWS[1])


def e8m0(*shape: int) -> Array:
    return np.zeros(shape, reference.E8M0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            lambda: (A, B, e8m0(32, 4), e8m0(5, 48)),
            "scale_a has shape (32, 4); scales of mxfp8 of this product are (32, 5), or in the"
            " layout of the tensor cores (32_4_4) (1, 2, 32, 16) or (1024,)",
        ),
        (
            lambda: (A, B, e8m0(32, 5), e8m0(48, 5)),
            "scale_b has shape (48, 5); scales of mxfp8 of this product are (5, 48)",
        ),
        (
            lambda: (A, B, e8m0(32, 5), f32(1, 48)),
            "scale_a is float8_e8m0fnu and scale_b float32; they must agree",
        ),
        (
            lambda: (A[:, :100], B[:100], e8m0(32, 4), e8m0(4, 48)),
            "k = 100; a scale of mxfp8 is of 32 elements along k",
        ),
        (
            lambda: (A.view(np.uint8), B, e8m0(32, 5), e8m0(5, 48)),
            "a is uint8 and b float8_e4m3fn; both are fp8 or both fp4",
        ),
        (
            lambda: (A.view(np.uint8), B.view(np.uint8), *ROWS),
            "scales of uint8 are float8_e8m0fnu or float8_e4m3fn",
        ),
    ],
)
def test_scales_of_blocks_that_do_not_fit(
    arguments: Callable[[], tuple[Any, ...]], words: str
) -> None:
    with pytest.raises(tp.BindError) as caught:
        scaled_matmul(*arguments())
    assert words in str(caught.value)


# -- refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (A, B, f32(32, 2), f32(1, 48)),
            "a is 32×160 float8_e4m3fn, b 160×48 float8_e4m3fn; scale_a has shape (32, 2) and"
            " scale_b (1, 48), which is no recipe. One"
            " number for each tensor: one element each. For each row of a and column of b: (32,"
            " 1) and (1, 48). For each 1×128 of a and"
            " 128×128 of b: (32, 2) and (2, 1)",
        ),
        ((A, B, f32(1, 32), ROWS[1]), "which is no recipe"),
        ((A, B, f32(0), f32(0)), "scale_a has shape (0,) and scale_b (0,), which is no recipe"),
        ((A, B, f32(32, 0), f32(0, 48)), "which is no recipe"),
        ((A, B, ROWS[0], f32(48, 1)), "which is no recipe"),
        ((A, B, *(x.T for x in BLOCKS)), "which is no recipe"),
        (
            (A, B, ROWS[0].astype(np.float64), ROWS[1]),
            "scale_a is 32×1 float64; scales of float8_e4m3fn are float32 or float8_e8m0fnu",
        ),
        ((A, B, ROWS[0], ROWS[1].astype(BF16)), "scale_b is 1×48 bfloat16"),
        (
            (A, B.astype(E5M2), *BLOCKS),
            "scales of blocks of 128 are for float8_e4m3fn; a is float8_e4m3fn and b float8_e5m2",
        ),
        ((A, B[:80], *ROWS), "160 columns against 80 rows"),
        ((A[0], B, *ROWS), "multiplies matrices, a (m, k) and b (k, n); a is 160 float8_e4m3fn"),
        ((A[None], B, *ROWS), "multiplies matrices"),
        (
            (A.astype(np.float16), B, *ROWS),
            "takes float8_e4m3fn, float8_e5m2 and fp4, packed as uint8; a is 32×160 float16",
        ),
        ((A, B, 1.0, f32(1)), "scale_a must be a NumPy array as a and b are, got float"),
        ((A, [1], *ROWS), "b must be a NumPy array or a tensor of PyTorch, got list"),
    ],
    ids=lambda x: x[:40] if isinstance(x, str) else "",
)
def test_arguments_that_do_not_fit(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        scaled_matmul(*arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("scales", "options", "words"),
    [
        (
            ROWS,
            {"bias": f32(47)},
            (
                "bias must have shape (48,), one value a column of the product, or (32, 1), one"
                " value a row, and the dtype of the result, bfloat16, or float32; it is 47 float32"
            ),
        ),
        (ROWS, {"bias": np.zeros(48, np.float16)}, "it is 48 float16"),
        (ROWS, {"bias": f32(48, 1)}, "it is 48×1 float32"),
        (BLOCKS, {"bias": f32(48)}, "scales of blocks has no bias; add it to the result"),
        (
            ROWS,
            {"out": f32(32, 47)},
            "scaled_matmul: out must have shape (32, 48), it has (32, 47)",
        ),
        (ROWS, {"out": [1]}, "scaled_matmul: out must be a NumPy array"),
        (
            ROWS,
            {"out": f32(32, 48), "out_dtype": "bfloat16"},
            "out is float32 and out_dtype bfloat16",
        ),
        (
            ROWS,
            {"out_dtype": "int32"},
            "scaled_matmul returns bfloat16, float16, float32, not int32",
        ),
        (ROWS, {"out": np.broadcast_to(f32(1, 48), (32, 48))}, "out is written, and its elements"),
    ],
    ids=lambda x: x[:40] if isinstance(x, str) else "",
)
def test_options_that_do_not_fit(
    scales: tuple[Any, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        scaled_matmul(A, B, *scales, **options)
