"""ops.rms_norm of NumPy arrays, and of tensors on the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe import ops
from tilepipe.kernels.rms_norm.reference import compare


@pytest.mark.parametrize("shape", [(7,), (3, 40), (2, 3, 100), (2, 0, 8), (5, 0)])
def test_any_rank(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    w = rng.standard_normal(shape[-1]).astype(np.float32)
    y = ops.rms_norm(x, w, eps=1e-5)
    assert (y.shape, y.dtype, y.flags.c_contiguous) == (x.shape, x.dtype, True)
    assert y.size == 0 or compare(y, x, w, 1e-5).ok


def test_out() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 40)).astype(ml_dtypes.bfloat16)
    out = np.zeros((6, 80), np.float32)[:, ::2]
    assert ops.rms_norm(x, out=out) is out
    assert compare(out, x, None, 1e-6).ok
    before = x.copy()
    assert ops.rms_norm(x, out=x, threads=8, warpgroups=1) is x
    assert compare(x, before, None, 1e-6).ok


def test_arrays_in_other_orders() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 6)).astype(np.float32).T
    assert compare(ops.rms_norm(x), x, None, 1e-6).ok


X = np.zeros((2, 16), np.float32)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((X, X[0, :5]), {}, "weight must have shape (16,)"),
        ((X, X), {}, "weight must have shape (16,), it has (2, 16)"),
        ((X,), {"out": X[:1]}, "out must have shape (2, 16)"),
        ((X,), {"eps": -1.0}, "eps must be a number of at least 0, got -1.0"),
        ((X,), {"eps": float("nan")}, "eps must be a number"),
        ((X,), {"thread": 3}, "Did you mean threads="),
        ((X.astype(np.int32),), {}, "x is int32; it may be bfloat16"),
        ((X[0, 0],), {}, "x must be"),
        ((np.zeros((1, 131073), np.float32),), {}, "it may have 131072"),
        (([1.0],), {}, "x must be a NumPy array or a tensor"),
    ],
)
def test_refusals(arguments: tuple[Any, ...], options: dict[str, Any], words: str) -> None:
    with refused(tp.BindError, words):
        ops.rms_norm(*arguments, **options)


@pytest.mark.slow
def test_tensors_on_the_cpu() -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    torch.manual_seed(0)
    x, w = torch.randn(3, 200, dtype=torch.bfloat16), torch.randn(200, dtype=torch.bfloat16)
    wide = torch.nn.functional.rms_norm(x.float(), (200,), w.float(), 1e-6)
    y = ops.rms_norm(x, w)
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(y.float(), wide, rtol=4e-3, atol=1e-5)
    wider = torch.empty(3, 200)
    assert ops.rms_norm(x, w, out=wider) is wider
    torch.testing.assert_close(wider, wide, rtol=1e-5, atol=1e-6)
    compiled = torch.compile(lambda x: ops.rms_norm(x, w) * 2, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), y * 2)
    with refused(tp.BindError, "out= has no gradient"):
        ops.rms_norm(x.float().requires_grad_(), out=wider)
    torch.library.opcheck(torch.ops.tilepipe.rms_norm.default, (x, w))
