"""Products of the GEMM with a source, for the tests of the simulator and of the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig

BF16 = ml_dtypes.bfloat16
SOURCES: dict[str, dict[str, Any]] = {
    "default": {},
    "one consumer": {"bm": 64, "consumers": 1, "bn": 64},
    "two blocks of rows": {"bm": 256, "bn": 64, "stages": 2},
    "two wgmma wide": {"bn": 320, "stages": 2},
    "three consumers": {"consumers": 3, "bm": 192, "bn": 96, "stages": 3},
    "slices that share slots": {"bn": 72, "stages": 3},
    "cluster": {"cluster": 2, "stages": 3},
    "ping-pong": {"schedule": "pingpong", "bm": 64},
    "half of k": {"split_k": 2, "stages": 2},
    "transposed": {"swap": "ab"},
    "transposed ping-pong": {"swap": "ab", "schedule": "pingpong", "bm": 64, "bn": 48},
}


def bound(
    shape: tuple[int, ...], out: Any = BF16, seed: int = 0, **settings: Any
) -> tuple[tp.Program, Any]:
    """A program that computes gelu(1.5 · A · Bᵀ + bias - 2 · source), and its C."""
    (*batch, m, n, k), rng = shape, np.random.default_rng(seed)
    a, b, source = (
        rng.standard_normal((*batch, *x)).astype(t)
        for x, t in (((m, k), BF16), ((n, k), BF16), ((m, n), out))
    )
    bias, c = rng.standard_normal((m, 1)).astype(out), np.zeros((*batch, m, n), out)
    cfg = GemmConfig(activation="gelu", **settings)
    return gemm.bind(a, b, c, cfg, bias=bias, source=source, alpha=1.5, beta=-2.0), c
