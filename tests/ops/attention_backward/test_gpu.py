"""`ops.attention_backward` of PyTorch tensors on a GPU, which those on the CPU are taken for:
prepared launches, emulated in the memory that they are given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import ops
from tilepipe.kernels.attention.reference import attention
from tilepipe.kernels.attention_backward import reference, sm90_bind as kernel
from tilepipe.ops.attention_backward.call import BackwardCall

torch = pytest.importorskip("torch")

from tests.support.ops.emulated_programs import Emulator  # noqa: E402
from tilepipe.ops.attention_backward import gpu as torch_backward  # noqa: E402
from tilepipe.ops.torch import device  # noqa: E402

PROGRAMS = "bind_prepare", "bind", "bind_finish"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    emulator.replace(monkeypatch, kernel, *PROGRAMS)
    torch_backward.plans.forget()
    return emulator


def launched(gpu: Emulator) -> list[str]:
    return [x.name for x in gpu.launched]


def problem(
    s_q: int = 40, s_kv: int = 140, heads: int = 2, kv_heads: int = 1, d: int = 64
) -> list[Any]:
    """dout, q, k, v, out and lse of a causal attention, float16."""
    rng = np.random.default_rng(0)
    q, k, v, dout = (
        rng.standard_normal((1, *x, d)).astype(np.float16)
        for x in ((s_q, heads), (s_kv, kv_heads), (s_kv, kv_heads), (s_q, heads))
    )
    out, lse = attention(q, k, v, causal=True)
    arrays = dout, q, k, v, out.astype(np.float16), lse.astype(np.float32)
    return [torch.from_numpy(x) for x in arrays]


def right(got: Any, given: list[Any], dlse: Any = None) -> None:
    arrays = (x.numpy() for x in given[:4])
    dq, dk, dv = (x.numpy() for x in got)
    others = None if dlse is None else dlse.numpy()
    found = reference.compare((dq, dk, dv), *arrays, causal=True, dlse=others)
    assert all(x.ok for x in found), found


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_prepared_call_is_prepared_once(gpu: Emulator, deterministic: bool) -> None:
    given = problem()
    options: dict[str, Any] = {"causal": True, "deterministic": deterministic}
    right(ops.attention_backward(*given, **options), given)
    assert gpu.bound == launched(gpu) == list(PROGRAMS)
    others = [x.clone() for x in given]
    others[0] *= 2  # dout
    right(ops.attention_backward(*others, **options), others)
    assert len(gpu.bound) == 3
    assert launched(gpu) == [*PROGRAMS, *PROGRAMS]
    ops.attention_backward(*given, causal=True, deterministic=not deterministic)
    assert len(gpu.bound) == 6


@pytest.mark.slow
def test_gradients_that_tma_cannot_read_are_copied_at_each_launch(gpu: Emulator) -> None:
    """Of a sum dout is one number, expanded; dlse may be a view."""
    given, wide = problem(), torch.randn(1, 2, 80)
    for factor in (1, 3):
        given[0] = torch.full((), float(factor), dtype=torch.float16).expand(given[0].shape)
        dlse = (wide * factor)[..., ::2]
        right(ops.attention_backward(*given, causal=True, dlse=dlse), given, dlse)
    assert len(gpu.bound) == 3


def test_the_first_call_of_each_kind_is_checked(gpu: Emulator) -> None:
    dout, q, k, v, out, lse = problem()
    for _ in range(2):
        with pytest.raises(tp.BindError, match="lse must be float32"):
            ops.attention_backward(dout, q, k, v, out, lse[..., :3])
        with pytest.raises(tp.BindError, match="dout, the gradient of out, must have its shape"):
            ops.attention_backward(dout[:, :1], q, k, v, out, lse)
        with pytest.raises(tp.BindError, match=r"attention_backward: k: .*must be contiguous"):
            ops.attention_backward(dout, q, torch.stack([k, k], -1)[..., 0], v, out, lse)
        with pytest.raises(tp.BindError, match="lse must be a tensor of PyTorch"):
            ops.attention_backward(dout, q, k, v, out, lse.numpy())
    assert gpu.bound == []


def test_the_operator_casts_no_gradient_and_broadcasts_none(gpu: Emulator) -> None:
    dout, *given = problem()
    with pytest.raises(tp.BindError, match="dout, the gradient of out, must have its shape"):
        torch.ops.tilepipe.attention_backward(dout[:, :1], *given)
    with pytest.raises(tp.BindError, match="dout is float32; it must be float16"):
        torch.ops.tilepipe.attention_backward(dout.float(), *given)


def test_nothing_to_multiply_is_no_launch(gpu: Emulator) -> None:
    dout, q, k, v, out, lse = problem()
    for x in ops.attention_backward(dout, q, k[:, :0], v[:, :0], out, lse):
        assert not x.any()
    assert gpu.launched == []


def test_the_chip_of_the_tensors_reaches_the_kernels(
    gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heuristic counts its SMs."""
    half = replace(tp.H200, name="half an H200", sms=66)
    monkeypatch.setattr(device, "hopper", lambda ordinal, operation: half)
    options: list[Any] = [None, True, None, "last", True, "bshd"]
    torch_backward._prepare(BackwardCall(*problem(), *options))
    assert gpu.chips == [half] * 3
