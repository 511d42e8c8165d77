"""The sums of columns, in a fixed order."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import cuda
from tilepipe.kernels.rows.column_sums import column_sums


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 1, 1), "float32"), ((2, 300, 70), "bfloat16"), ((1, 128, 64), "float16")],
)
def test_sums(shape: tuple[int, int, int], dtype: str) -> None:
    parts = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    out = np.zeros((shape[0], shape[2]), tp.dtype(dtype).numpy)
    program = column_sums.bind(parts, out)
    program.run()
    assert (out == parts.sum(1).astype(out.dtype)).all()
    assert cuda.compile(program.kernel).spill_bytes == 0
    assert program.check().verdict == "verified"
