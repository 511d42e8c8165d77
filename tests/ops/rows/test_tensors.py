"""The operations on rows of tensors on the CPU, and their gradients, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilepipe import ops

torch = pytest.importorskip("torch", exc_type=ImportError)
F = torch.nn.functional


def operands(dtype: Any = torch.float32) -> list[Any]:
    """x (3, 5, 100), weight, bias, which all require gradients."""
    torch.manual_seed(0)
    shapes = (3, 5, 100), (100,), (100,)
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


def agree(
    ours: Callable[..., Any], theirs: Callable[..., Any], inputs: list[Any], tolerance: float
) -> None:
    """Results and gradients are PyTorch's in float64."""
    wide = [x.detach().double().requires_grad_() for x in inputs]
    y, want = ours(*inputs), theirs(*wide)
    torch.testing.assert_close(y.double(), want, rtol=tolerance, atol=tolerance)
    dy = torch.randn_like(y)
    found = torch.autograd.grad(y, inputs, dy)
    for got, x in zip(found, torch.autograd.grad(want, wide, dy.double()), strict=True):
        torch.testing.assert_close(got.double(), x, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("bfloat16", 1e-2)])
def test_gradients(dtype: str, tolerance: float) -> None:
    x, weight, bias = operands(getattr(torch, dtype))
    labels = torch.randint(0, 100, (3, 5))
    labels[0, 0] = -100
    agree(ops.rms_norm, lambda x, w: F.rms_norm(x, (100,), w, 1e-6), [x, weight], tolerance)
    agree(ops.rms_norm, lambda x: F.rms_norm(x, (100,), eps=1e-6), [x], tolerance)
    norm = lambda x, w, b: F.layer_norm(x, (100,), w, b)  # noqa: E731
    agree(ops.layer_norm, norm, [x, weight, bias], tolerance)
    agree(ops.layer_norm, lambda x: F.layer_norm(x, (100,)), [x], tolerance)
    agree(ops.softmax, lambda x: torch.softmax(x, -1), [x], tolerance)
    agree(
        lambda x: ops.cross_entropy(x, labels)[0],
        lambda x: F.cross_entropy(x.flatten(0, 1), labels.flatten(), reduction="none").view(3, 5),
        [x],
        tolerance,
    )


def test_a_gradient_that_is_not_contiguous() -> None:
    x, _, _ = operands()
    ops.softmax(x).sum().backward()  # an expanded one
    assert x.grad.abs().max() < 1e-5
    loss = ops.cross_entropy(x, torch.zeros(3, 5, dtype=torch.int32))[0].mean()
    torch.autograd.grad(loss, x)


@pytest.mark.slow
def test_what_the_compiler_sees() -> None:
    x, weight, bias = operands()
    labels = torch.randint(0, 100, (3, 5))

    def loss(x: Any) -> Any:
        hidden = ops.layer_norm(ops.rms_norm(x, weight), weight, bias)
        return ops.cross_entropy(ops.softmax(hidden), labels)[0].mean()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), loss(x))
    (one,), (two,) = (torch.autograd.grad(f(x), x) for f in (compiled, loss))
    torch.testing.assert_close(one, two)


@pytest.mark.slow
def test_the_operators_are_registered_well() -> None:
    x, weight, bias = operands()
    labels = torch.randint(0, 100, (3, 5))
    for operator, arguments in (
        ("rms_norm", (x, weight)),
        ("layer_norm", (x, weight, bias)),
        ("softmax", (x,)),
        ("cross_entropy", (x, labels)),
    ):
        torch.library.opcheck(getattr(torch.ops.tilepipe, operator).default, arguments)
