"""The sm_100 GEMM on small problems: inputs, the program for as many clusters as a test wants to
run at once, references, formulas.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tilepipe.kernels.gemm import sm100
from tilepipe.kernels.gemm.config import Sm100GemmConfig
from tilepipe.sim import Run
from tilepipe.testing import compare_matmul

BF16 = ml_dtypes.bfloat16
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2

# (cluster, cluster_n, cta_group)
CLUSTERS = [
    (1, 1, 1),
    (2, 1, 1),
    (1, 2, 1),
    (2, 2, 1),
    (4, 1, 1),
    (4, 2, 1),
    (2, 1, 2),
    (2, 2, 2),
    (4, 1, 2),
    (4, 2, 2),
]


def shape_of(cluster: tuple[int, int, int]) -> dict[str, Any]:
    """An entry of CLUSTERS as settings."""
    return dict(zip(("cluster", "cluster_n", "cta_group"), cluster, strict=True))


def few(program: tp.Program, clusters: int) -> tp.Program:
    """The program on a chip that holds so many of its clusters at once, or, of a static schedule,
    with so many.
    """
    size = program.kernel.cluster_size
    chip = replace(program.launch_args.chip, sms=clusters * size, clusters=((size, clusters),))
    dynamic = any(role.name == "schedule" for role in program.kernel.roles)
    grid = program.launch_args.grid if dynamic else min(program.launch_args.grid, clusters * size)
    return replace(program, launch_args=replace(program.launch_args, chip=chip, grid=grid))


class Problem:
    """Random A and B, a C that nothing has computed, and the program."""

    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        *,
        dtypes: tuple[Any, Any] = (BF16, BF16),
        out: Any = BF16,
        orders: str = "CC",
        clusters: int = 0,
        extras: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`orders`: of A and B, "C" contiguous along k. `clusters`: see `few`; 0: as many as the
        chip has. `extras`: of `bind`.
        """
        rng = np.random.default_rng(m + n + k)
        self.a, self.b = (
            np.asarray(rng.standard_normal((rows, k)).astype(dtype), order=order)  # type: ignore[call-overload]
            for rows, dtype, order in zip((m, n), dtypes, orders, strict=True)
        )
        self.c = np.full((m, n), np.nan, out)
        self.cfg = Sm100GemmConfig(**settings)
        self.program = sm100.bind(self.a, self.b, self.c, self.cfg, **(extras or {}))
        if clusters:
            self.program = few(self.program, clusters)

    def right(self, seed: int = 0, then: Any = None) -> Run:
        """Runs it; C must be right, and nothing advised."""
        self.c[...] = np.nan
        run = self.program.run(seed=seed)
        comparison = compare_matmul(self.c, self.a, self.b.T, then=then)
        assert comparison.ok, comparison
        assert not run.advice, run.advice
        return run


def simulate(m: int, n: int, k: int, seed: int = 0, **settings: Any) -> Run:
    """A problem computed once."""
    return Problem(m, n, k, **settings).right(seed)


def counts(cluster: int, cluster_n: int, cta_group: int, clc: bool) -> dict[str, int]:
    """Arrivals of a phase of every mbarrier, by formula.

    An input stage is freed by the MMAs of every CTA whose slots a copy of this one's load warp may
    land in: the pairs (or CTAs) at its place along N, and the CTAs at its place along M. A response
    of the scheduler is read by its own warp and, in each CTA, by the load warp, the MMA warp and
    the epilogue.
    """
    size, epilogue = cluster * cluster_n, 128
    found = {
        "inputs.full": 1,
        "inputs.empty": cluster // cta_group + cluster_n - 1,
        "outputs.full": 1,
        "outputs.empty": epilogue * cta_group,
        "tmem_dealloc": epilogue * cta_group,
    }
    fetched = {
        "work.full": 1,
        "work.empty": 32 + size * (32 + 32 + epilogue),
        "work_throttle.full": 32,
        "work_throttle.empty": 32,
    }
    return found | (fetched if clc else {})
