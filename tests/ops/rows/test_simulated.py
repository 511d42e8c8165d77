"""layer_norm, softmax and cross_entropy of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe import ops
from tilepipe.kernels.rows import reference

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 7, 40)).astype(np.float32)


def test_any_rank() -> None:
    weight, bias = (RNG.standard_normal(40).astype(np.float32) for _ in range(2))
    flat = X.reshape(21, 40)
    y = ops.layer_norm(X, weight, bias)
    assert y.shape == X.shape
    want = reference.layer_norm(y.reshape(21, 40), flat, weight, bias, 1e-5)
    assert reference.compare(want).ok
    y = ops.softmax(X, threads=8, warpgroups=1)
    assert reference.compare(reference.softmax(y.reshape(21, 40), flat)).ok
    labels = RNG.integers(0, 40, (3, 7))
    loss, lse = ops.cross_entropy(X, labels)
    assert loss.shape == lse.shape == (3, 7)
    found = reference.cross_entropy(loss.ravel(), lse.ravel(), flat, labels.ravel())
    assert reference.compare(found).ok


def test_nothing_to_do() -> None:
    empty = np.zeros((0, 8), np.float32)
    assert ops.layer_norm(empty).shape == ops.softmax(empty).shape == (0, 8)
    assert ops.cross_entropy(empty, np.zeros(0, np.int64))[0].shape == (0,)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ops.layer_norm(X, X[0, 0, :5]), "weight must have shape (40,)"),
        (lambda: ops.layer_norm(X, eps=-1.0), "eps must be a number of at least 0"),
        (lambda: ops.softmax(X, thread=3), "does not know the setting thread"),
        (lambda: ops.softmax(X[0, 0, 0]), "x must"),
        (lambda: ops.softmax([1.0]), "x must be a NumPy array or a tensor"),
        (lambda: ops.cross_entropy(X, np.zeros((3, 6), np.int64)), "labels must have shape (3, 7)"),
        (lambda: ops.cross_entropy(X, np.zeros((3, 7), np.float32)), "labels is float32"),
        (lambda: ops.softmax(X.astype(np.int32)), "x is int32"),
    ],
)
def test_refusals(call: Any, words: str) -> None:
    with refused(tp.BindError, words):
        call()
