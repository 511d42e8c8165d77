"""ops.scaled_matmul of CUDA tensors: every recipe of Hopper against float64, and beside
torch.nn.functional.scaled_mm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.ops.scaled import E4M3, E5M2, RECIPES, SHAPES, Operands, operands

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]
scaled_matmul = tp.ops.scaled_matmul
# Frobenius: rounding to 16 bits, and sums of which Hopper's tensor cores keep about 14 bits; those
# of blocks are added in float32.
ERROR = 6e-3


def tensors(x: Operands) -> tuple[Any, Any, Any, Any]:
    """The operands on the GPU, b as a transposed view."""

    def one(array: Any) -> Any:
        if array.dtype.itemsize == 1:
            name = {E4M3: torch.float8_e4m3fn, E5M2: torch.float8_e5m2}[array.dtype]
            return torch.from_numpy(np.ascontiguousarray(array).view(np.uint8)).cuda().view(name)
        return torch.from_numpy(np.ascontiguousarray(array)).cuda()

    return one(x.a), one(x.b.T).t(), one(x.scale_a), one(x.scale_b)


def check(c: Any, x: Operands, bias: Any = None) -> None:
    left, right = x.wide()
    want = left @ right + (0 if bias is None else bias.double().cpu().numpy())
    error = float(np.linalg.norm(c.double().cpu().numpy() - want))
    assert error <= ERROR * float(np.linalg.norm(want)), error / float(np.linalg.norm(want))


@pytest.mark.parametrize(
    "shape", [*SHAPES, (1000, 520, 784), (64, 4096, 2048), (2048, 1024, 4096)], ids=str
)
@pytest.mark.parametrize("recipe", RECIPES)
def test_any_size(recipe: str, shape: tuple[int, int, int]) -> None:
    x = operands(recipe, shape)
    c = scaled_matmul(*tensors(x))
    assert (c.dtype, tuple(c.shape), c.is_contiguous()) == (torch.bfloat16, shape[:2], True)
    check(c, x)


@pytest.mark.parametrize("recipe", ["tensor", "row"])
@pytest.mark.parametrize("dtypes", [(E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)], ids=str)
def test_any_mix_of_fp8(recipe: str, dtypes: tuple[Any, Any]) -> None:
    x = operands(recipe, (300, 200, 272), dtypes)
    check(scaled_matmul(*tensors(x)), x)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("out", [torch.bfloat16, torch.float16, torch.float32])
def test_out_and_its_dtype(recipe: str, out: Any) -> None:
    x = operands(recipe, (300, 200, 272))
    given = tensors(x)
    first = scaled_matmul(*given, out_dtype=out)
    check(first, x)
    for place in (
        torch.zeros(300, 200, dtype=out, device="cuda"),
        torch.zeros(200, 300, dtype=out, device="cuda").t(),
    ):
        assert scaled_matmul(*given, out=place) is place
        assert torch.equal(place, first)


@pytest.mark.parametrize("recipe", ["tensor", "row"])
@pytest.mark.parametrize(
    "settings", [{}, {"bm": 64, "consumers": 1, "accumulate": "promote"}], ids=str
)
def test_bias_and_settings(recipe: str, settings: dict[str, Any]) -> None:
    x = operands(recipe, (300, 200, 1024))
    for dtype in (torch.bfloat16, torch.float32):
        for shape in ((200,), (300, 1)):
            bias = torch.randn(shape, device="cuda").to(dtype)
            check(scaled_matmul(*tensors(x), bias=bias, **settings), x, bias)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_graph_and_a_stream_give_the_same_bits(recipe: str) -> None:
    x = operands(recipe, (1000, 520, 784))
    given = tensors(x)
    first = scaled_matmul(*given)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        again = scaled_matmul(*given)
    stream.synchronize()
    assert torch.equal(again, first)
    out = torch.zeros_like(first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scaled_matmul(*given, out=out)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, first)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_compiled_function(recipe: str) -> None:
    x = operands(recipe, (300, 200, 272))
    given = tensors(x)
    compiled = torch.compile(lambda *args: scaled_matmul(*args), fullgraph=True)
    assert torch.equal(compiled(*given), scaled_matmul(*given))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_scale_that_is_no_number(recipe: str) -> None:
    x = operands(recipe, (200, 136, 256))
    x.scale_a[-1, -1] = np.nan
    c = scaled_matmul(*tensors(x))
    assert torch.isnan(c[-1]).all()
    assert recipe == "tensor" or not torch.isnan(c[:-1]).any()


def peer(recipe: str, given: tuple[Any, Any, Any, Any]) -> Any:
    """`scaled_mm` of PyTorch, which needs column-major scales of blocks, padded to 16 bytes."""
    from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

    a, b, scale_a, scale_b = given
    kinds = {
        "tensor": (ScalingType.TensorWise, ScalingType.TensorWise),
        "row": (ScalingType.RowWise, ScalingType.RowWise),
        "block": (ScalingType.BlockWise1x128, ScalingType.BlockWise128x128),
    }[recipe]
    if recipe == "tensor":
        scale_a, scale_b = scale_a.reshape(()), scale_b.reshape(())
    if recipe == "block":
        scale_a, scale_b = (x.t().contiguous().t() for x in (scale_a, scale_b))
    flat = SwizzleType.NO_SWIZZLE
    return scaled_mm(
        a,
        b,
        scale_a,
        kinds[0],
        scale_b,
        kinds[1],
        swizzle_a=flat,
        swizzle_b=flat,
        output_dtype=torch.bfloat16,
        use_fast_accum=recipe != "block",
    )


@pytest.mark.skipif(
    not hasattr(torch.nn.functional, "scaled_mm"),
    reason="this PyTorch has no torch.nn.functional.scaled_mm",
)
@pytest.mark.parametrize("recipe", RECIPES)
def test_beside_scaled_mm(recipe: str) -> None:
    x = operands(recipe, (1024, 512, 2048))
    given = tensors(x)
    ours, theirs = scaled_matmul(*given).float(), peer(recipe, given).float()
    assert float((ours - theirs).norm()) <= ERROR * float(theirs.norm())


def test_scales_for_blackwell_are_refused() -> None:
    a, b, *_ = tensors(operands("row", (128, 128, 128)))
    scales = [torch.ones(*shape).to(torch.float8_e8m0fnu).cuda() for shape in ((128, 4), (4, 128))]
    with pytest.raises(tp.UnavailableError, match="needs the tensor cores of Blackwell"):
        scaled_matmul(a, b, *scales)
