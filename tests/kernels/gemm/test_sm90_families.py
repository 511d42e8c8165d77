"""The families of the GEMM that tests/gpu launches: right in the simulator, and compiled without
spills.
"""

from __future__ import annotations

import pytest

from tests.gpu.gemms import FAMILIES, product


@pytest.mark.sampled(suite=8)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_right_and_compiles(family: str) -> None:
    for seed, shape in enumerate(((200, 264, 328), (65, 72, 200))):
        p = product(shape, seed=seed, **FAMILIES[family])
        run = p.program.run(seed=seed)
        p.verify()
        assert run.advice == []
    assert p.program.compile().spill_bytes == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "e4m3", "e5m2"])
@pytest.mark.parametrize("family", ["default", "ping-pong", "half of k", "promoted", "transposed"])
def test_tf32_and_fp8(family: str, dtype: str) -> None:
    p = product((150, 136, 272), dtype, "float32", **FAMILIES[family])
    p.program.run(seed=1)
    p.verify()
