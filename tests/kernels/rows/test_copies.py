"""Copies of matrices whose rows begin anywhere: right at ragged edges, verified, without spills."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe import cuda
from tilepipe.kernels.rows import copies


@pytest.mark.sampled(suite=12, classes=lambda shape, dtype: [shape, dtype])
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.int32, np.int64], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (9, 513), (8, 512), (17, 1030)], ids=str)
def test_rows_of_any_length_go_to_rows_of_another_stride(
    shape: tuple[int, int], dtype: type
) -> None:
    m, n = shape
    x: Any = np.random.default_rng(0).integers(-99, 99, shape).astype(dtype)
    whole: Any = np.full((m, n + 7), 7, dtype)
    program = copies.bind(x, whole[:, :n])
    program.run()
    assert (whole[:, :n] == x).all()
    assert (whole[:, n:] == 7).all()
    back = np.zeros_like(x)
    copies.bind(whole[:, :n], back).run()
    assert (back == x).all()
    assert cuda.compile(program.kernel).spill_bytes == 0


@pytest.mark.parametrize("rules", ["practice", "strict"])
def test_it_is_verified(rules: str) -> None:
    x, y = np.zeros((9, 70), np.float32), np.zeros((9, 70), np.float32)
    verdict = copies.bind(x, y, together=2).check(rules=rules)  # type: ignore[arg-type]
    assert verdict.ok, verdict.faults


def test_what_it_refuses() -> None:
    with pytest.raises(tp.BindError, match=r"copy_rows: x is 4×8 float32 and y 4×9 float32"):
        copies.bind(np.zeros((4, 8), np.float32), np.zeros((4, 9), np.float32))
    with pytest.raises(tp.BindError, match=r"copy_rows: x is 4×8 float32 and y 4×8 int32"):
        copies.bind(np.zeros((4, 8), np.float32), np.zeros((4, 8), np.int32))
    x = np.zeros((4, 8), np.float32)
    with pytest.raises(tp.BindError, match="copy_rows: y"):
        copies.bind(x, np.zeros((4, 16), np.float32)[:, ::2])
