"""The blockwise fp8 GEMM on the GPU: every family and ragged shape; the same bits in every launch,
whatever the delays.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu.blockwise import FAMILIES, OUTPUTS, product

pytestmark = pytest.mark.gpu
SHAPES = [
    (4, 8, 16),
    (1, 8, 128),
    (129, 136, 144),
    (128, 128, 128),
    (1000, 64, 272),
    (64, 2000, 256),
    (68, 72, 2000),
    (1000, 328, 784),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_family_is_right_and_gives_the_same_bits_20_times(family: str) -> None:
    p = product((1000, 520, 784), **FAMILIES[family])
    p.program.launch()
    p.verify(hardware=True)
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
    for seed in range(100):
        p.c[...] = np.nan
        p.program.launch(perturb=seed)
        assert p.bits() == first, f"seed {seed}"


@pytest.mark.parametrize("family", FAMILIES)
def test_shapes(family: str) -> None:
    for seed, shape in enumerate(SHAPES):
        p = product(shape, seed=seed, **FAMILIES[family])
        p.program.launch()
        p.verify(hardware=True)


@pytest.mark.parametrize("out", OUTPUTS)
def test_output_dtypes(out: str) -> None:
    p = product(out=out)
    p.program.launch()
    p.verify(hardware=True)


@pytest.mark.parametrize("family", ["default", "tall", "two scales of B", "three consumers"])
def test_fewer_ctas_than_tiles(family: str) -> None:
    """A grid for two SMs goes through its ring many times, with trip counts that are no multiple of
    it.
    """
    p = product((1000, 712, 656), **FAMILIES[family])
    replace(p.program, launch_args=replace(p.program.launch_args, grid=2)).launch()
    p.verify(hardware=True)


def test_the_simulator_agrees() -> None:
    p = product()
    p.program.launch()
    on_gpu = p.c.astype(np.float64)
    p.c[...] = np.nan
    p.program.run(seed=2)
    simulated = p.c.astype(np.float64)
    assert np.linalg.norm(on_gpu - simulated) <= 2e-3 * np.linalg.norm(simulated)
    assert (on_gpu == simulated).mean() > 0.8
