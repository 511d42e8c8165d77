"""The order in which the simulator reduces fragments."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases.reductions import row_sum
from tilepipe.sim.reductions import extremes, reduced_rows


@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize("layout", ["wgmma", "rows:1", "rows:4", "rows:128"])
def test_rows_are_added_in_the_order_of_threads(rows: int, layout: str) -> None:
    threads = 0 if layout == "wgmma" else int(layout[5:])
    x = np.random.default_rng(rows).standard_normal((rows, 1024)).astype(np.float32)
    got = reduced_rows(x, "add", threads)
    assert got[:, 0].tolist() == [row_sum(row, layout) for row in x]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, x.sum(1, keepdims=True, dtype=np.float64), atol=1e-3)


@pytest.mark.parametrize(("op", "of_nans"), [("max", -np.inf), ("min", np.inf)])
def test_an_extreme_passes_over_nan_and_orders_zeros(op: str, of_nans: float) -> None:
    x = np.array([[np.nan, np.nan], [0.0, -0.0], [-0.0, 0.0], [np.nan, 3]], np.float32)
    zero = 0.0 if op == "max" else -0.0
    want = np.array([[of_nans], [zero], [zero], [3]], np.float32)
    assert extremes(x, op, 1).tobytes() == want.tobytes()


def test_integers_keep_their_bits() -> None:
    x = np.array([[2**31 - 1, 1]], np.int32)
    assert reduced_rows(x, "add", 0).tolist() == [[-(2**31)]]
    assert extremes(x, "min", 1).tolist() == [[1]]
