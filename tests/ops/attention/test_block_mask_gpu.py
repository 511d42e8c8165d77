"""ops.attention of PyTorch tensors under block masks: simulated on the CPU; plans and the operator,
with launches emulated on the CPU.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.ops.attention.test_block_mask import BLOCK, arrays
from tilepipe.kernels.attention.reference import compare_attention

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tests.support.ops.emulated_attention import Emulator, gpu  # noqa: E402

__all__ = ["gpu"]
pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of its own parts
attention = tp.ops.attention


def tensors() -> tuple[list[Any], Any]:
    given, mask = arrays()
    floats = [torch.from_numpy(x.view("uint16")).view(torch.bfloat16) for x in given]
    return floats, torch.from_numpy(mask)


def right(results: Any, mask: Any, **options: Any) -> None:
    out, lse = results
    got = out.view(torch.uint16).numpy().view(tp.bfloat16.numpy)
    blocks: dict[str, Any] = {"block_mask": mask.numpy(), "block_size": BLOCK}
    q, k, v = arrays()[0]
    assert compare_attention(got, q, k, v, lse=lse.numpy(), **blocks, **options).ok


def call(given: list[Any], mask: Any) -> Any:
    options: dict[str, Any] = {"causal": True, "return_lse": True}
    return attention(*given, block_mask=mask, block_size=BLOCK, **options)


@pytest.mark.slow
def test_tensors_on_the_cpu_are_simulated() -> None:
    given, mask = tensors()
    right(call(given, mask), mask, causal=True)


@pytest.mark.slow
def test_values_and_plans(gpu: Emulator) -> None:
    """One plan for all masks of a shape, whose lists are written anew each time."""
    given, mask = tensors()
    for each in (mask, ~mask, mask):
        right(call(given, each), each, causal=True)
    assert (gpu.lists, gpu.launches, len(gpu.bound)) == (3, 3, 1)
    cfg = gpu.bound[0]["cfg"]
    assert (cfg.bm, cfg.bn, cfg.schedule) == (64, 32, "dynamic")
    attention(*given)
    assert (gpu.lists, gpu.launches, len(gpu.bound)) == (3, 4, 2)


@pytest.mark.slow
def test_masks_of_another_layout_have_a_plan_of_their_own(gpu: Emulator) -> None:
    given, mask = tensors()
    right(call(given, mask), mask, causal=True)
    wide = torch.zeros((1, 4, 8, 10), dtype=torch.bool)
    wide[:, :, ::2] = mask
    right(call(given, wide[:, :, ::2]), mask, causal=True)
    of_one_head = mask[:, :1]
    right(call(given, of_one_head), of_one_head, causal=True)
    assert len(gpu.bound) == 3


@pytest.mark.slow
def test_compile(gpu: Emulator) -> None:
    given, mask = tensors()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    right(compiled(given, mask), mask, causal=True)
    assert gpu.lists == 1


@pytest.mark.slow
def test_the_operator_has_blocks_of_128_unless_said(gpu: Emulator) -> None:
    given, _ = tensors()
    mask = torch.tensor([[False, True, True], [True, False, False]])[None, None]
    out, _ = torch.ops.tilepipe.attention(*given, block_mask=mask)
    got = out.view(torch.uint16).numpy().view(tp.bfloat16.numpy)
    assert compare_attention(got, *arrays()[0], block_mask=mask.numpy()).ok


def test_without_data_shapes_are_known(gpu: Emulator) -> None:
    given, mask = tensors()
    with FakeTensorMode() as mode:
        out, lse = call([mode.from_tensor(x) for x in given], mode.from_tensor(mask))
    assert (tuple(out.shape), tuple(lse.shape)) == ((2, 200, 4, 64), (2, 4, 200))


def test_a_mask_on_another_device_is_one_sentence(gpu: Emulator) -> None:
    given, mask = tensors()
    with pytest.raises(tp.BindError, match="block_mask"):
        call(given, mask.to("meta"))
