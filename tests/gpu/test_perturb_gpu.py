"""`tilepipe.testing.perturb` on the GPU: delays change no bit of a right kernel, and a change is
reported.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.testing.kernels import bind_doubled, bind_split
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.sm90 import bind
from tilepipe.testing import compare_matmul, perturb

pytestmark = pytest.mark.gpu


def test_a_ring() -> None:
    program, a, out = bind_doubled(rows=11)
    perturb(program, seeds=range(1, 5))
    np.testing.assert_array_equal(out, 2 * a)


def test_what_is_read_and_written_is_set_back() -> None:
    program = bind_split()
    perturb(program, seeds=range(1, 3))
    low: Any = program.launch_args.args["low"]
    np.testing.assert_array_equal(low.array, np.arange(32) - 3)


@pytest.mark.parametrize("cluster", [1, 2])
def test_a_gemm(cluster: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((300, 520), (264, 520))
    )
    c = np.zeros((300, 264), ml_dtypes.bfloat16)
    perturb(bind(a, b, c, GemmConfig(bm=128, bn=128, stages=3, cluster=cluster)), seeds=range(1, 4))
    assert compare_matmul(c, a, b.T).ok
