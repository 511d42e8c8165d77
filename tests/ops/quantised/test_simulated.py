"""ops.quantised_matmul of NumPy arrays and of CPU tensors, which run on the simulated GPU."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.gemm_quantised import reference

quantised_matmul, prepare_weights = tp.ops.quantised_matmul, tp.ops.prepare_weights


def operands(m: int = 20, n: int = 24, k: int = 200, bits: int = 4, group: int = 64) -> list[Any]:
    rng = np.random.default_rng(0)
    weights, scales = reference.random_weights(rng, n, k, bits, group)
    return [
        rng.standard_normal((m, k)).astype(np.float16),
        prepare_weights(weights, bits=bits),
        scales,
    ]


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("bits", [4, 8])
def test_numpy(bits: int, activation: str) -> None:
    a, words, scales = operands(bits=bits)
    c = quantised_matmul(
        a, words, scales, group=64, activation=activation, out_dtype="float32", seed=2
    )
    assert c.dtype == np.float32
    assert reference.compare(c, a, words, scales, 64, activation).ok


@pytest.mark.parametrize(("n", "k"), [(24, 200), (21, 131), (3, 1)])
def test_layouts(n: int, k: int) -> None:
    """Rows that TMA does not take, and a result with gaps."""
    a, words, scales = operands(n=n, k=k)
    for left in (a, np.asfortranarray(a)):
        out = np.full((20, 2 * n), 7, np.float32)[:, ::2]
        assert (
            quantised_matmul(left, words, scales, group=64, out=out, bn=16, bm=64, consumers=1)
            is out
        )
        assert reference.compare(np.ascontiguousarray(out), a, words, scales, 64).ok


@pytest.mark.parametrize("shape", [(0, 24, 200), (20, 0, 200), (20, 24, 0)])
def test_nothing_to_multiply(shape: tuple[int, int, int]) -> None:
    c = quantised_matmul(*operands(*shape), group=64)
    assert c.shape == shape[:2]
    assert not c.any()


A, WORDS, SCALES = operands()
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"a": A[0]}, "a must be (m, k), bfloat16 or float16; it is float16 of shape (200,)"),
    ({"a": A.astype(np.float32)}, "it is float32 of shape (20, 200)"),
    ({"a": A[:, :100]}, "a has 100 columns, which are ⌈100 / 128⌉ = 1 blocks of K"),
    ({"weights": SCALES}, "weights must be what prepare_weights(weights, bits=...) makes"),
    ({"scales": SCALES.astype(np.float16)}, "scales must be float32 (⌈k / group⌉, n); they are"),
    ({"group": 128}, "scales must be (⌈k / group⌉, n) = (2, 24) for k = 200, group = 128"),
    ({"group": 100}, "group must be 32, 64 or a multiple of 128"),
    (
        {"activation": "swish"},
        "activation must be one of none, relu, gelu, silu, gelu_erf, got 'swish'",
    ),
    ({"out": np.zeros((3, 3), np.float16)}, "out must have shape (20, 24), it has (3, 3)"),
    ({"bnn": 64}, "does not know the setting bnn"),
    ({"weights": 3}, "weights must be a NumPy array"),
]


@pytest.mark.parametrize(("change", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_arguments_that_do_not_fit(change: dict[str, Any], words: str) -> None:
    good = {"a": A, "weights": WORDS, "scales": SCALES, "group": 64}
    with pytest.raises(tp.BindError) as caught:
        quantised_matmul(**(good | change))
    assert str(caught.value).startswith("quantised_matmul")
    assert words in str(caught.value)


def test_weights_that_cannot_be_prepared() -> None:
    for weights, words in (
        ([[1]], "prepare_weights: weights must be a NumPy array or a tensor of PyTorch, got list"),
        (np.full((2, 2), 9), "prepare_weights: weights of 4 bits are -8 to 7; there are 9 to 9"),
    ):
        with pytest.raises(tp.BindError) as caught:
            prepare_weights(weights)
        assert str(caught.value) == words


@pytest.mark.slow
def test_tensors_on_the_cpu_and_the_operator() -> None:
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(x) for x in (A, WORDS, SCALES)]
    c = quantised_matmul(*tensors, group=64)
    assert np.array_equal(c.numpy(), quantised_matmul(A, WORDS, SCALES, group=64))
    compiled = torch.compile(
        lambda *x: quantised_matmul(*x, group=64), fullgraph=True, backend="eager"
    )
    assert torch.equal(compiled(*tensors), c)
    words = "prepare_weights: weights must be a matrix (n, k) of integers; they are bfloat16 of"
    with pytest.raises(tp.BindError, match=re.escape(words)):
        prepare_weights(torch.zeros(3, 5, dtype=torch.bfloat16))
    packed = prepare_weights(torch.zeros(3, 5, dtype=torch.int8), bits=8)
    assert packed.dtype == torch.int32
    assert packed.shape == (1, 3, 32)
    tensors[0].requires_grad_()
    with pytest.raises(tp.BindError, match="quantised_matmul has no gradient"):
        quantised_matmul(*tensors, group=64)
