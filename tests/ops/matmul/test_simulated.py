"""ops.matmul is `a @ b`, whatever the layout and the size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe.testing import compare_matmul

Array = npt.NDArray[Any]
BF16 = ml_dtypes.bfloat16


def matrix(shape: tuple[int, ...], dtype: Any = BF16, seed: int = 0) -> Array:
    result: Array = (
        np.random.default_rng(seed).standard_normal(shape, dtype=np.float32).astype(dtype)
    )
    return result


def check(a: Array, b: Array, **options: Any) -> Array:
    c: Array = tp.ops.matmul(a, b, **options)
    comparison = compare_matmul(c, a, b)
    assert comparison.ok, comparison
    assert c.flags.c_contiguous
    return c


@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1),
        (1, 8, 3),
        (7, 5, 9),
        (128, 128, 64),
        (129, 65, 63),
        (200, 1, 300),
        (1, 300, 200),
        (300, 130, 250),
    ],
)
def test_any_size(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    assert check(matrix((m, k)), matrix((k, n), seed=1)).dtype == BF16


@pytest.mark.parametrize(
    "shape", [(100, 60, 1), (100, 1, 60), (1, 100, 60), (100, 1, 1), (1, 1, 100), (1, 100, 1)]
)
@pytest.mark.parametrize("orders", ["CC", "FF"])
def test_extents_of_one(shape: tuple[int, int, int], orders: str) -> None:
    """An extent of 1 has a stride of no meaning: either order describes the array, but TMA may take
    only one.
    """
    m, n, k = shape
    a, b = matrix((m, k)), matrix((k, n), seed=1)
    check(np.asarray(a, order=orders[0]), np.asarray(b, order=orders[1]))  # type: ignore[call-overload]
    check(np.ones((m, k), BF16), np.ones((k, n), BF16))


@pytest.mark.parametrize("dtype", [BF16, np.float16])
@pytest.mark.parametrize("out", [None, "float32", "bfloat16", "float16"])
def test_dtypes(dtype: Any, out: str | None) -> None:
    c = check(matrix((70, 90), dtype), matrix((90, 50), dtype, 1), out_dtype=out)
    assert c.dtype == (
        np.dtype(dtype)
        if out is None
        else tp.ops.matmul(matrix((1, 1)), matrix((1, 1)), out_dtype=out).dtype
    )


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "row": lambda x: x,
    "column": np.asfortranarray,
    "transposed view": lambda x: np.ascontiguousarray(x.T).T,
    "every second": lambda x: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "offset view": lambda x: np.pad(x, ((1, 2), (3, 1)))[1:-2, 3:-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "read-only": lambda x: _readonly(x),
}


def _readonly(x: Array) -> Array:
    y = x.copy()
    y.flags.writeable = False
    return y


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("side", ["a", "b"])
def test_any_layout(layout: str, side: str) -> None:
    a, b = matrix((72, 40)), matrix((40, 56), seed=1)
    before = a.copy(), b.copy()
    if side == "a":
        a = LAYOUTS[layout](a)
    else:
        b = LAYOUTS[layout](b)
    kept = a.copy(), b.copy()
    check(a, b)
    assert np.array_equal(kept[0], a)
    assert np.array_equal(kept[1], b)
    assert before[0].shape == a.shape


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((7,), (7,)),
        ((40,), (40, 9)),
        ((9, 40), (40,)),
        ((2, 3, 40), (40, 9)),
        ((1, 3, 8), (1, 1, 8, 5)),
    ],
    ids=str,
)
def test_shapes_are_those_of_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = matrix(left), matrix(right, seed=1)
    c = tp.ops.matmul(a, b)
    want = np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert c.shape == want.shape
    assert np.allclose(c.astype(np.float64), want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("kind", ["new", "every second", "transposed", "an operand"])
def test_out(kind: str) -> None:
    a, b = matrix((24, 24)), matrix((24, 24), seed=1)
    want = tp.ops.matmul(a, b)
    out = {
        "new": np.empty((24, 24), BF16),
        "every second": np.empty((24, 48), BF16)[:, ::2],
        "transposed": np.empty((24, 24), BF16).T,
    }.get(kind, a)
    assert tp.ops.matmul(a, b, out=out) is out
    assert np.array_equal(out, want)


@pytest.mark.parametrize("shape", [(0, 4, 4), (4, 0, 4), (4, 4, 0), (0, 0, 0)])
def test_zero_sizes_give_what_numpy_gives(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = matrix((m, k), np.float16), matrix((k, n), np.float16)
    c, want = tp.ops.matmul(a, b), a @ b
    assert c.shape == want.shape
    assert c.dtype == want.dtype
    assert np.array_equal(c, want)


def test_nan_and_infinity_come_out_where_numpy_has_them() -> None:
    a, b = matrix((64, 64), np.float16), matrix((64, 64), np.float16, 1)
    a[3, 5], a[10, 0], b[7, 20] = np.nan, np.inf, -np.inf
    c = tp.ops.matmul(a, b, out_dtype="float32")
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float32) @ b.astype(np.float32)
    assert np.array_equal(np.isnan(c), np.isnan(want))
    assert np.array_equal(np.isinf(c), np.isinf(want))


@pytest.mark.slow
def test_settings_reach_the_kernel() -> None:
    a, b = matrix((300, 200)), matrix((200, 260), seed=1)
    for settings in (
        {"cluster": 2},
        {"bn": 256, "bk": 128, "stages": 2},
        {"consumers": 1, "bm": 64},
        {"k_group_size": 3, "stages": 2},
        {"raster": "rows"},
    ):
        check(a, b, **settings)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_interleaving_gives_the_same_numbers(seed: int) -> None:
    a, b = matrix((256, 320)), matrix((320, 192), seed=1)
    assert np.array_equal(tp.ops.matmul(a, b, seed=seed), tp.ops.matmul(a, b))


@pytest.mark.parametrize(
    ("a", "b", "options", "words"),
    [
        (matrix((2, 3)), matrix((4, 2)), {}, ["2×3", "4×2", "3 columns against 4 rows"]),
        (matrix((2, 3)), matrix(()), {}, ["at least 1 dimension", "()"]),
        (matrix((2, 4, 8)), matrix((3, 8, 4)), {}, ["batches 2", "3", "do not broadcast"]),
        (matrix((2, 2)), matrix((2, 2)), {"precision": "tf32"}, ["tf32", "bfloat16"]),
        (matrix((2, 2)), matrix((2, 2)), {"precision": "high"}, ["precision", "high"]),
        (matrix((2, 2)), matrix((2, 2)), {"activation": "tanh"}, ["relu, gelu, silu", "'tanh'"]),
        (matrix((2, 2)), matrix((2, 2)), {"beta": 2.0}, ["source=out"]),
        (matrix((2, 2)), matrix((2, 2)), {"alpha": "2"}, ["alpha must be a number"]),
        (
            matrix((2, 2)),
            matrix((2, 2)),
            {"bias": matrix((3,))},
            ["bias must have shape (2,)", "(3,)"],
        ),
        (
            matrix((2, 2)),
            matrix((2, 3)),
            {"bias": matrix((3, 1))},
            ["(3,), one value a column of the product, or (2, 1), one value a row", "(3, 1)"],
        ),
        (
            matrix((2, 2)),
            matrix((2, 2)),
            {"bias": matrix((2,), np.float64)},
            ["bias is float64", "float32"],
        ),
        (
            matrix((2, 2)),
            matrix((2, 2)),
            {"bias": [1.0, 2.0]},
            ["bias must be a NumPy array", "list"],
        ),
        (
            matrix((2, 2)),
            matrix((2, 2)),
            {"source": matrix((3, 2))},
            ["(3, 2) does not broadcast to (2, 2)"],
        ),
        (
            matrix((2, 2)),
            matrix((2, 2)),
            {"source": matrix((2, 2), np.float16)},
            ["source is float16", "bfloat16"],
        ),
        (
            matrix((2, 2)),
            matrix((2, 2)),
            {"out": matrix((2, 3))},
            ["out must have shape (2, 2)", "(2, 3)"],
        ),
        (
            matrix((2, 2)),
            matrix((2, 2)),
            {"out": matrix((2, 2)), "out_dtype": "float32"},
            ["out is bfloat16 and out_dtype float32"],
        ),
        (
            matrix((2, 2)),
            matrix((2, 2)),
            {"out": [[0.0, 0.0]]},
            ["out must be a NumPy array", "list"],
        ),
        ([[1.0]], matrix((1, 1)), {}, ["a must be a NumPy array", "list"]),
        (None, matrix((1, 1)), {}, ["NoneType"]),
        (matrix((2, 2), np.float32), matrix((2, 2), np.float32), {}, ["float32", "tf32"]),
        (
            matrix((2, 2), np.float64),
            matrix((2, 2), np.float64),
            {},
            ["bfloat16, float16", "float64"],
        ),
        (np.ones((2, 2), np.int32), np.ones((2, 2), np.int32), {}, ["int32"]),
        (np.ones((2, 2), object), np.ones((2, 2), object), {}, ["unknown dtype"]),
        (matrix((2, 2), np.dtype(">f2")), matrix((2, 2), np.float16), {}, ["unknown dtype"]),
        (matrix((2, 2)), matrix((2, 2), np.float16), {}, ["bfloat16", "float16", ".astype"]),
        (matrix((2, 2)), matrix((2, 2)), {"out_dtype": "float64"}, ["not float64"]),
        (matrix((2, 2)), matrix((2, 2)), {"out_dtype": "floaty"}, ["unknown dtype 'floaty'"]),
        (matrix((2, 2)), matrix((2, 2)), {"depth": 3}, ["depth", "stages"]),
        (matrix((2, 2)), matrix((2, 2)), {"bn": 100}, ["bn must be a multiple of"]),
        (matrix((2, 2)), matrix((2, 2)), {"bm": "big"}, ["bm"]),
    ],
)
def test_bad_input_is_one_clear_error(
    a: Any, b: Any, options: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(tp.BindError) as caught:
        tp.ops.matmul(a, b, **options)
    for word in words:
        assert word in str(caught.value)


def test_too_much_shared_memory_shows_the_arithmetic() -> None:
    with pytest.raises(
        tp.LimitError, match=r"shared memory: [\d,]+ bytes needed, 232,448 available"
    ):
        tp.ops.matmul(matrix((64, 64)), matrix((64, 64)), bn=128, bm=256, stages=6)


def test_scalars_of_numpy_are_numbers() -> None:
    a, b = np.ones((8, 16), np.float16), np.ones((16, 8), np.float16)
    twos: list[Any] = [np.float32(2), np.float64(2), np.int64(2)]
    for two in twos:
        assert (
            tp.ops.matmul(a, b, alpha=two, source=np.ones((8, 8), np.float16), beta=two) == 34
        ).all()
    with pytest.raises(tp.BindError, match="alpha must be a number"):
        tp.ops.matmul(a, b, alpha=np.True_)  # type: ignore[arg-type]


@pytest.mark.parametrize("big", [10**400, -1e39])
def test_scalars_are_float32(big: float) -> None:
    a, b = np.ones((8, 16), np.float16), np.ones((16, 8), np.float16)
    with pytest.raises(tp.BindError, match=r"alpha is a float32, which holds up to 3\.403e\+38"):
        tp.ops.matmul(a, b, alpha=big)
    assert np.isinf(tp.ops.matmul(a, b, alpha=float("inf"))).all()


@pytest.mark.parametrize(
    "out",
    [
        np.broadcast_to(np.zeros(8, np.float16), (8, 8)),
        np.frombuffer(bytes(128), np.float16).reshape(8, 8),
    ],
)
def test_out_that_cannot_be_written(out: np.ndarray[Any, Any]) -> None:
    with pytest.raises(tp.BindError, match="out is written, and it"):
        tp.ops.matmul(np.ones((8, 16), np.float16), np.ones((16, 8), np.float16), out=out)
