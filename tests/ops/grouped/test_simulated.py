"""ops.grouped_matmul of NumPy arrays, which run on the simulated GPU."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.ops.grouped import operands
from tilepipe.kernels.gemm_grouped import reference

grouped_matmul = tp.ops.grouped_matmul


def right(c: Any, before: Any, a: Any, b: Any, offsets: Any) -> bool:
    return reference.compare(c, before, a, b.swapaxes(1, 2), offsets).ok


@pytest.mark.sampled(2)
@pytest.mark.parametrize("out_dtype", [None, "bfloat16", "float32"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"bm": 64, "consumers": 1, "bn": 32}, {"schedule": "pingpong", "cluster": 2}],
    ids=str,
)
def test_numpy(out_dtype: str | None, settings: dict[str, Any]) -> None:
    a, b, offsets = operands()
    c = grouped_matmul(a, b, offsets, out_dtype=out_dtype, seed=3, **settings)
    assert c.dtype == (np.float16 if out_dtype is None else tp.dtype(out_dtype).numpy)
    assert c.flags.c_contiguous
    assert right(c, np.zeros_like(c), a, b, offsets)


@pytest.mark.parametrize("k", [40, 37, 1, 0])
def test_numpy_layouts_and_rows_that_are_kept(k: int) -> None:
    a, b, offsets = operands(k=k, n=21)
    for left in (a, np.asfortranarray(a), np.repeat(a, 2, 0)[::2]):
        for weights in (b, np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)):
            before = np.full((100, 42), 7, np.float32)[:, ::2]
            out = before.copy()
            assert grouped_matmul(left, weights, offsets, out=out) is out
            assert right(out, before, a, b, offsets)
            assert (out[90:] == 7).all()


@pytest.mark.parametrize("shape", [(0, 40, 24), (100, 40, 0), (100, 0, 24)])
def test_numpy_without_anything(shape: tuple[int, int, int]) -> None:
    a, b, offsets = operands(*shape)
    assert grouped_matmul(a, b, offsets).shape == (shape[0], shape[2])
    none = grouped_matmul(*operands(ends=[]))
    assert none.shape == (100, 24)
    assert not none.any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": np.zeros(3, np.float16)}, "a must be (m, k), it has shape (3,)"),
        ({"b": np.zeros((40, 24), np.float16)}, "b must be (groups, k, n), it has shape (40, 24)"),
        (
            {"b": np.zeros((4, 32, 24), np.float16)},
            "a is 100×40 and b 4 times 32×24; 40 columns against 32 rows",
        ),
        ({"offsets": np.zeros(3, np.int32)}, "b has 4 groups and offsets 3 elements"),
        ({"offsets": np.zeros((4, 1), np.int32)}, "offsets must be (groups,), it has shape (4, 1)"),
        ({"offsets": np.zeros(4, np.int64)}, "offsets must be int32, got int64"),
        ({"offsets": [1, 2, 3, 4]}, "offsets must be a NumPy array as a and b are, got list"),
        (
            {"a": np.zeros((100, 40), np.float32)},
            "takes bfloat16 or float16, the same for a and b; got float32 and float16",
        ),
        (
            {"out": np.zeros((100, 25), np.float16)},
            "out must have shape (100, 24), it has (100, 25)",
        ),
        (
            {"out": np.zeros((100, 24), np.float16), "out_dtype": "float32"},
            "out is float16 and out_dtype float32",
        ),
        ({"out_dtype": "int32"}, "grouped_matmul returns bfloat16, float16, float32, not int32"),
        ({"split_k": 2}, "does not know the setting split_k; it has bm, bn"),
        ({"bm": 100}, "bm must be 64 or 128 rows"),
        ({"a": [[1.0]]}, "a must be a NumPy array or a tensor of PyTorch, got list"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_that_do_not_fit(change: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        grouped_matmul(**(dict(zip(("a", "b", "offsets"), operands(), strict=True)) | change))
