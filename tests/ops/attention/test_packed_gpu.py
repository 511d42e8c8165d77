"""ops.attention of packed PyTorch tensors: simulated on the CPU; plans and the operator, with
launches emulated on the CPU.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.ops.attention.test_packed import arrays, call
from tilepipe.kernels.attention.packed_reference import compare_packed

torch = pytest.importorskip("torch")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

from tests.support.ops.emulated_attention import Emulator, gpu  # noqa: E402

__all__ = ["gpu"]
attention: Any = tp.ops.attention
pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of its own parts


def tensors() -> list[Any]:
    *given, q_bounds, k_bounds = arrays()
    floats = [torch.from_numpy(x.view("uint16")).view(torch.bfloat16) for x in given]
    return [*floats, torch.from_numpy(q_bounds), torch.from_numpy(k_bounds)]


def right(out: Any, lse: Any, **options: Any) -> None:
    got = out.view(torch.uint16).numpy().view(tp.bfloat16.numpy)
    assert compare_packed(got, *arrays(), lse=lse.numpy(), **options).ok


@pytest.mark.slow
def test_tensors_on_the_cpu_are_simulated() -> None:
    right(*call(*tensors(), causal=True, return_lse=True), causal=True)


@pytest.mark.slow
def test_values_and_plans(gpu: Emulator) -> None:
    given = tensors()
    for _ in range(2):
        right(*call(*given, return_lse=True))
    assert (gpu.launches, len(gpu.bound)) == (2, 1)
    assert gpu.bound[0]["cfg"].schedule == "dynamic"
    room = torch.zeros_like(given[0])
    assert call(*given, out=room) is room
    assert not torch.equal(room, torch.zeros_like(room))


def test_without_keys_rows_in_no_sequence_are_not_written(gpu: Emulator) -> None:
    q = torch.ones((6, 1, 64), dtype=torch.float16)
    out, bounds = torch.full_like(q, 7), torch.tensor([2, 5], dtype=torch.int32)
    call(q, q[:0], q[:0], bounds, torch.zeros(2, dtype=torch.int32), out=out)
    assert out[:, 0, 0].tolist() == [7, 7, 0, 0, 0, 7]
    assert gpu.launches == 0


@pytest.mark.slow
def test_rows_in_no_sequence_keep_what_out_has(gpu: Emulator) -> None:
    """Under the compiler, too, where the operator has a result of its own."""
    q, k, v, q_bounds, k_bounds = tensors()
    padded = torch.cat([q[:3], q, q[:5]])
    given = padded, k, v, q_bounds + 3, k_bounds
    out, compiled_out = (torch.full_like(padded, 7) for _ in range(2))
    assert call(*given, out=out) is out
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    compiled(*given, out=compiled_out)
    assert bool((out[:3] == 7).all())
    assert bool((out[-5:] == 7).all())
    assert torch.equal(out, compiled_out)
    right(out[3:-5], call(*tensors(), return_lse=True)[1])


@pytest.mark.slow
def test_the_longest_sequence_is_no_reason_to_compile_again(gpu: Emulator) -> None:
    """Once for the first number, and once for any."""
    counter = CompileCounterWithBackend("aot_eager")

    def step(q: Any, k: Any, v: Any, q_bounds: Any, k_bounds: Any, longest: int) -> Any:
        packed = {"cu_seqlens_q": q_bounds, "cu_seqlens_k": k_bounds}
        return attention(q, k, v, max_seqlen_q=longest, max_seqlen_k=longest, **packed)

    compiled = torch.compile(step, fullgraph=True, backend=counter)
    for longest in range(64, 70):
        compiled(*tensors(), longest)
    assert counter.frame_count == 2


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(gpu: Emulator, dynamic: bool) -> None:
    def step(*given: Any) -> Any:
        return call(*given, causal=True, align="first", return_lse=True)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    out, lse = compiled(*tensors())
    assert lse.shape == (4, 77)
    right(out, lse, causal=True, align="first")
