"""Norms, softmax and cross entropy on the GPU: the problems of the simulator's tests, and gradients
of PyTorch tensors.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernels.rows.test_problems import PROBLEMS, ROWS, case
from tilepipe import ops

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kernel", ROWS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_right(name: str, kernel: str, backward: bool) -> None:
    made = case(kernel, name, backward)
    for perturb in (None, 1):
        made.output[...] = 7
        made.program.launch(perturb=perturb)
        assert made.verify().ok, made.verify()


@pytest.mark.parametrize("columns", [1024, 16384, 65536])
@pytest.mark.parametrize("most", [2.0**18, 2.0**22])
def test_the_loss_of_large_logits(most: float, columns: int) -> None:
    """log Σ exp is not lost beside the largest logit."""
    torch = pytest.importorskip("torch", exc_type=ImportError)
    x = most - 8 * torch.randint(0, 2, (64, columns), device="cuda").float()
    labels = torch.randint(0, columns, (64,), device="cuda")
    loss, _ = ops.cross_entropy(x, labels)
    want = torch.nn.functional.cross_entropy(x.double(), labels, reduction="none")
    assert ((loss.double() - want).abs() <= 1e-5 * want).all()


@pytest.mark.parametrize("columns", [100, 1024, 4096, 8192, 16384, 40000])
def test_gradients_of_tensors(columns: int) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    functional = torch.nn.functional
    x = torch.randn(300, columns, device="cuda", dtype=torch.bfloat16)
    weight, bias = (torch.randn(columns, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    labels = torch.randint(0, columns, (300,), device="cuda")
    calls: list[tuple[Any, Any, tuple[Any, ...]]] = [
        (ops.rms_norm, lambda x, w: functional.rms_norm(x, (columns,), w, 1e-6), (x, weight)),
        (
            ops.layer_norm,
            lambda x, w, b: functional.layer_norm(x, (columns,), w, b),
            (x, weight, bias),
        ),
        (ops.softmax, lambda x: torch.softmax(x, -1), (x,)),
        (
            lambda x: ops.cross_entropy(x, labels)[0],
            lambda x: functional.cross_entropy(x, labels, reduction="none"),
            (x,),
        ),
    ]
    for ours, theirs, inputs in calls:
        narrow = [v.detach().requires_grad_() for v in inputs]
        wide = [v.double().requires_grad_() for v in inputs]
        y, want = ours(*narrow), theirs(*wide)
        dy = torch.randn_like(y)
        found = torch.autograd.grad(y, narrow, dy)
        expected = torch.autograd.grad(want, wide, dy.double())
        for got, right in zip((y, *found), (want, *expected), strict=True):
            assert (got.double() - right).norm() <= 4e-3 * right.norm()
