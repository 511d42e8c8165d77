"""The shipped GEMM on the GPU: every family, dtype, order and ragged shape; the same bits in every
launch, whatever the delays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.gpu.gemms import FAMILIES, product
from tests.support.sources import SOURCES, bound
from tilepipe.kernels.gemm import stream_k
from tilepipe.kernels.gemm.config import StreamKConfig
from tilepipe.testing import compare_matmul

pytestmark = pytest.mark.gpu
# launches with another seed each
MANY = {"default": 1000, "ping-pong in clusters": 1000, "half of k": 1000}
FEW = 100
RAGGED = (
    "default",
    "short tiles",
    "cluster",
    "cluster along n",
    "ping-pong",
    "half of k",
    "two wgmma wide",
    "narrow transposed",
    "two parts of k",
    "three parts of k transposed, in clusters",
)
SHAPES = [
    (1, 8, 8),
    (8, 8, 8),
    (129, 136, 8),
    (128, 128, 64),
    (2000, 64, 64),
    (64, 2000, 64),
    (65, 72, 2000),
    (1000, 328, 776),
    (257, 3000, 1032),
    (3000, 200, 4096),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_family_is_right_and_gives_the_same_bits_20_times(family: str) -> None:
    p = product(**FAMILIES[family])
    p.program.launch()
    p.verify()
    first = p.bits()
    for i in range(20):
        p.c[...] = np.nan
        p.program.launch()
        assert p.bits() == first, f"launch {i}"


@pytest.mark.parametrize("family", FAMILIES)
def test_delays_change_no_bit(family: str) -> None:
    p = product(**FAMILIES[family])
    p.program.launch()
    first = p.bits()
    for seed in range(MANY.get(family, FEW)):
        p.c[...] = np.nan
        p.program.launch(perturb=seed)
        assert p.bits() == first, f"seed {seed}"


@pytest.mark.parametrize("family", RAGGED)
def test_shapes(family: str) -> None:
    for seed, shape in enumerate(SHAPES):
        p = product(shape, seed=seed, **FAMILIES[family])
        p.program.launch()
        p.verify()


@pytest.mark.parametrize(
    "family", ["default", "cluster", "ping-pong", "cluster along n", "a quarter of k"]
)
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_orders(family: str, orders: str) -> None:
    for dtype in ("bfloat16", "float16"):
        p = product((264, 200, 136), dtype, orders=orders, **FAMILIES[family])
        p.program.launch()
        p.verify()


@pytest.mark.parametrize("out", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    "family", ["default", "wide tiles", "cluster", "ping-pong", "half of k", "two parts of k"]
)
def test_dtypes(family: str, out: str) -> None:
    for dtype in ("bfloat16", "float16"):
        p = product((136, 328, 200), dtype, out, **FAMILIES[family])
        p.program.launch()
        p.verify()


@pytest.mark.parametrize("dtype", ["float32", "e4m3", "e5m2"])
@pytest.mark.parametrize(
    "family", ["default", "cluster", "ping-pong", "half of k", "promoted", "transposed"]
)
def test_tf32_and_fp8(family: str, dtype: str) -> None:
    p = product((300, 264, 528), dtype, "float32", **FAMILIES[family])
    p.program.launch()
    p.verify()


@pytest.mark.parametrize("family", SOURCES)
def test_a_source_by_tma_gives_the_bits_of_ordinary_loads(family: str) -> None:
    for seed, shape in enumerate(((1000, 520, 776), (129, 136, 8), (2000, 328, 64))):
        plain, want = bound(shape, seed=seed, **SOURCES[family])
        plain.launch()
        program, c = bound(shape, seed=seed, source_slots=2, **SOURCES[family])
        for i in range(20):
            c[...] = np.nan
            program.launch(perturb=i if i else None)
            assert np.array_equal(c, want), f"launch {i}"


def test_a_large_one() -> None:
    p = product((2048, 2048, 2048), bn=256, cluster=2)
    p.program.launch()
    p.verify()


@pytest.mark.parametrize("family", ["default", "cluster", "ping-pong", "half of k"])
def test_the_simulator_agrees(family: str) -> None:
    """Both add in float32, in another order: nearly all results round to the same bfloat16."""
    p = product((264, 200, 392), **FAMILIES[family])
    p.program.launch()
    on_gpu = p.c.astype(np.float64)
    p.c[...] = np.nan
    p.program.run(seed=2)
    simulated = p.c.astype(np.float64)
    np.testing.assert_allclose(on_gpu, simulated, rtol=2.0**-7, atol=1e-2)
    assert (on_gpu == simulated).mean() > 0.9


@pytest.mark.parametrize("schedule", ["cooperative", "pingpong"])
@pytest.mark.parametrize("stages", [3, 4])
def test_fewer_ctas_than_tiles(stages: int, schedule: str) -> None:
    """A grid for two SMs goes through its ring many times, with trip counts that are no multiple of
    it.
    """
    p = product(stages=stages, schedule=schedule)
    program = replace(p.program, launch_args=replace(p.program.launch_args, grid=2))
    program.launch()
    p.verify()


STREAMED = [
    ((1000, 328, 776), 132, {}),  # tiles that several CTAs share
    ((64, 64, 4096), 13, {"bm": 64, "bn": 64, "consumers": 1}),  # one tile
    ((2000, 2000, 1032), 132, {"bn": 256, "stages": 3}),  # some CTAs have more than one tile
]


@pytest.mark.parametrize(("shape", "ctas", "settings"), STREAMED)
def test_tiles_that_ctas_share_have_the_same_bits_whatever_the_delays(
    shape: tuple[int, int, int], ctas: int, settings: dict[str, Any]
) -> None:
    m, n, k = shape
    rng, cfg, chip = np.random.default_rng(0), StreamKConfig(**settings), replace(tp.H200, sms=ctas)
    a, b = (rng.standard_normal((rows, k)).astype(tp.bfloat16.numpy) for rows in (m, n))
    c = np.zeros((m, n), np.float32)
    parts, flags = stream_k.workspace_shapes(a, c, cfg, chip)
    workspace = np.zeros(parts, np.float32), np.zeros(flags, np.int32)
    program = stream_k.bind(a, b, c, cfg, workspace=workspace, chip=chip)
    program.launch()
    assert compare_matmul(c, a, b.T).ok
    assert not workspace[1].any()
    first = c.tobytes()
    for seed in range(FEW):
        c[...] = np.nan
        program.launch(perturb=seed)
        assert c.tobytes() == first, f"seed {seed}"
