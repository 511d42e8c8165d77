"""What is no array, in the place of any operand beside tensors: one message, in the name of the
operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilepipe as tp
from tilepipe import ops

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

ENDS = torch.tensor([16, 32], dtype=torch.int32)


def half(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.bfloat16)


def eight(*shape: int) -> Any:
    return half(*shape).to(torch.float8_e4m3fn)


def float32(*shape: int) -> Any:
    return torch.ones(shape)


WEIGHTS = torch.zeros(16, 128, dtype=torch.int8)
CALLS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "matmul": (ops.matmul, [half(16, 16), half(16, 16)]),
    "gated": (ops.gated_matmul, [half(16, 16), half(16, 16), half(16, 16)]),
    "groups of rows": (ops.grouped_matmul, [half(32, 16), half(2, 16, 16), ENDS]),
    "groups of k": (ops.grouped_matmul, [half(16, 32), half(32, 16), ENDS]),
    "groups of one size": (ops.grouped_matmul, [half(2, 16, 32), half(2, 32, 16)]),
    "groups of columns": (ops.grouped_matmul, [half(2, 16, 32), half(32, 16), ENDS]),
    "scaled": (
        ops.scaled_matmul, [eight(16, 16), eight(16, 16).t(), float32(16, 1), float32(1, 16)],
    ),
    "quantised": (
        ops.quantised_matmul, [half(16, 128), ops.prepare_weights(WEIGHTS), float32(1, 16)],
    ),
    "weights": (ops.prepare_weights, [WEIGHTS]),
    "attention": (ops.attention, [half(1, 16, 1, 64)] * 3),
    "decode": (ops.attention_decode, [half(1, n, 1, 64) for n in (1, 64, 64)]),
    "append": (
        ops.append_kv,
        [*(half(1, n, 1, 64) for n in (64, 64, 1, 1)), torch.ones(1, dtype=torch.int32)],
    ),
    "gradients": (ops.attention_backward, [half(1, 16, 1, 64)] * 5 + [float32(1, 1, 16)]),
    "rms_norm": (ops.rms_norm, [half(4, 16), half(16)]),
    "layer_norm": (ops.layer_norm, [half(4, 16), half(16), half(16)]),
    "softmax": (ops.softmax, [half(4, 16)]),
    "entropy": (ops.cross_entropy, [half(4, 16), torch.zeros(4, dtype=torch.int64)]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "place"),
    [(name, i) for name, (_, operands) in CALLS.items() for i in range(len(operands))],
    ids=str,
)
def test_what_is_no_array_is_named(call: str, place: int) -> None:
    function, operands = CALLS[call]
    given = [*operands]
    given[place] = "x"
    with pytest.raises(tp.BindError, match=rf"^{function.__name__}.*"):
        function(*given)
