"""ops.grouped_matmul of tensors: what is bound, copied, written and remembered, with launches
emulated on the CPU.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.ops.grouped import dequantised, fp8_operands, fp8_operands_of_k, operands
from tests.support.ops.emulated_grouped import Emulator, gpu
from tests.support.ops.emulated_matmul import torch
from tilepipe.kernels.gemm_grouped import reference
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.ops.grouped import gpu as torch_grouped

CompileCounterWithBackend = pytest.importorskip("torch._dynamo.testing").CompileCounterWithBackend

__all__ = ["gpu"]
grouped_matmul = tp.ops.grouped_matmul


def tensors(**shape: Any) -> tuple[Any, Any, Any]:
    a, b, offsets = (torch.from_numpy(x) for x in operands(**shape))
    return a, b, offsets


def expected(a: Any, b: Any, offsets: Any, before: Any) -> Any:
    """`before`, and the products in the rows of the groups."""
    want = before.float().clone()
    for group, (start, end) in enumerate(reference.bounds(offsets.numpy(), a.shape[0])):
        want[start:end] = a[start:end].float() @ b[group].float()
    return want


@pytest.mark.parametrize("k", [40, 37, 1])
def test_tensors_of_any_layout(gpu: Emulator, k: int) -> None:
    a, b, offsets = tensors(k=k, n=32)
    weights = b.transpose(1, 2).contiguous().transpose(1, 2)
    for left in (a, a.t().contiguous().t(), a.repeat_interleave(2, 0)[::2]):
        for x in (b, weights):
            before = torch.full((100, 32), 7.0)
            out = before.clone()
            assert grouped_matmul(left, x, offsets.repeat_interleave(2)[::2], out=out) is out
            assert torch.allclose(out, expected(a, b, offsets, before), atol=1e-3)
    assert {bound["a"].stride()[1] for bound in gpu.bound} == {1}
    assert all(bound["cfg"] != GroupedGemmConfig() for bound in gpu.bound)


@pytest.mark.parametrize("out_dtype", [None, torch.float32, "bfloat16"])
def test_new_results(gpu: Emulator, out_dtype: Any) -> None:
    a, b, offsets = tensors()
    c = grouped_matmul(a, b, offsets, out_dtype=out_dtype)
    assert c.dtype == {None: torch.float16, "bfloat16": torch.bfloat16}.get(out_dtype, out_dtype)
    assert torch.allclose(c[:90].float(), expected(a, b, offsets, c)[:90], rtol=2e-2, atol=2e-2)


def test_plans_are_remembered_and_settings_bound(gpu: Emulator) -> None:
    a, b, offsets = tensors()
    for _ in range(3):
        grouped_matmul(a, b, offsets)
    assert (len(gpu.bound), gpu.launches) == (1, 3)
    grouped_matmul(a, b, offsets, bm=64, consumers=1)
    assert gpu.bound[1]["cfg"] == GroupedGemmConfig(bm=64, consumers=1)


def test_out_that_the_kernel_cannot_write_keeps_its_rows(gpu: Emulator) -> None:
    a, b, offsets = tensors(k=24)
    for before in (torch.full((24, 100), 7.0).t(), torch.full((100, 25), 7.0)[:, 1:], a.clone()):
        out = (
            before
            if before.dtype is torch.float16
            else before.clone(memory_format=torch.preserve_format)
        )
        left = out if out.dtype is torch.float16 else a
        want = expected(left.clone(), b, offsets, before)
        assert grouped_matmul(left, b, offsets, out=out) is out
        assert torch.allclose(out.float(), want, rtol=1e-2, atol=1e-2)


def test_nothing_to_multiply(gpu: Emulator) -> None:
    a, b, offsets = tensors(k=0)
    assert not grouped_matmul(a, b, offsets).any()
    out = torch.full((100, 24), 7.0)
    grouped_matmul(a, b, offsets, out=out)
    assert not out[:90].any()
    assert (out[90:] == 7).all()
    assert grouped_matmul(*tensors(m=0)).shape == (0, 24)
    assert not grouped_matmul(*tensors(ends=[])).any()
    assert gpu.launches == 0


@pytest.mark.slow
def test_meta_and_compiled(gpu: Emulator) -> None:
    a, b, offsets = tensors()
    c = grouped_matmul(a.to("meta"), b.to("meta"), offsets.to("meta"), out_dtype="float32")
    assert (c.shape, c.dtype, c.device.type) == ((100, 24), torch.float32, "meta")
    assert torch.library.opcheck(
        torch_grouped.operator, (a, b, offsets), test_utils=("test_schema", "test_faketensor")
    )
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda *x: grouped_matmul(*x))(
        a, b, offsets
    )
    assert torch_grouped.operator in {node.target for node in traced.graph.nodes}
    right = torch.empty(100, 24, device="meta").half()
    z = grouped_matmul(a.t().to("meta"), right, offsets.to("meta"))
    assert z.shape == (4, 40, 24)
    with torch.overrides.BaseTorchFunctionMode():
        before = torch.full((100, 24), 7.0)
        out = before.clone()
        grouped_matmul(a, b, offsets, out=out)
    assert torch.allclose(out, expected(a, b, offsets, before), atol=1e-3)


@pytest.mark.parametrize("k", [40, 37])
def test_groups_of_k_of_any_layout(gpu: Emulator, k: int) -> None:
    """Both are read by rows of the extent that the groups share; any other layout is copied."""
    a, b = torch.randn(100, k).half(), torch.randn(100, 24).half()
    offsets = torch.tensor([5, 5, 40, 90], dtype=torch.int32)
    bounds = reference.bounds(offsets.numpy(), 100)
    want = torch.stack([a[i:j].float().t() @ b[i:j].float() for i, j in bounds])
    for left in (a.t(), a.t().contiguous(), a.repeat_interleave(2, 0)[::2].t()):
        for right in (b, b.t().contiguous().t()):
            out = torch.full((4, k, 24), 7.0)
            assert grouped_matmul(left, right, offsets, out=out) is out
            assert torch.allclose(out, want, atol=1e-3)
    assert gpu.launches == 6
    empty = grouped_matmul(a[:0].t(), b[:0], offsets, out=torch.full((4, k, 24), 7.0))
    assert not empty.any()
    assert gpu.launches == 6


def test_groups_of_columns_are_the_transposed_rows(gpu: Emulator) -> None:
    a, b, offsets = tensors()
    for before in (torch.full((24, 100), 7.0), torch.full((100, 24), 7.0).t()):
        out = before.clone(memory_format=torch.preserve_format)
        left, right = b.transpose(1, 2), a.t()
        assert grouped_matmul(left, right, offs=offsets, out=out) is out
        assert torch.allclose(out, expected(a, b, offsets, before.t()).t(), atol=1e-3)
    assert (gpu.launches, len(gpu.bound)) == (2, 2)
    assert grouped_matmul(left, right, offs=offsets).stride() == (1, 24)


def scaled_tensors(padded: bool, **shape: int) -> list[Any]:
    arrays = fp8_operands(padded, **shape)
    fp8 = torch.float8_e4m3fn
    found = [torch.from_numpy(np.ascontiguousarray(x).view(np.uint8)).view(fp8) for x in arrays[:2]]
    return [*found, *(torch.from_numpy(np.ascontiguousarray(x)) for x in arrays[2:])]


@pytest.mark.parametrize("padded", [False, True], ids=["rows", "padded"])
def test_fp8_of_any_layout(gpu: Emulator, padded: bool) -> None:
    a, b, scale_a, scale_b = scaled_tensors(padded)
    weights = b.transpose(1, 2).contiguous().transpose(1, 2)
    columns = scale_a.transpose(-1, -2).contiguous().transpose(-1, -2)
    left, right = dequantised(*fp8_operands(padded))
    ends = [5, 0, 100, 1000] if padded else [5, 5, 40, 90]
    name = "rows" if padded else "offs"
    given = {name: torch.tensor(ends, dtype=torch.int32), "scale_b": scale_b}
    shape = (4, 100, 160) if padded else (100, 160)
    for x, scales in ((b, scale_a), (weights, columns)):
        out = torch.full(shape, 7.0)
        assert grouped_matmul(a, x, scale_a=scales, out=out, **given) is out
        want = np.full(shape, 7.0)
        for group, start, end in reference.rows_of(want, np.array(ends)):
            of = group if padded else ...
            want[of][start:end] = left[of][start:end] @ right[group]
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-5, atol=1e-4 * np.abs(want).max())
    assert grouped_matmul(a, b, scale_a=scale_a, **given).dtype is torch.bfloat16
    views = {"a": a, "b": weights, "a_scales": columns}
    read = [name for name, x in views.items() if gpu.bound[1][name].data_ptr() == x.data_ptr()]
    assert read == ["a", "b", "a_scales"]  # in place


def test_fp8_with_groups_of_k(gpu: Emulator) -> None:
    arrays = fp8_operands_of_k()
    fp8 = torch.float8_e4m3fn
    a, b = (torch.from_numpy(np.ascontiguousarray(x).view(np.uint8)).view(fp8) for x in arrays[:2])
    scale_a, scale_b = (torch.from_numpy(np.ascontiguousarray(x)) for x in arrays[2:])
    left, right = dequantised(*arrays)
    offs, parts = torch.tensor([128, 128, 400], dtype=torch.int32), [(0, 128), (128, 128)]
    want = np.stack([left[:, i:j] @ right[i:j] for i, j in (*parts, (128, 400))])
    weights, rows = b.t().contiguous().t(), scale_a.t().contiguous().t()
    for x, scales in ((b, scale_a), (weights, rows)):
        out = torch.full(want.shape, 7.0)
        assert grouped_matmul(a, x, offs, scale_a=scales, scale_b=scale_b, out=out) is out
        np.testing.assert_allclose(out.numpy(), want, rtol=1e-5, atol=1e-4 * np.abs(want).max())
    views = {"a": a, "b": weights, "a_scales": rows, "b_scales": scale_b}
    read = [name for name, x in views.items() if gpu.bound[1][name].data_ptr() == x.data_ptr()]
    assert read == ["a", "b", "a_scales", "b_scales"]  # in place


@pytest.mark.slow
def test_expected_rows_are_no_reason_to_compile_again(gpu: Emulator) -> None:
    """Once for the first number, and once for any."""
    a, b = torch.ones((2, 64, 32)), torch.ones((2, 32, 64))
    rows = torch.tensor([3, 64], dtype=torch.int32)
    counter = CompileCounterWithBackend("aot_eager")

    def step(a: Any, b: Any, rows: Any, expected: int) -> Any:
        return grouped_matmul(a.half(), b.half(), rows=rows, expected_rows=expected)

    compiled = torch.compile(step, fullgraph=True, backend=counter)
    for expected in range(4, 10):
        compiled(a, b, rows, expected)
    assert counter.frame_count == 2


@pytest.mark.slow
def test_expected_rows_that_are_about_equal_share_a_plan(gpu: Emulator) -> None:
    a, b = torch.zeros((2, 640, 32)).half(), torch.zeros((2, 32, 64)).half()
    rows = torch.ones(2, dtype=torch.int32)
    plans = {}
    for expected in range(1, 1200):
        grouped_matmul(a, b, rows=rows, expected_rows=expected)
        plans[expected] = len(gpu.bound)
    assert plans[8] == 8  # 1, 2, 3, ..., 8, 10, 12, 14, 16, 20, ..., 512, and 640: all rows
    assert [plans[x] for x in (9, 10, 11, 16, 17, 512, 513, 640, 1199)] == (
        [9, 9, 10, 12, 13, 32, 33, 33, 33]
    )


def test_expected_rows_choose_the_tile(gpu: Emulator) -> None:
    a, b, rows = torch.zeros(4, 512, 40), torch.zeros(4, 40, 256), torch.ones(4, dtype=torch.int32)
    for expected in (None, 8, 100000):
        grouped_matmul(a.half(), b.half(), rows=rows, expected_rows=expected)
    whole, few, most = (bound["cfg"] for bound in gpu.bound)
    assert whole == most
    assert (whole.bm > 64, few.bm) == (True, 64)


@pytest.mark.slow
def test_fp8_and_padded_groups_compile(gpu: Emulator) -> None:
    for padded in (False, True):
        a, b, scale_a, scale_b = scaled_tensors(padded)
        offsets = torch.tensor([5, 0, 100, 90], dtype=torch.int32)
        given = a, b, offsets, None, "()", scale_a, scale_b, 9 if padded else None
        # PyTorch's test of the schema multiplies fp8, which it cannot on the CPU
        assert torch.library.opcheck(torch_grouped.operator, given, test_utils="test_faketensor")
        with torch.overrides.BaseTorchFunctionMode():
            which = {"rows" if padded else "offs": offsets}
            out = torch.full((4, 100, 160) if padded else (100, 160), 7.0)
            grouped_matmul(a, b, scale_a=scale_a, scale_b=scale_b, out=out, **which)
        assert (out[..., 0] == 7).sum() == (400 - 195 if padded else 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"offsets": np.zeros(4, np.int32)},
            "offsets must be a tensor of PyTorch as the others, got ndarray",
        ),
        ({"b": None}, "b must be a tensor of PyTorch"),
        ({"offsets": torch.zeros(4)}, "offsets must be int32, got float32"),
        ({"out": torch.zeros(3, 3)}, "out must have shape (100, 24), it has (3, 3)"),
        (
            {"out": torch.zeros(100, 24), "out_dtype": torch.float16},
            "out is float32 and out_dtype float16",
        ),
        (
            {
                "a": torch.zeros(100, 40, dtype=torch.float16, requires_grad=True),
                "out": torch.zeros(100, 24),
            },
            "grouped_matmul: out= has no gradient, and an operand requires one",
        ),
        ({"seed": 1}, "seed and progress belong to the simulator"),
        ({"depth": 1}, "does not know the setting depth"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_tensors_that_do_not_fit(gpu: Emulator, change: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        grouped_matmul(**(dict(zip(("a", "b", "offsets"), tensors(), strict=True)) | change))
