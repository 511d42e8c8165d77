"""The softmax: rows with infinities and NaN. `tests/kernels/rows` has the shapes."""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.kernels.rows.config import RowConfig
from tilepipe.kernels.softmax import sm90


@pytest.mark.parametrize("cfg", [None, RowConfig(threads=32, warpgroups=2, parts=8)])
def test_infinities_and_nan(cfg: RowConfig | None) -> None:
    x = np.random.default_rng(0).standard_normal((4, 1500)).astype(np.float32)
    x[0, 3:] = -np.inf  # a part that has no finite element
    x[1, 7] = np.nan
    x[2, 1400] = np.inf
    y = np.zeros_like(x)
    sm90.bind(x, y, cfg).run()
    e = np.exp(x[0, :3] - x[0, :3].max())
    assert np.allclose(y[0, :3], e / e.sum(), atol=1e-6)
    assert (y[0, 3:] == 0).all()
    assert np.isnan(y[1]).all()
    assert np.isnan(y[2, 1400])
    assert np.isclose(y[3].sum(), 1, atol=1e-5)


def test_large_values_do_not_overflow() -> None:
    x = np.array([[1e4, 1e4 - 1, -1e4]], np.float32)
    y = np.zeros_like(x)
    sm90.bind(x, y).run()
    assert np.allclose(y, [[0.7310586, 0.2689414, 0]], atol=1e-6)


@pytest.mark.parametrize("cfg", [None, RowConfig(threads=32, warpgroups=1, parts=4)])
def test_a_row_that_is_masked_whole_is_uniform(cfg: RowConfig | None) -> None:
    x = np.full((2, 1000), np.finfo(np.float32).min)
    y = np.zeros_like(x)
    sm90.bind(x, y, cfg).run()
    assert np.allclose(y, 1e-3)


def test_refusals() -> None:
    x = np.zeros((1, 4), np.float32)
    with refused(tp.BindError, "x is 1×4, y 1×3"):
        sm90.bind(x, np.zeros((1, 3), np.float32))
