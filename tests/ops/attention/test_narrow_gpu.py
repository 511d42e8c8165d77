"""ops.attention of PyTorch tensors of float8_e4m3, with launches emulated on the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.ops.attention.test_narrow import operands, scaled, scales

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tests.support.ops.emulated_attention import Emulator, gpu  # noqa: E402
from tilepipe.kernels.attention.reference import compare_attention  # noqa: E402
from tilepipe.ops.attention import gpu as torch_attention  # noqa: E402
from tilepipe.ops.attention.plan import plans  # noqa: E402

__all__ = ["gpu"]
pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of its own parts
attention = tp.ops.attention
E4M3 = torch.float8_e4m3fn


def tensors(*arrays: Any) -> list[Any]:
    return [torch.from_numpy(x.view(np.uint8)).view(E4M3) for x in arrays]


def right(out: Any, lse: Any, *arrays: Any, **options: Any) -> None:
    got = out.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    found = compare_attention(got, *arrays, lse=lse.numpy(), **options)
    assert found.ok, found


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_values_are_turned_and_factors_reach_the_kernel(gpu: Emulator, layout: str) -> None:
    arrays = operands(d=128, d_v=64)
    of_q, of_k, of_v = scales()
    descales = dict(
        zip(("q_descale", "k_descale"), (torch.from_numpy(x) for x in (of_q, of_k)), strict=True)
    )
    given = [x if layout == "bshd" else x.transpose(1, 2) for x in tensors(*arrays)]
    for _ in range(2):
        out, lse = attention(
            *given, v_descale=0.5, causal=True, layout=layout, return_lse=True, **descales
        )
        got = out if layout == "bshd" else out.transpose(1, 2)
        right(got, lse, *arrays, causal=True, **scaled(of_q, of_k, np.full_like(of_v, 0.5)))
    assert (gpu.launches, gpu.turns, len(gpu.bound)) == (2, 2, 1)
    assert gpu.bound[0]["cfg"].accumulate == "promote"


def test_dtypes_of_results(gpu: Emulator) -> None:
    q, k, v = tensors(*operands())
    assert attention(q, k, v).dtype == torch.bfloat16
    halves = attention(q, k, v, out_dtype=torch.float16)
    assert halves.dtype == torch.float16
    out = torch.empty((2, 70, 4, 64), dtype=torch.float16)
    assert attention(q, k, v, out=out) is out
    assert torch.equal(out, halves)
    assert not bool(attention(q, k[:, :0], v[:, :0]).any())
    assert attention(q, k[:, :0], v[:, :0]).dtype == torch.bfloat16


@pytest.mark.slow
def test_numbers_for_q_and_k_under_the_compiler(gpu: Emulator) -> None:
    q, k, v = tensors(*operands(20, 20))

    def f(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, q_descale=2.0, k_descale=0.5)

    compiled = torch.compile(f, fullgraph=True, backend="eager")
    assert torch.equal(compiled(q, k, v), f(q, k, v))


@pytest.mark.slow
def test_under_the_compiler_and_without_data(gpu: Emulator) -> None:
    q, k, v = tensors(*operands())
    descale = torch.from_numpy(scales()[0])

    def f(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, causal=True, q_descale=descale, k_descale=2.0, v_descale=3.0)

    assert torch.equal(torch.compile(f, fullgraph=True, backend="eager")(q, k, v), f(q, k, v))
    with FakeTensorMode():
        fake = [torch.empty(x.shape, dtype=E4M3) for x in (q, k, v)]
        for dtype, wanted in ((None, torch.bfloat16), (torch.float16, torch.float16)):
            made, _ = torch_attention.operator(*fake, out_dtype=dtype)
            assert (made.dtype, made.shape) == (wanted, q.shape)


@pytest.mark.slow
def test_numbers_and_broadcast_tensors_are_no_part_of_a_plan(gpu: Emulator) -> None:
    """A scale may change with each call: no new plan, and no other kernel."""
    arrays = operands()
    given = tensors(*arrays)
    ones = np.ones((2, 2), np.float32)
    forms = [0.5, 0.25, torch.tensor(2.0), torch.ones(1), torch.full((1, 1), 3.0).expand(2, 2)]
    for x in forms:
        out, lse = attention(*given, v_descale=x, return_lse=True)
        right(out, lse, *arrays, v_scales=ones * float(torch.as_tensor(x).flatten()[0]))
    assert (gpu.launches, len(gpu.bound), len(plans.plans)) == (5, 1, 1)


@pytest.mark.slow
def test_a_descale_that_requires_a_gradient_is_refused(gpu: Emulator) -> None:
    q, k, v = tensors(*operands())
    for name in ("q_descale", "k_descale", "v_descale"):
        of_heads = torch.ones((2, 2), requires_grad=True)
        with pytest.raises(tp.BindError, match="no gradient with operands of float8_e4m3, and an"):
            attention(q, k, v, **{name: of_heads})
        with torch.no_grad():
            assert attention(q, k, v, **{name: of_heads}).dtype == torch.bfloat16
