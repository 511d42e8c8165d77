"""The cross entropy: labels, and gradients in place. `tests/kernels/rows` has the shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.kernels.cross_entropy import sm90
from tilepipe.kernels.rows import reference
from tilepipe.kernels.rows.config import RowConfig


def operands(dtype: Any = np.float32) -> tuple[Any, ...]:
    """(x, labels, loss, lse) of 6 rows of 100 columns."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 100)).astype(dtype)
    return x, rng.integers(0, 100, 6), np.zeros(6, np.float32), np.zeros(6, np.float32)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_labels(dtype: Any) -> None:
    x, labels, loss, lse = operands()
    labels = labels.astype(dtype)
    labels[2] = 7
    sm90.bind(x, labels, loss, lse, ignore_index=7).run()
    assert loss[2] == 0
    assert reference.compare(reference.cross_entropy(loss, lse, x, labels, 7)).ok


def test_a_label_that_is_no_column_makes_the_loss_infinite() -> None:
    x, labels, loss, lse = operands()
    labels[:2] = -1, 100
    sm90.bind(x, labels, loss, lse).run()
    assert np.isinf(loss[:2]).all()
    assert np.isfinite(loss[2:]).all()


def test_the_gradient_may_take_the_place_of_the_logits() -> None:
    x, labels, loss, lse = operands(tp.bfloat16.numpy)
    labels[1] = -100
    sm90.bind(x, labels, loss, lse).run()
    before, dloss = x.copy(), np.linspace(-1, 1, 6, dtype=np.float32)
    sm90.bind_backward(x, labels, lse, dloss, None).run()
    assert reference.compare(reference.cross_entropy_backward(x, before, labels, dloss)).ok
    assert not x[1].astype(np.float32).any()


@pytest.mark.parametrize(
    "cfg",
    [RowConfig(), *(RowConfig(threads=32, warpgroups=1, parts=4, cluster=n) for n in (1, 2))],
    ids=["a group", "warps", "a cluster"],
)
@pytest.mark.parametrize("most", [2.0**20, 2.0**26])
def test_large_logits(most: float, cfg: RowConfig) -> None:
    """Σ exp has its logarithm in the loss although `lse`, a float32, has no room for it: of logits
    of which 200 are the largest, or 8 below it.
    """
    x = np.full((2, 512), most - 8, np.float32)
    x[0, :200] = x[1, 100:300] = most
    labels, loss, lse = np.array([0, 511]), np.zeros(2, np.float32), np.zeros(2, np.float32)
    sm90.bind(x, labels, loss, lse, cfg).run()
    total = np.log(200 + 312 * np.exp(-8))
    np.testing.assert_allclose(loss, [total, total + 8], rtol=1e-6)
    np.testing.assert_allclose(lse, most + total, rtol=1e-7)
    assert reference.compare(reference.cross_entropy(loss, lse, x, labels)).ok
    lost = (lse - x[[0, 1], labels]).astype(np.float32)
    assert not reference.compare(reference.cross_entropy(lost, lse, x, labels)).ok


def test_refusals() -> None:
    x, labels, loss, lse = operands()
    with refused(tp.BindError, "labels is float32; it may be int32, int64"):
        sm90.bind(x, loss, loss.copy(), lse)
    with refused(tp.BindError, "6 rows, and loss has 5 elements"):
        sm90.bind(x, labels, loss[:5], lse)
