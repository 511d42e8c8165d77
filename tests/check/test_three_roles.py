"""The kernel that the checker is measured on is right, and has the barriers that its figures speak
of.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.check.three_roles import Shape, bind, operands, program
from tilepipe import check

SHAPES = [
    Shape(),
    Shape(stages=1, accumulators=1),
    Shape(tiles=3, k_steps=7),
    Shape(cluster=2),
    Shape(cluster=4, consumers=2),
    Shape(consumers=2),
    Shape(tries=True),
]


@pytest.mark.parametrize("cfg", SHAPES, ids=str)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_multiplies(cfg: Shape, seed: int) -> None:
    a, b, c = operands(cfg, seed)
    bind(cfg, a, b, c).run(seed=seed)
    product = a.astype(np.float32) @ b.astype(np.float32).T
    assert product.min() < 0
    # sums up to 256 are exact in bfloat16
    assert (c.astype(np.float32) == np.maximum(product, 0)).all()
    assert np.abs(product).max() <= 256


def test_its_phases() -> None:
    run = program(Shape(stages=3, accumulators=2, tiles=2, k_steps=4, cluster=2)).run()
    assert run.completions["inputs.full"] == [[3, 3, 2]] * 2
    assert run.completions["inputs.empty"] == [[3, 3, 2]] * 2
    assert run.completions["outputs.full"] == [[1, 1]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("cfg", SHAPES[:4], ids=str)
def test_it_verifies(cfg: Shape) -> None:
    verdict = check.check(program(cfg).launch_args)
    assert verdict.ok, verdict.faults
