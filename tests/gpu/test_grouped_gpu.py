"""The grouped GEMM on the GPU: every family, every kind of offsets; the same bits in every launch,
whatever the delays; offsets that change between replays of one CUDA graph.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.ops.grouped import dequantised, fp8_operands
from tests.kernels.gemm_grouped.families import FAMILIES, OFFSETS, OUTPUTS, product
from tests.kernels.gemm_grouped_blockwise.families import (
    FAMILIES as FP8_FAMILIES,
    product as fp8_product,
)
from tests.kernels.gemm_k_grouped.families import FAMILIES as K_FAMILIES, product as k_product
from tests.kernels.gemm_k_grouped_blockwise.families import (
    FAMILIES as K_FP8_FAMILIES,
    OFFSETS as FP8_OFFSETS,
    product as k_fp8_product,
)
from tilepipe.kernels.gemm_grouped import reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]


@pytest.mark.parametrize("family", FAMILIES)
def test_family_is_right_and_gives_the_same_bits_20_times(family: str) -> None:
    p = product("ragged", 520, 784, **FAMILIES[family])
    p.program.launch()
    p.verify(hardware=True)
    first = p.c.tobytes()
    for i in range(20):
        p.reset()
        p.program.launch()
        assert p.c.tobytes() == first, f"launch {i}"


@pytest.mark.parametrize("family", FAMILIES)
def test_delays_change_no_bit(family: str) -> None:
    p = product("empty ones", **FAMILIES[family])
    p.program.launch()
    p.verify(hardware=True)
    first = p.c.tobytes()
    for seed in range(60):
        p.reset()
        p.program.launch(perturb=seed)
        assert p.c.tobytes() == first, f"seed {seed}"


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize(
    "family", ["default", "one consumer", "cluster", "cluster along n", "ping-pong", "tall"]
)
def test_offsets(offsets: str, family: str) -> None:
    p = product(offsets, 200, 136, **FAMILIES[family])
    p.program.launch()
    p.verify(hardware=True)


@pytest.mark.parametrize(
    "family", ["default", "cluster", "cluster along n", "ping-pong", "ping-pong cluster"]
)
def test_fewer_clusters_than_tiles(family: str) -> None:
    """A few clusters go through many groups, and through their rings many times."""
    p = product("few rows each", 712, 656, **FAMILIES[family])
    replace(p.program, launch_args=replace(p.program.launch_args, grid=4)).launch()
    p.verify(hardware=True)


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("order", ["row", "col"])
def test_output_dtypes_and_orders(out: str, order: str) -> None:
    p = product(dtype="float16", out=out, order=order)
    p.program.launch()
    p.verify(hardware=True)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2", "bfloat16"])
def test_scales(dtype: str, scaled: bool) -> None:
    bk = 128 if dtype.startswith("float8") else 64
    p = product("empty ones", 104, 272, dtype=dtype, out="float32", scaled=scaled, bk=bk, stages=3)
    p.program.launch()
    p.verify(hardware=True)


@pytest.mark.parametrize("groups", [1, 7, 64, 1000])
@pytest.mark.parametrize("split", reference.SPLITS)
def test_splits(groups: int, split: str) -> None:
    rng = np.random.default_rng(groups)
    p = product(
        reference.split_rows(rng, 3000, groups, split).tolist(), 264, 320, 3000, seed=groups
    )
    p.program.launch()
    p.verify(hardware=True)


def test_the_simulator_agrees() -> None:
    p = product()
    p.program.launch()
    on_gpu = p.c.astype(np.float64)
    p.reset()
    p.program.run(seed=2)
    assert np.linalg.norm(on_gpu - p.c.astype(np.float64)) <= 2e-3 * np.linalg.norm(on_gpu)


def test_offsets_change_between_replays_of_one_graph() -> None:
    torch = pytest.importorskip("torch")
    from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
    from tilepipe.kernels.gemm_grouped.sm90 import bind

    m, n, k, groups = 1000, 264, 320, 12
    a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in ((m, k), (groups, n, k)))
    c, offsets = (
        torch.empty(m, n, device="cuda", dtype=torch.bfloat16),
        torch.zeros(groups, device="cuda", dtype=torch.int32),
    )
    program = bind(a, b, c, offsets, GroupedGemmConfig(cluster=2))
    program.launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program.launch()
    a_host, b_host = (x.float().cpu().numpy() for x in (a, b))
    for seed, split in enumerate(reference.SPLITS):
        ends = reference.split_rows(np.random.default_rng(seed), m - 17 * seed, groups, split)
        offsets.copy_(torch.from_numpy(ends))
        c.fill_(3)
        graph.replay()
        got = c.float().cpu().numpy().astype(tp.bfloat16.numpy)
        before = np.full((m, n), 3, got.dtype)
        found = reference.compare(got, before, a_host, b_host, ends)
        assert found.ok, (split, found)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("k", [320, 77])
def test_the_operation_on_tensors(dtype: str, k: int) -> None:
    """Any layout; rows of no group keep what out holds; captured, with other offsets at each
    replay.
    """
    torch = pytest.importorskip("torch")
    m, n, groups = 700, 136, 9
    kind = getattr(torch, dtype)
    a, w = (torch.randn(shape, device="cuda").to(kind) for shape in ((m, k), (groups, n, k)))
    offsets = torch.zeros(groups, device="cuda", dtype=torch.int32)

    def check(out: Any, ends: Any, kept: float) -> None:
        want = torch.full((m, n), kept, device="cuda", dtype=torch.float32)
        for group, (start, end) in enumerate(reference.bounds(ends, m)):
            want[start:end] = a[start:end].float() @ w[group].float().t()
        torch.testing.assert_close(out, want.to(out.dtype), rtol=2e-2, atol=0.15)

    ends = reference.split_rows(np.random.default_rng(5), m - 33, groups, "random")
    offsets.copy_(torch.from_numpy(ends))
    for left in (a, a.t().contiguous().t()):
        for weights in (w.transpose(1, 2), w.transpose(1, 2).contiguous()):
            for out in (
                torch.full((m, n), 3.0, device="cuda", dtype=kind),
                torch.full((n, m), 3.0, device="cuda").t(),
            ):
                check(tp.ops.grouped_matmul(left, weights, offsets, out=out), ends, 3)
    out = torch.full((m, n), 3.0, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    tp.ops.grouped_matmul(a, w.transpose(1, 2), offsets, out=out)
    with torch.cuda.graph(graph):
        tp.ops.grouped_matmul(a, w.transpose(1, 2), offsets, out=out)
    for seed, split in enumerate(reference.SPLITS):
        ends = reference.split_rows(np.random.default_rng(seed), m - 5 * seed, groups, split)
        offsets.copy_(torch.from_numpy(ends))
        out.fill_(3)
        graph.replay()
        check(out, ends, 3)


def test_the_operation_beside_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this PyTorch has no grouped_mm")
    a, w = (torch.randn(shape, device="cuda").bfloat16() for shape in ((512, 256), (8, 384, 256)))
    offsets = torch.arange(64, 513, 64, device="cuda", dtype=torch.int32)
    weights = w.transpose(1, 2)
    torch.testing.assert_close(
        tp.ops.grouped_matmul(a, weights, offsets),
        torch._grouped_mm(a, weights, offs=offsets),
        rtol=2e-2,
        atol=0.1,
    )
    compiled = torch.compile(tp.ops.grouped_matmul, fullgraph=True)
    torch.testing.assert_close(
        compiled(a, weights, offsets), tp.ops.grouped_matmul(a, weights, offsets), rtol=0, atol=0
    )


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("family", K_FAMILIES)
def test_groups_of_k(family: str, offsets: str) -> None:
    p = k_product(offsets, 200, 264, **K_FAMILIES[family])
    p.program.launch()
    assert p.compare().ok


@pytest.mark.parametrize("padded", [False, True], ids=["rows", "padded"])
@pytest.mark.parametrize("family", FP8_FAMILIES)
def test_fp8(family: str, padded: bool) -> None:
    """The same bits in every launch, and in every order of delays."""
    for offsets in ("ragged", "empty ones", "few rows each", "extreme"):
        rows = 150 if padded else 420
        p = fp8_product(offsets, 136, 656, rows, padded=padded, **FP8_FAMILIES[family])
        p.program.launch()
        assert p.compare().ok
        first = p.c.tobytes()
        for seed in range(5):
            p.c[...] = p.before
            p.program.launch(perturb=seed)
            assert p.c.tobytes() == first, f"seed {seed}"


@pytest.mark.parametrize("family", K_FP8_FAMILIES)
def test_fp8_with_groups_of_k(family: str) -> None:
    for offsets in FP8_OFFSETS:
        p = k_fp8_product(offsets, 264, 200, **K_FP8_FAMILIES[family])
        p.program.launch()
        assert p.compare().ok
        first = p.c.tobytes()
        for seed in range(5):
            p.c[...] = np.nan
            p.program.launch(perturb=seed)
            assert p.c.tobytes() == first, f"seed {seed}"


@pytest.mark.parametrize("padded", [False, True], ids=["rows", "padded"])
def test_the_operation_on_fp8_tensors(padded: bool) -> None:
    torch = pytest.importorskip("torch")
    arrays = fp8_operands(padded, m=300)
    a, b = (
        torch.from_numpy(np.ascontiguousarray(x).view(np.uint8)).view(torch.float8_e4m3fn).cuda()
        for x in arrays[:2]
    )
    scale_a, scale_b = (torch.from_numpy(np.ascontiguousarray(x)).cuda() for x in arrays[2:])
    ends = np.array([5, 0, 300, 1000] if padded else [5, 5, 140, 290], np.int32)
    given = {"rows" if padded else "offs": torch.from_numpy(ends).cuda()}
    want = np.full((4, 300, 160) if padded else (300, 160), 3.0)
    left, right = dequantised(*arrays)
    for group, start, end in reference.rows_of(want, ends):
        of = group if padded else ...
        want[of][start:end] = left[of][start:end] @ right[group]
    for weights in (b, b.transpose(1, 2).contiguous().transpose(1, 2)):
        out = torch.full(want.shape, 3.0, device="cuda")
        tp.ops.grouped_matmul(a, weights, scale_a=scale_a, scale_b=scale_b, out=out, **given)
        found = out.cpu().numpy()
        assert np.linalg.norm(found - want) < 2e-3 * np.linalg.norm(want)
        assert np.array_equal(found == 3, want == 3)


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_beside_a_loop(transposed: bool) -> None:
    torch = pytest.importorskip("torch")
    m, n, k, groups = 700, 136, 320, 9
    a = torch.randn(m, k, device="cuda").bfloat16().requires_grad_()
    shape = (groups, n, k) if transposed else (groups, k, n)
    w = torch.randn(shape, device="cuda").bfloat16().requires_grad_()
    ends = reference.split_rows(np.random.default_rng(5), m - 33, groups, "skewed")
    offsets, dc = torch.from_numpy(ends).cuda(), torch.randn(m, n, device="cuda").bfloat16()
    b = w.transpose(1, 2) if transposed else w
    tp.ops.grouped_matmul(a, b, offsets).backward(dc)
    da, db = torch.zeros_like(a, dtype=torch.float32), torch.zeros_like(b, dtype=torch.float32)
    for group, (start, end) in enumerate(reference.bounds(ends, m)):
        da[start:end] = dc[start:end].float() @ b[group].detach().float().t()
        db[group] = a[start:end].detach().float().t() @ dc[start:end].float()
    torch.testing.assert_close(a.grad.float(), da, rtol=2e-2, atol=0.15)
    found = w.grad.transpose(1, 2) if transposed else w.grad
    torch.testing.assert_close(found.float(), db, rtol=2e-2, atol=0.3)
