"""Clusters of the sm_90 GEMM that share B tiles whose rows they cannot divide equally: right for
every shape, decided by the checker.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe import check, cuda
from tilepipe.kernels.gemm import sm90
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.testing import compare_matmul

BF16 = ml_dtypes.bfloat16
SMALL: dict[str, Any] = {"bm": 64, "bn": 32, "bk": 32, "consumers": 1, "stages": 2}


def program(m: int, n: int, k: int, **settings: Any) -> tuple[tp.Program, Any, Any, Any]:
    """The program for one cluster, A, B and C, which is of NaN."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.standard_normal(x).astype(BF16) for x in ((m, k), (n, k)))
    c = np.full((m, n), np.nan, np.float32)
    cfg = GemmConfig(**settings)
    made = sm90.bind(a, b, c, cfg)
    return replace(made, launch_args=replace(made.launch_args, grid=cfg.cluster_size)), a, b, c


def simulate(*shape: int, seed: int = 0, **settings: Any) -> Any:
    made, a, b, c = program(*shape, **settings)
    run = made.run(seed=seed)
    comparison = compare_matmul(c, a, b.T)
    assert comparison.ok, comparison
    return run


@pytest.mark.sampled(suite=2)
@pytest.mark.parametrize(
    "settings",
    [
        {"cluster": 2, "bn": 24},
        {"cluster": 4, "bn": 104, "swap": "ab"},
        {"cluster": 4, "bn": 72, "bm": 128, "consumers": 2, "swap": "ab"},
        {"cluster": 8, "bn": 88},
        {"cluster": 4, "bn": 16, "k_group_size": 2},
        {"cluster": 8, "bn": 24, "k_group_size": 3},
        {"cluster": 4, "bn": 40, "schedule": "pingpong", "consumers": 2},
        {"cluster": 4, "bn": 40, "early": "b"},
        {"cluster": 4, "bn": 40, "early": "b", "swap": "ab"},
    ],
    ids=str,
)
def test_rows_that_the_ctas_cannot_divide(settings: dict[str, Any]) -> None:
    simulate(600, 232, 200, seed=1, **SMALL | settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"cluster": 2, "bn": 24},
        {"cluster": 4, "bn": 40, "swap": "ab"},
        {"cluster": 4, "bn": 16, "k_group_size": 2},
    ],
    ids=str,
)
def test_decided(settings: dict[str, Any]) -> None:
    made, *_ = program(
        64 * 2 * settings["cluster"],
        40,
        5 * 32 * settings.get("k_group_size", 1),
        **SMALL | settings,
    )
    verdict = check.check(made.launch_args)
    assert (verdict.verdict, verdict.method) == ("verified", "single-execution")


@pytest.mark.parametrize(
    "settings",
    [
        {"bm": 64, "bn": 104, "consumers": 1, "stages": 10, "cluster": 4, "swap": "ab"},
        {"bm": 192, "bn": 104, "consumers": 3, "stages": 4, "cluster": 4},
    ],
    ids=str,
)
def test_compiles_without_spills(settings: dict[str, Any]) -> None:
    code = cuda.compile(program(64, 64, 64, **settings)[0].kernel, arch="sm_90a")
    assert (code.spill_bytes, code.stack_bytes) == (0, 0)
    assert "C75" not in code.log


@pytest.mark.slow
def test_the_printed_ptx_computes_the_same_bits() -> None:
    """Of whole numbers, whose sums are exact however a tensor core groups them."""
    settings = SMALL | {"cluster": 2, "bn": 24}
    made, a, b, c = program(136, 72, 232, **settings)
    rng = np.random.default_rng(0)
    for x in (a, b):
        x[...] = rng.integers(-4, 5, x.shape)
    made.ptx("sm_90a").run(2)
    assert (c == a.astype(np.float64) @ b.astype(np.float64).T).all()
