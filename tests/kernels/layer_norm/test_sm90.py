"""The layer norm: options, values that cancel, and what it refuses. `tests/kernels/rows` has the
shapes.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.kernels.layer_norm import sm90
from tilepipe.kernels.rows import reference
from tilepipe.kernels.rows.config import RowConfig

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_weight_and_bias_may_be_left_out(weighted: bool, biased: bool) -> None:
    x = RNG.standard_normal((5, 100)).astype(np.float32)
    weight = RNG.standard_normal(100).astype(np.float16) if weighted else None
    bias = RNG.standard_normal(100).astype(np.float32) if biased else None
    y = np.zeros_like(x)
    sm90.bind(x, weight, bias, y).run()
    assert reference.compare(reference.layer_norm(y, x, weight, bias, 1e-5)).ok


@pytest.mark.slow
@pytest.mark.parametrize("cfg", [None, RowConfig(threads=32, warpgroups=1, parts=4, cluster=2)])
def test_a_mean_far_from_zero(cfg: RowConfig | None) -> None:
    """Where a mean of squares minus the square of the mean would have no digit left."""
    x = (4096 + RNG.standard_normal((3, 4000))).astype(np.float32)
    y = np.zeros_like(x)
    sm90.bind(x, None, None, y, cfg).run()
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    assert np.abs(y - want).max() < 2e-3


def test_refusals() -> None:
    x = np.zeros((4, 64), np.float32)
    with refused(tp.BindError, "64 columns, bias 63 elements"):
        sm90.bind(x, None, x[0, 1:], x.copy())
    with refused(tp.BindError, "parts must have shape (2, p, 64), p a multiple of the 8 rows"):
        sm90.bind_backward(
            x, None, x.copy(), x.copy(), np.zeros((2, 12, 64), np.float32), RowConfig(threads=64)
        )
