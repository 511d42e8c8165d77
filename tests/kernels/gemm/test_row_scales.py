"""The Hopper GEMM of fp8 with a scale for each row: what is chosen, and that it compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe import cuda
from tilepipe.kernels.gemm import heuristics, sm90
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem

FASTEST: dict[tuple[int, int, int], dict[str, Any]] = {  # of those measured on an H200
    (4096, 4096, 4096): {"bm": 128, "bn": 128, "schedule": "pingpong"},
    (8192, 8192, 8192): {"bm": 128, "bn": 192, "schedule": "pingpong", "swap": "ab"},
    (16384, 4096, 7168): {"bm": 128, "bn": 192, "schedule": "pingpong", "swap": "ab"},
    (4096, 4096, 7168): {"bm": 256, "bn": 128, "schedule": "cooperative", "cluster_n": 2},
}


def candidates(shape: tuple[int, int, int], limit: int) -> list[GemmConfig]:
    problem = Problem(*shape, dtype=tp.float8_e4m3, out_dtype=tp.bfloat16, scales="row")
    return heuristics.candidates(problem, limit=limit)


@pytest.mark.parametrize("shape", FASTEST, ids=str)
def test_what_has_been_measured_to_be_fast_is_chosen(shape: tuple[int, int, int]) -> None:
    """Whole tiles in turn are not shared by a cluster, which made them slower; others are."""
    (chosen,) = candidates(shape, 1)
    wanted = {"swap": "none", "cluster": 1, "cluster_n": 1} | FASTEST[shape]
    assert wanted.items() <= dict(chosen.as_dict()).items()


@pytest.mark.slow
@pytest.mark.sampled(suite=99)
@pytest.mark.parametrize("shape", FASTEST, ids=str)
def test_candidates_compile_without_spills(shape: tuple[int, int, int]) -> None:
    """Also where the accumulator leaves no room for the scales of two slices: 192 registers."""
    a, scale = np.zeros((512, 512), tp.float8_e4m3.numpy), np.zeros(512, np.float32)
    for cfg in candidates(shape, 2):
        c = np.zeros((512, 512), tp.bfloat16.numpy)
        program = sm90.bind(a, a, c, cfg, a_scale=scale, b_scale=scale, chip=tp.H200)
        compiled = cuda.compile(program.kernel)
        assert compiled.spill_bytes == compiled.stack_bytes == 0, cfg
