"""What `ops.matmul` of PyTorch tensors must give, in float64, and how far it may be off."""

from __future__ import annotations

from typing import Any

import pytest

from tilepipe.testing.numerics import ACCUMULATION, rounding

torch = pytest.importorskip("torch")

TF32 = 2.0**-10
"""Relative error of an operand in tf32: 10 bits of mantissa, rounded or cut."""

TANH = 2.0**-10
"""Relative error of tanh in a kernel: tanh.approx.f32 has 2^-11 (PTX ISA, tanh)."""


def activated(z: Any, activation: str | None) -> Any:
    if activation in ("gelu", "gelu_erf"):
        form = "tanh" if activation == "gelu" else "none"
        return torch.nn.functional.gelu(z, approximate=form)
    return z if activation is None else getattr(torch.nn.functional, activation)(z)


def check(
    got: Any,
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: str | None = None,
    source: Any = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    inputs: float = 0.0,
) -> None:
    """Asserts that every element of `got` is within its bound: that of
    `tilepipe.testing.compare_matmul`, and the error of the operands (`inputs`, relative) and of the
    activation.
    """
    x, y = a.double(), b.double()
    z = alpha * (x @ y)
    constant, eps = ACCUMULATION["float32"]
    spread = abs(alpha) * (x.abs() @ y.abs())
    if source is not None:
        z = z + beta * source.double()
        spread = spread + abs(beta) * source.double().abs()
    if bias is not None:
        # of the one column, which the result does not have
        bias = bias[0] if b.dim() == 1 else bias
        z = z + bias.double()
        spread = spread + bias.double().abs()
    want = activated(z, activation)
    assert tuple(got.shape) == tuple(want.shape)
    k = max(a.shape[-1], 1)
    name = str(got.dtype).removeprefix("torch.")
    bound = (constant * eps * k**0.5 + 2 * inputs) * spread * 1.13
    bound = bound + torch.from_numpy(rounding(name, want.cpu().numpy())).to(bound.device)
    if activation in ("gelu", "silu", "gelu_erf"):
        bound = bound + TANH * z.abs()
    error = (got.double() - want).abs()
    worst = float((error / bound.clamp_min(1e-30)).max()) if error.numel() else 0.0
    assert worst <= 1.0, f"{worst:.3g} times the allowed error"
