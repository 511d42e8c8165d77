"""ops.gated_matmul of NumPy arrays and of CPU tensors, which run on the simulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.gemm_gated import reference

gated_matmul = tp.ops.gated_matmul


def operands(m: int = 70, k: int = 40, n: int = 24) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n), (k, n))]


@pytest.mark.parametrize("activation", ["silu", "gelu", "relu", "none", "gelu_erf"])
def test_numpy(activation: str) -> None:
    a, gate, up = operands()
    c = gated_matmul(a, gate, up, activation=activation, out_dtype="float32", seed=2)
    assert c.dtype == np.float32
    assert reference.compare(c, a, gate.T, up.T, activation).ok


@pytest.mark.parametrize("k", [40, 37, 1])
def test_layouts(k: int) -> None:
    """Weights of either order, alike or not, and rows that TMA does not take."""
    a, gate, up = operands(k=k, n=21)
    for left in (a, np.asfortranarray(a)):
        for right in (up, np.asfortranarray(up)):
            out = np.full((70, 42), 7, np.float32)[:, ::2]
            assert gated_matmul(left, gate, right, out=out, bm=64, consumers=1, bn=128) is out
            assert reference.compare(np.ascontiguousarray(out), a, gate.T, up.T).ok


@pytest.mark.parametrize("shape", [(0, 40, 24), (70, 40, 0), (70, 0, 24)])
def test_nothing_to_multiply(shape: tuple[int, int, int]) -> None:
    c = gated_matmul(*operands(*shape))
    assert c.shape == (shape[0], shape[2])
    assert not c.any()


A, GATE, UP = operands()
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"a": A[0]}, "a must be (m, k), it has shape (40,)"),
    ({"up": UP[:, :8]}, "gate and up must have one shape; they have (40, 24) and (40, 8)"),
    ({"a": A[:, :8]}, "a is 70×8, gate and up are 40×24; 8 columns against 40 rows"),
    ({"a": A.astype(np.float32)}, "the same for a, gate and up; got float32, float16, float16"),
    (
        {"activation": "swish"},
        "activation must be one of none, relu, gelu, silu, gelu_erf, got 'swish'",
    ),
    ({"activation": []}, "activation must be one of none, relu, gelu, silu, gelu_erf, got []"),
    ({"out": np.zeros((3, 3), np.float16)}, "out must have shape (70, 24), it has (3, 3)"),
    ({"bnn": 64}, "does not know the setting bnn"),
    ({"up": 3}, "up must be a NumPy array"),
    ({"up": [1]}, "up must be a NumPy array"),
]


@pytest.mark.parametrize(("change", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_arguments_that_do_not_fit(change: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        gated_matmul(**({"a": A, "gate": GATE, "up": UP} | change))
    assert str(caught.value).startswith("gated_matmul")
    assert words in str(caught.value)


@pytest.mark.slow
def test_tensors_on_the_cpu_and_the_operator() -> None:
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(x) for x in (A, GATE, UP)]
    c = gated_matmul(*tensors)
    assert np.array_equal(c.numpy(), gated_matmul(A, GATE, UP))
    compiled = torch.compile(lambda *x: gated_matmul(*x), fullgraph=True, backend="eager")
    assert torch.equal(compiled(*tensors), c)
    tensors[2].requires_grad_()
    with pytest.raises(tp.BindError, match="gated_matmul has no gradient"):
        gated_matmul(*tensors)
