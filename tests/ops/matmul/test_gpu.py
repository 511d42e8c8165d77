"""ops.matmul of tensors: what is bound, copied, written and remembered, with launches emulated on
the CPU.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.ops.matmul_layouts import AS_IT_LIES, LAYOUTS, SHAPES, ZERO
from tests.support.ops.emulated_matmul import Emulator, gpu, torch
from tests.support.ops.torch_reference import check
from tilepipe.cuda.runtime import interop
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.ops.matmul import plan as torch_plan
from tilepipe.ops.torch import counters, device, plan_cache
from tilepipe.ops.torch.tensors import TensorView

__all__ = ["gpu"]
BF16 = torch.bfloat16
matmul = tp.ops.matmul


def tensor(*shape: int, dtype: Any = BF16, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_shapes_are_those_of_torch(
    gpu: Emulator, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    a, b = tensor(*left), tensor(*right, seed=1)
    c = matmul(a, b)
    assert c.shape == torch.matmul(a, b).shape
    assert c.dtype == BF16
    assert c.is_contiguous()
    check(c, a, b)
    assert gpu.launches == 1


@pytest.mark.parametrize(("left", "right"), ZERO, ids=str)
def test_zero_sizes_are_those_of_torch(
    gpu: Emulator, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    a, b = tensor(*left), tensor(*right)
    c, want = matmul(a, b), torch.matmul(a, b)
    assert c.shape == want.shape
    assert torch.equal(c, want)
    assert gpu.launches == 0


def test_without_products_the_epilogue_remains(gpu: Emulator) -> None:
    bias, source = tensor(5, seed=1), tensor(4, 5, seed=2)
    a, b = tensor(4, 0), tensor(0, 5)
    check(
        matmul(a, b, bias=bias, activation="silu", source=source, beta=2),
        a,
        b,
        bias=bias,
        activation="silu",
        source=source,
        beta=2,
    )
    assert torch.equal(matmul(a, b, source=source, beta=0), torch.zeros(4, 5, dtype=BF16))


def _torch_dtype(spec: Any) -> Any:
    return spec if isinstance(spec, torch.dtype) else getattr(torch, tp.dtype(spec).name)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("out_dtype", [None, "float32", torch.float16, tp.bfloat16, np.float32])
def test_dtypes(gpu: Emulator, dtype: str, out_dtype: Any) -> None:
    a, b = (tensor(*shape, dtype=getattr(torch, dtype)) for shape in ((8, 16), (16, 24)))
    c = matmul(a, b, out_dtype=out_dtype)
    wanted = a.dtype if out_dtype is None else _torch_dtype(out_dtype)
    assert c.dtype == wanted
    check(c, a, b)


def test_tf32(gpu: Emulator) -> None:
    a, b = tensor(8, 17, dtype=torch.float32), tensor(17, 24, dtype=torch.float32)
    c = matmul(a, b, precision="tf32")
    assert c.dtype == torch.float32
    check(c, a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "batch"])
def test_layouts(gpu: Emulator, layout: str, side: int, batch: tuple[int, ...]) -> None:
    operands = [tensor(*batch, 24, 40), tensor(*batch, 40, 56, seed=1)]
    if layout == "batch innermost" and not batch:
        operands = [x.unsqueeze(0) for x in operands]
    operands[side] = LAYOUTS[layout](operands[side])
    kept = [x.clone() for x in operands]
    for _ in range(2):
        check(matmul(*operands), *operands)
    assert all(torch.equal(x, y) for x, y in zip(operands, kept, strict=True))
    in_place = gpu.bound[0]["ab"[side]].data_ptr() == operands[side].data_ptr()
    assert in_place == (layout in AS_IT_LIES or (layout == "batch innermost" and not batch))
    assert len(gpu.bound) == 1


def test_a_linear_layer_of_any_batch_is_one_product_of_matrices(gpu: Emulator) -> None:
    x, w = tensor(2, 3, 8, 16), tensor(32, 16, seed=1)
    check(matmul(x, w.T), x, w.T)
    assert tuple(gpu.bound[0]["a"].shape) == (48, 16)
    assert tuple(gpu.bound[0]["b"].shape) == (32, 16)
    assert gpu.bound[0]["b"].data_ptr() == w.data_ptr()


def test_one_matrix_for_a_batch_is_not_expanded(gpu: Emulator) -> None:
    x, w = tensor(8, 16), tensor(2, 3, 16, 32, seed=1)
    check(matmul(x, w), x, w)
    assert tuple(gpu.bound[0]["a"].shape) == (8, 16)
    assert tuple(gpu.bound[0]["b"].shape) == (6, 32, 16)


def test_a_batch_of_transposed_matrices_is_not_folded_and_not_copied(gpu: Emulator) -> None:
    x, w = tensor(3, 16, 8).mT, tensor(16, 32, seed=1)
    check(matmul(x, w), x, w)
    assert tuple(gpu.bound[0]["a"].shape) == (3, 8, 16)
    assert gpu.bound[0]["a"].data_ptr() == x.data_ptr()


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu", "gelu_erf"])
@pytest.mark.parametrize("batch", [(), (2, 3)], ids=["one", "batch"])
def test_epilogue(gpu: Emulator, activation: str | None, batch: tuple[int, ...]) -> None:
    a, b = tensor(*batch, 16, 24), tensor(*batch, 24, 8, seed=1)
    for options in (
        {"bias": tensor(8, seed=2)},
        {"bias": tensor(8, dtype=torch.float32, seed=2), "alpha": 0.5},
        {"source": tensor(*batch, 16, 8, seed=3), "beta": -2.0},
        {"source": tensor(16, 1, seed=3), "bias": tensor(16, seed=2)[::2]},
        {"bias": tensor(16, 1, seed=2)},
        {"bias": tensor(16, 3, dtype=torch.float32, seed=2)[:, 1:2], "alpha": 0.5},
        {"alpha": 3},
    ):
        check(
            matmul(a, b, activation=activation, **options), a, b, activation=activation, **options
        )
    assert gpu.bound[0]["cfg"] == (
        GemmConfig(activation=activation) if activation else GemmConfig()
    )


@pytest.mark.parametrize("k", [0, 24])
def test_a_bias_of_rows_of_a_batch_that_is_folded(gpu: Emulator, k: int) -> None:
    for rows in (1, 5):
        a, b, bias = tensor(2, 3, rows, k), tensor(k, 8, seed=1), tensor(rows, 1, seed=2)
        check(matmul(a, b, bias=bias), a, b, bias=bias)


def test_without_products_a_bias_of_an_operand_of_one_dimension_remains(gpu: Emulator) -> None:
    bias, one = tensor(4, 1, seed=1), tensor(1, seed=2)
    assert torch.equal(matmul(tensor(4, 0), tensor(0), bias=bias), bias[:, 0])
    assert torch.equal(matmul(tensor(0), tensor(0), bias=one), one[0])


def test_a_source_comes_by_tma_where_its_rows_are_contiguous(gpu: Emulator) -> None:
    a, b = tensor(16, 24), tensor(24, 8, seed=1)
    for source, slots in (
        (tensor(16, 8, seed=2), 2),
        (tensor(2, 16, 8, seed=2)[1], 2),
        (tensor(8, 16, seed=2).T, 0),
        (tensor(8, seed=2), 2),  # a copy: rows that are one
        (None, 0),
    ):
        check(matmul(a, b, source=source), a, b, source=source)
        assert gpu.bound[-1]["cfg"].source_slots == slots
    check(
        matmul(a, b, source=tensor(8, seed=2), bm=64, consumers=1), a, b, source=tensor(8, seed=2)
    )
    assert gpu.bound[-1]["cfg"].source_slots == 0
    out = tensor(16, 8, seed=3)
    want = a.double() @ b.double() + out.double()
    assert torch.allclose(matmul(a, b, source=out, out=out).double(), want, atol=5e-2)
    assert gpu.bound[-1]["cfg"].source_slots == 2


def test_weights_that_are_loaded_early(gpu: Emulator) -> None:
    """The heuristic chooses the rest; a copy of b, which another kernel writes, is not early."""
    a, b = tensor(16, 24), tensor(24, 8, seed=1)
    for early, given, bn in (
        ("none", {}, 128),
        ("b", {"early": "b"}, 128),
        ("b", {"early": "b", "bn": 32}, 32),
    ):
        check(matmul(a, b, activation="relu", **given), a, b, activation="relu")
        cfg = gpu.bound[-1]["cfg"]
        assert (cfg.early, cfg.bn, cfg.activation) == (early, bn, "relu")
    strided = tensor(24, 16, seed=1)[:, ::2]
    check(matmul(a, strided, early="b"), a, strided)
    assert gpu.bound[-1]["cfg"].early == "none"
    with pytest.raises(tp.BindError, match="early must be one of none, b"):
        matmul(a, b, early="a")


def test_a_source_scaled_by_zero_is_not_read(gpu: Emulator) -> None:
    a, b = tensor(8, 8), tensor(8, 8, seed=1)
    assert torch.equal(
        matmul(a, b, source=torch.full((8, 8), torch.nan, dtype=BF16), beta=0.0), matmul(a, b)
    )


OUTS: dict[str, tuple[Callable[[], Any], bool]] = {
    "contiguous": (lambda: torch.empty(16, 24, dtype=BF16), True),
    "part of wider rows": (lambda: torch.empty(16, 64, dtype=BF16)[:, :24], True),
    "transposed": (lambda: torch.empty(24, 16, dtype=BF16).T, False),
    "every second": (lambda: torch.empty(16, 48, dtype=BF16)[:, ::2], False),
    "off by one element": (lambda: torch.empty(16 * 24 + 1, dtype=BF16)[1:].view(16, 24), False),
    "narrow rows": (lambda: torch.empty(16, 25, dtype=BF16)[:, :24], False),
}


@pytest.mark.parametrize("kind", OUTS)
def test_out(gpu: Emulator, kind: str) -> None:
    make, in_place = OUTS[kind]
    a, b, out = tensor(16, 40), tensor(40, 24, seed=1), make()
    version = out._version
    assert matmul(a, b, out=out) is out
    check(out, a, b)
    assert (gpu.bound[0]["c"].data_ptr() == out.data_ptr()) == in_place
    assert out._version > version


def test_out_decides_the_dtype(gpu: Emulator) -> None:
    a, b, out = tensor(16, 40), tensor(40, 24, seed=1), torch.empty(16, 24)
    check(matmul(a, b, out=out), a, b)
    assert matmul(a, b, out=out, out_dtype="float32") is out


def test_out_of_a_batch_that_is_no_single_dimension(gpu: Emulator) -> None:
    a, b = tensor(2, 3, 8, 16), tensor(2, 3, 16, 8, seed=1)
    out = torch.empty(3, 2, 8, 8, dtype=BF16).transpose(0, 1)
    check(matmul(a, b, out=out), a, b)


@pytest.mark.parametrize("operand", ["a", "b", "part of a"])
def test_out_may_overlap_an_operand(gpu: Emulator, operand: str) -> None:
    a, b = tensor(24, 24), tensor(24, 24, seed=1)
    kept = a.clone(), b.clone()
    out = {"a": a, "b": b}.get(operand)
    if out is None:
        whole = torch.zeros(32, 24, dtype=BF16)
        whole[:24] = a
        a, out = whole[:24], whole[8:]
    check(matmul(a, b, out=out), *kept)


def test_accumulation_in_place(gpu: Emulator) -> None:
    a, b, c = tensor(16, 40), tensor(40, 24, seed=1), tensor(16, 24, seed=2)
    before = c.clone()
    matmul(a, b, out=c, source=c, alpha=0.5)
    check(c, a, b, source=before, alpha=0.5)
    assert gpu.bound[0]["source"].data_ptr() == gpu.bound[0]["c"].data_ptr() == c.data_ptr()


def test_a_row_of_out_as_source_is_read_before_it_is_written(gpu: Emulator) -> None:
    a, b, c = tensor(16, 40), tensor(40, 24, seed=1), tensor(16, 24, seed=2)
    before = c.clone()
    check(matmul(a, b, out=c, source=c[:1]), a, b, source=before[:1])


def test_plans_are_found_again(gpu: Emulator) -> None:
    for seed in range(3):
        a, b = tensor(16, 40, seed=seed), tensor(40, 24, seed=seed + 5)
        check(matmul(a, b), a, b)
        assert gpu.stream == 7
    assert len(gpu.bound) == 1
    matmul(a, b, alpha=2.0)
    matmul(a, b, bn=64)
    matmul(a[:8], b)
    assert len(gpu.bound) == 4
    assert gpu.bound[2]["cfg"].bn == 64


def test_parts_of_k_meet_in_a_workspace_of_the_launch(
    gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tickets stay, for the stream; launches that a graph captures have their own."""
    monkeypatch.setattr(counters, "_counters", {})
    a, b = tensor(16, 200), tensor(200, 24, seed=1)
    for _ in range(2):
        check(matmul(a, b, k_parts=2, bm=64, consumers=1), a, b)
    (kept,) = counters._counters.values()
    assert gpu.tickets == [kept.data_ptr()] * 2
    assert gpu.bound[0]["parts"].shape == (64 * 2, 128)  # a tile, twice
    monkeypatch.setattr(device, "capturing", lambda: True)
    matmul(a, b, k_parts=2, bm=64, consumers=1)
    assert gpu.tickets[-1] != kept.data_ptr()
    assert len(gpu.bound) == 1


def test_a_plan_is_not_used_for_operands_that_start_elsewhere(gpu: Emulator) -> None:
    a, b = tensor(16, 40), tensor(40, 24, seed=1)
    matmul(a, b)
    shifted = LAYOUTS["off by one element"](a)
    assert shifted.stride() == a.stride()
    check(matmul(shifted, b), a, b)


def test_plans_are_limited(gpu: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "LIMIT", 3)
    for m in range(8, 80, 8):
        matmul(tensor(m, 8), tensor(8, 8))
    assert len(torch_plan.plans.plans) == 3


@pytest.mark.slow
def test_plans_keep_no_tensor_alive(gpu: Emulator) -> None:
    a, b = tensor(16, 41), tensor(41, 24)
    kept = [weakref.ref(x) for x in (a, b, matmul(a, b, bias=tensor(24), source=tensor(16, 24)))]
    del a, b
    gc.collect()
    assert [ref() for ref in kept] == [None, None, None]


@pytest.mark.slow
def test_threads(gpu: Emulator) -> None:
    operands = [
        (tensor(8 * (i % 3) + 8, 16, seed=i), tensor(16, 8, seed=i + 50)) for i in range(12)
    ]
    failures: list[BaseException] = []

    def work(a: Any, b: Any) -> None:
        try:
            for _ in range(20):
                check(matmul(a, b), a, b)
        except BaseException as error:  # reported by the test's thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in operands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(torch_plan.plans.plans) == 3


def test_what_a_kernel_is_bound_to_is_an_array_in_gpu_memory() -> None:
    view = TensorView(tensor(4, 8).T)
    assert interop.is_device_array(view)
    assert view.__cuda_array_interface__["strides"] == (2, 16)
    assert tp.tensor_map(view).order == "col"


A, B = tensor(4, 8), tensor(8, 16)


@pytest.mark.parametrize(
    ("a", "b", "options", "words"),
    [
        (A, tensor(4, 16), {}, ["4×8", "4×16", "8 columns against 4 rows"]),
        (tensor(2, 4, 8), tensor(3, 8, 16), {}, ["batches 2", "3", "do not broadcast"]),
        (A[0, 0], B, {}, ["at least 1 dimension"]),
        (A, B.half(), {}, ["a is bfloat16 and b is float16", ".to()"]),
        (A.float(), B.float(), {}, ["float32", "tf32"]),
        (A, B, {"precision": "tf32"}, ["tf32", "bfloat16"]),
        (A, B, {"precision": "high"}, ["precision", "high"]),
        (A.double(), B.double(), {}, ["float64"]),
        (A.int(), B.int(), {}, ["int32"]),
        (A.to(torch.complex64), B, {}, ["complex64"]),
        (A.to_sparse(), B, {}, ["dense", "sparse_coo"]),
        (A, np.ones((8, 16)), {}, ["b must be a tensor", "ndarray"]),
        (np.ones((4, 8)), B, {}, ["a must be a tensor", "ndarray"]),
        (A, B.to("meta"), {}, ["a is on cpu and b on meta"]),
        (A, B, {"out_dtype": "float64"}, ["not float64"]),
        (A, B, {"out_dtype": "floaty"}, ["floaty"]),
        (A, B, {"out_dtype": "float8_e4m3"}, ["not float8_e4m3"]),
        (A, B, {"out_dtype": torch.int8}, ["not int8"]),
        (A, B, {"out": tensor(4, 17)}, ["out must have shape (4, 16)", "(4, 17)"]),
        (A, B, {"out": tensor(4, 16, dtype=torch.float64)}, ["not float64"]),
        (
            A,
            B,
            {"out": tensor(4, 16), "out_dtype": "float32"},
            ["out is bfloat16 and out_dtype float32"],
        ),
        (A, B, {"out": np.ones((4, 16))}, ["out must be a tensor", "ndarray"]),
        (A, B, {"out": tensor(4, 16).to("meta")}, ["a is on cpu and out on meta"]),
        (A, B, {"bias": tensor(4)}, ["bias must have shape (16,)", "(4,)"]),
        (A, B, {"bias": tensor(16).half()}, ["bias is float16", "float32"]),
        (A, B, {"activation": "tanh"}, ["relu, gelu, silu", "'tanh'"]),
        (A, B, {"activation": ["relu"]}, ["relu, gelu, silu"]),
        (A, B, {"beta": 1.0}, ["source=out"]),
        (A, B, {"alpha": "2"}, ["alpha must be a number"]),
        (A, B, {"alpha": None}, ["alpha must be a number"]),
        (A, B, {"source": tensor(3, 16)}, ["(3, 16) does not broadcast to (4, 16)"]),
        (A, B, {"source": tensor(2, 4, 16)}, ["does not broadcast"]),
        (A, B, {"source": tensor(4, 16).float()}, ["source is float32 and the result bfloat16"]),
        (A, B, {"depth": 3}, ["depth", "stages"]),
        (A, B, {"bn": 100}, ["bn must be a multiple of"]),
        (A, B, {"bm": [128]}, ["bm must be an integer"]),
        (A, B, {"seed": 3}, ["seed and progress", "simulator"]),
        (A, B, {"progress": print}, ["seed and progress"]),
    ],
)
def test_bad_input_is_one_clear_error(
    gpu: Emulator, a: Any, b: Any, options: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(tp.BindError) as caught:
        matmul(a, b, **options)
    assert [word for word in words if word not in str(caught.value)] == []
    assert gpu.launches == 0


def test_other_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "A100")
    with pytest.raises(tp.UnavailableError, match=r"needs a Hopper GPU.*cuda:1 is A100 of 8\.0"):
        device.hopper(1, "matmul")
