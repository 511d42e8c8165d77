"""QuACK's GEMM of 16-bit operands as a peer, where the package quack is installed. QuACK compiles
some forty configurations once, and measures all of them for each shape before the first product.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from tilepipe.bench import timing
from tilepipe.kernels.gemm.heuristics import Problem

NAME = "QuACK"
TUNING_S = 10.0  # about, for each shape: each configuration is warmed up for 0.2 s


def takes(problem: Problem) -> bool:
    """True if its products are measured beside ours."""
    return problem.dtype.bits == 16 and problem.scales == "none"


def seconds(problem: Problem) -> float:
    """About how long its tuning of a shape takes: 0 where it is not a peer."""
    found = takes(problem) and importlib.util.find_spec("quack") is not None
    return TUNING_S if found else 0.0


def product(
    a: Sequence[Any],
    b: Sequence[Any],
    c: Sequence[Any],
    source: Sequence[Any] | None,
    beta: float,
) -> timing.Launch:
    """C = A · Bᵀ + beta · source, as QuACK's tuning of that shape has it.

    Raises:
        ImportError: it is not installed.
    """
    module = importlib.import_module("quack.gemm_interface")
    if source is None:
        return lambda i: module.gemm(a[i], b[i].t(), out=c[i], tuned=True)
    return lambda i: module.gemm_add(a[i], b[i].t(), source[i], out=c[i], beta=beta, tuned=True)
