"""ops.scaled_matmul of tensors: what is bound, copied, written and remembered, with launches
emulated on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.ops.scaled import RECIPES, SHAPES, Operands, operands
from tests.support.ops.emulated_matmul import torch
from tests.support.ops.emulated_scaled import Emulator, gpu
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise import heuristics as blockwise_fp8_choice
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.ops.scaled import gpu as torch_scaled
from tilepipe.ops.torch import device

__all__ = ["gpu"]
BF16 = torch.bfloat16
scaled_matmul = tp.ops.scaled_matmul


def tensor(x: Any) -> Any:
    """A NumPy array as a tensor of the same layout."""
    if x.dtype.itemsize == 1:
        name = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}[
            x.dtype.name
        ]
        return torch.from_numpy(np.asarray(x).view(np.uint8)).view(name)
    return torch.from_numpy(np.asarray(x))


def tensors(x: Operands) -> list[Any]:
    return [tensor(array) for array in (x.a, x.b.T, x.scale_a, x.scale_b)]


def product(x: Operands, **options: Any) -> Any:
    a, b, scale_a, scale_b = tensors(x)
    return scaled_matmul(a, b.T, scale_a, scale_b, **options)


def check(c: Any, x: Operands, bias: Any = None) -> None:
    import ml_dtypes

    values = (
        c.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        if c.dtype == BF16
        else c.numpy()
    )
    assert x.compare(values, bias).ok


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("recipe", RECIPES)
def test_any_size(gpu: Emulator, recipe: str, shape: tuple[int, int, int]) -> None:
    x = operands(recipe, shape)
    c = product(x)
    assert (c.dtype, c.is_contiguous(), gpu.launches) == (BF16, True, 1)
    check(c, x)


@pytest.mark.parametrize("recipe", ["tensor", "row"])
def test_parts_of_k_meet_in_a_workspace_of_the_launch(gpu: Emulator, recipe: str) -> None:
    x = operands(recipe, (40, 72, 528))
    check(product(x, k_parts=2, bk=128), x)
    assert tuple(gpu.bound[0]["parts"].shape) == (128 * 8 * 2, 16)  # a tile of 8 panels, twice


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_the_kernel_takes_is_read_where_it_lies(gpu: Emulator, recipe: str) -> None:
    x = operands(recipe, (64, 48, 256))
    a, b, scale_a, scale_b = tensors(x)
    if recipe == "block":
        scale_a, scale_b = scale_a.T.contiguous().T, scale_b.T.contiguous().T
    c = scaled_matmul(a, b.T, scale_a, scale_b)
    bound = gpu.bound[0]
    names = ("a_scales", "b_scales") if recipe == "block" else ("a_scale", "b_scale")
    assert [bound[name].data_ptr() for name in ("a", "b", *names)] == [
        y.data_ptr() for y in (a, b, scale_a, scale_b)
    ]
    check(c, x)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x.contiguous(),
    "column": lambda x: x.T.contiguous().T,
    "part of wider rows": lambda x: _wider(x)[:, : x.shape[1]],
    "every second": lambda x: _wider(x, 2)[:, ::2],
}


def _wider(x: Any, times: int = 1) -> Any:
    y = torch.zeros(x.shape[0], x.shape[1] * times + 16, dtype=torch.float32).to(x.dtype)
    y[:, : x.shape[1] * times : times].copy_(x)
    return y[:, : x.shape[1] * times]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_layouts(gpu: Emulator, recipe: str, layout: str) -> None:
    x = operands(recipe, (72, 136, 260))
    a, b, scale_a, scale_b = tensors(x)
    c = scaled_matmul(*(LAYOUTS[layout](y) for y in (a, b.T, scale_a, scale_b)))
    check(c, x)


@pytest.mark.parametrize("recipe", RECIPES)
def test_out(gpu: Emulator, recipe: str) -> None:
    x = operands(recipe, (64, 48, 150))
    outs = [
        torch.zeros(64, 48),
        torch.zeros(48, 64, dtype=torch.float16).T,
        torch.zeros(64, 96, dtype=BF16)[:, ::2],
    ]
    for out in outs:
        assert product(x, out=out) is out
        check(out.contiguous(), x)
    assert gpu.bound[0]["c"].data_ptr() == outs[0].data_ptr()


def test_out_may_share_memory_with_an_operand(gpu: Emulator) -> None:
    x = operands("row", (64, 64, 64))
    a, b, scale_a, scale_b = tensors(x)
    memory = torch.zeros(64 * 64 * 2, dtype=torch.uint8)
    memory[: 64 * 64] = a.view(torch.uint8).reshape(-1)
    out = memory.view(BF16).view(64, 64)
    assert (
        scaled_matmul(
            memory[: 64 * 64].view(64, 64).view(torch.float8_e4m3fn), b.T, scale_a, scale_b, out=out
        )
        is out
    )
    check(out, x)


def test_bias_and_dtypes(gpu: Emulator) -> None:
    x, bias = (
        operands("row", (64, 48, 96)),
        np.random.default_rng(2).standard_normal(50).astype(np.float32),
    )
    for out_dtype in ("float32", torch.float16, tp.bfloat16):
        c = product(x, bias=torch.from_numpy(bias)[1:49], out_dtype=out_dtype)
        check(c, x, bias[1:49])
    assert {str(bound["c"].dtype) for bound in gpu.bound} == {
        "torch.float32",
        "torch.float16",
        "torch.bfloat16",
    }
    assert {bound["cfg"].bn for bound in gpu.bound} == {64}


def test_a_bias_of_rows(gpu: Emulator) -> None:
    x, bias = operands("row", (64, 48, 96)), np.arange(128, dtype=np.float32).reshape(64, 2)
    for column in (bias[:, :1].copy(), bias[:, 1:]):
        check(product(x, bias=torch.from_numpy(column), out_dtype="float32"), x, column)
    nothing, column = operands("row", (64, 48, 0)), torch.from_numpy(bias)[:, 1:]
    assert torch.equal(product(nothing, bias=column, out_dtype="float32"), column.expand(64, 48))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("shape", [(0, 4, 8), (4, 0, 8), (4, 4, 0)], ids=str)
def test_zero_sizes(gpu: Emulator, recipe: str, shape: tuple[int, int, int]) -> None:
    m, n, _ = shape
    x = operands(recipe, shape)
    assert torch.equal(product(x), torch.zeros(m, n, dtype=BF16))
    if recipe != "block":
        bias = torch.arange(n, dtype=torch.float32)
        assert torch.equal(product(x, bias=bias, out_dtype="float32"), bias.expand(m, n))
    assert gpu.launches == 0


def test_plans_are_remembered_by_what_decides(gpu: Emulator) -> None:
    x, y = operands("row", (64, 48, 96)), operands("row", (64, 48, 96), seed=1)
    for z in (x, y, x):
        check(product(z), z)
    assert (len(gpu.bound), gpu.launches) == (1, 3)
    product(x, out_dtype="float32")
    product(operands("tensor", (64, 48, 96)))
    product(x, bm=64, consumers=1)
    assert len(gpu.bound) == 4
    assert gpu.bound[-1]["cfg"] == GemmConfig(bk=128, bm=64, consumers=1)


@pytest.mark.slow
def test_the_configuration_of_blocks_is_chosen(gpu: Emulator) -> None:
    product(operands("block", (64, 4096, 256)))
    problem = Problem(64, 4096, 256, dtype=tp.float8_e4m3, scales="block")
    assert gpu.bound[0]["cfg"] == blockwise_fp8_choice.best(problem, tp.H200)
    product(operands("block", (64, 4096, 256)), bn=64)
    assert gpu.bound[1]["cfg"] == BlockwiseGemmConfig(bn=64)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of its own parts
@pytest.mark.parametrize("recipe", RECIPES)
def test_it_is_an_operator(gpu: Emulator, recipe: str) -> None:
    """Compiled as one graph, exported shapes and all; under a dispatch mode; on meta tensors."""
    from torch._subclasses import FakeTensorMode

    x = operands(recipe, (64, 48, 150))
    a, b, scale_a, scale_b = tensors(x)
    compiled = torch.compile(
        lambda *args: 2 * scaled_matmul(*args, out_dtype="float32"), backend="eager", fullgraph=True
    )
    check(compiled(a, b.T, scale_a, scale_b) / 2, x)
    out = torch.zeros(64, 48)
    compiled = torch.compile(
        lambda *args, out: scaled_matmul(*args, out=out), backend="eager", fullgraph=True
    )
    compiled(a, b.T, scale_a, scale_b, out=out)
    check(out, x)
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(y) for y in (a, b.T, scale_a, scale_b)]
    with mode:
        fake = scaled_matmul(*fakes)
    assert (fake.shape, fake.dtype) == ((64, 48), BF16)
    meta = scaled_matmul(
        *(y.to("meta") for y in (a, b.T, scale_a, scale_b)), out_dtype=torch.float16
    )
    assert (meta.shape, meta.dtype) == ((64, 48), torch.float16)
    torch.library.opcheck(
        torch_scaled.operator, (a, b.T, scale_a, scale_b), test_utils="test_faketensor"
    )


def test_there_is_no_gradient(gpu: Emulator) -> None:
    a, b, scale_a, scale_b = tensors(operands("row", (64, 48, 96)))
    scale_a.requires_grad_()
    with pytest.raises(
        tp.BindError,
        match=r"has no gradient, and an operand requires one; detach it, or call it under "
        r"torch\.no_grad",
    ):
        scaled_matmul(a, b.T, scale_a, scale_b)
    with torch.no_grad():
        scaled_matmul(a, b.T, scale_a, scale_b)


def test_other_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (10, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "B200")
    with pytest.raises(
        tp.UnavailableError, match=r"scaled_matmul needs a Hopper GPU.*cuda:0 is B200 of 10\.0"
    ):
        device.hopper(0, "scaled_matmul")


def test_scales_for_blackwell_are_refused(gpu: Emulator) -> None:
    a, b, scale_a, _ = tensors(operands("row", (64, 48, 128)))
    e8m0 = [torch.ones(*shape).to(torch.float8_e8m0fnu) for shape in ((64, 4), (4, 48))]
    fp4 = torch.zeros(64, 64, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    e4m3 = [torch.ones(*shape).to(torch.float8_e4m3fn) for shape in ((64, 8), (8, 64))]
    for given in ((a, b.T, *e8m0), (fp4, fp4.T, *e4m3), (fp4, fp4.T, (e4m3[0], scale_a), e4m3[1])):
        with pytest.raises(
            tp.UnavailableError,
            match=r"of mxfp8, mxfp4, nvfp4 needs the tensor cores of Blackwell .* NumPy "
            r"arrays",
        ):
            scaled_matmul(*given)
    assert gpu.launches == 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"scale_a": np.ones((64, 1), np.float32)},
            "scaled_matmul: scale_a must be a tensor of PyTorch as the others, got ndarray",
        ),
        ({"scale_a": torch.ones(64, 2)}, "which is no recipe. One number for each tensor"),
        (
            {"scale_b": torch.ones(1, 48, dtype=BF16)},
            "scale_b is 1×48 bfloat16; scales of float8_e4m3fn are float32 or float8_e8m0fnu",
        ),
        (
            {"a": torch.ones(64, 96, dtype=BF16)},
            "takes float8_e4m3fn, float8_e5m2 and fp4, packed as uint8; a is 64×96 bfloat16",
        ),
        ({"out": torch.ones(48, 64)}, "out must have shape (64, 48), it has (48, 64)"),
        (
            {"out": torch.ones(64, 48), "out_dtype": "float16"},
            "out is float32 and out_dtype float16",
        ),
        ({"out_dtype": "int32"}, "scaled_matmul returns bfloat16, float16, float32, not int32"),
        ({"bias": torch.ones(47)}, "bias must have shape (48,), one value a column"),
        ({"seed": 3}, "seed and progress belong to the simulator"),
        ({"bx": 3}, "does not know the setting bx"),
        ({"bn": [64]}, "bn must be an integer"),
    ],
    ids=lambda x: x[:40] if isinstance(x, str) else "",
)
def test_bad_input_is_one_clear_error(gpu: Emulator, changed: dict[str, Any], words: str) -> None:
    a, b, scale_a, scale_b = tensors(operands("row", (64, 48, 96)))
    given = {"a": a, "b": b.T, "scale_a": scale_a, "scale_b": scale_b} | changed
    with pytest.raises(tp.BindError, match=re.escape(words)):
        scaled_matmul(**given)
    assert gpu.launches == 0
