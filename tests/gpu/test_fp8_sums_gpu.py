"""How exactly the GPU adds products of fp8, compared with the bound for results and with the
emulation from which that bound was set.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.testing.test_numerics import fast_sums, fp8
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.sm90 import bind
from tilepipe.testing.numerics import fp8_sum_error

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("k", [512, 2048, 8192])
def test_the_error_of_fp8_sums(k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = fp8(rng, 128, k), fp8(rng, 128, k)
    c = np.full((128, 128), np.nan, np.float32)
    kind = ml_dtypes.float8_e4m3fn
    bind(a.astype(kind), b.astype(kind), c, GemmConfig(bm=128, bn=128, bk=128)).launch()
    want = a @ b.T
    error = float(np.linalg.norm(c - want) / np.linalg.norm(want))
    assert fp8_sum_error(k) / 20 < error <= fp8_sum_error(k)
    emulated = fast_sums(a[:32], b[:32])
    expected = float(np.linalg.norm(emulated - want[:32, :32]) / np.linalg.norm(want[:32, :32]))
    assert error == pytest.approx(expected, rel=0.5), (
        "the emulation of tests/testing/test_numerics.py is not what this GPU does"
    )
