"""The operands of a product with groups along K in GPU memory, beside PyTorch's `grouped_mm` and a
loop of cuBLAS over the groups.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.grouped import LOOP, PEER, parse
from tilepipe.bench.operands import (
    ALIGNMENT,
    DEVICE,
    SUM_ERROR,
    allocated,
    float32_products,
    in_turn,
)
from tilepipe.bench.report import Check, config_text
from tilepipe.kernels.gemm_grouped.reference import bounds, split_rows
from tilepipe.kernels.gemm_k_grouped import sm90 as gemm_k_grouped
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.heuristics import KGroupedProblem
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.gemm_k_grouped import GEMM_K_GROUPED as SPEC, problem as product_of
from tilepipe.testing.numerics import OUTPUT_EPS

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

# m, n, k, groups, split: the weight gradients of the layers that `bench.grouped` measures.
STANDARD = (
    (4096, 4096, 32768, 8, "even"),
    (4096, 4096, 32768, 8, "random"),
    (7168, 4096, 65536, 64, "random"),
    (2048, 7168, 65536, 64, "random"),
    (7168, 4096, 16384, 64, "skewed"),
    (4096, 28672, 8192, 8, "random"),
)


class KGroupedOperands:
    """`sets` sets of operands, standard normal values; the offsets are the same for all.

    Attributes:
        a, b: (k, m) and (k, n), rows of both in the same groups. c: (groups, m, n) by side.
    """

    def __init__(self, problem: KGroupedProblem, split: str, seed: int = 0) -> None:
        self.problem = problem
        m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
        written = m * n * groups * problem.out_dtype.nbytes
        self.sets = timing.sets_for((m + n) * k * problem.dtype.nbytes + written)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.a, self.b = (allocated((k, x), "row", problem.dtype, self.sets) for x in (m, n))
        for x in (*self.a, *self.b):
            x.normal_(generator=generator)
        self.c = {
            side: [x.view(groups, m, n) for x in _results(problem, self.sets)]
            for side in (OURS, PEER, LOOP)
        }
        ends = split_rows(np.random.default_rng(seed), k, groups, split)
        self.bounds = bounds(ends, k)
        self.offsets = torch.from_numpy(ends).to(DEVICE)

    def launches(self, launcher: Launcher) -> timing.Launch:
        """The product of a set by our kernel, in the current stream."""
        offsets = [self.offsets] * self.sets
        return in_turn(launcher, {"a": self.a, "b": self.b, "c": self.c[OURS], "offsets": offsets})

    def peer(self, i: int) -> None:
        """By PyTorch's grouped_mm, which allocates the result."""
        function = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm
        self.c[PEER][i] = function(self.a[i].t(), self.b[i], offs=self.offsets)

    def loop(self, i: int) -> None:
        """By cuBLAS, group by group: the host knows the offsets."""
        a, b, c = self.a[i], self.b[i], self.c[LOOP][i]
        for group, (start, end) in enumerate(self.bounds):
            torch.mm(a[start:end].t(), b[start:end], out=c[group])

    def wipe(self) -> None:
        """Makes all results NaN."""
        for results in self.c.values():
            for x in results:
                x.fill_(math.nan)

    def check(self, side: str, i: int = 0) -> Check:
        """How far a side's result of set `i` is from the float32 one; each group beside the root
        mean square of its own.
        """
        errors = norms = largest = 0.0
        for group, (start, end) in enumerate(self.bounds):
            with float32_products("highest"):
                want = self.a[i][start:end].float().t() @ self.b[i][start:end].float()
            error = self.c[side][i][group].float() - want
            norm = float(want.norm())
            errors, norms = errors + float(error.norm()) ** 2, norms + norm**2
            rms = norm / math.sqrt(want.numel()) or 1.0
            largest = max(largest, float(error.abs().nan_to_num(nan=math.inf).max()) / rms)
        rel, rounding = math.sqrt(errors / norms), OUTPUT_EPS[self.problem.out_dtype.name]
        right = rel <= 0.6 * rounding + SUM_ERROR and largest <= 8 * (rounding + SUM_ERROR)
        return Check(rel, largest, right)

    def sides(self, launcher: Launcher, config: str) -> Sides:
        """Ours and the peers that can solve it."""
        launches, missing = {OURS: self.launches(launcher)}, {}
        if self.problem.dtype is self.problem.out_dtype:
            launches[LOOP] = self.loop
        else:
            missing[LOOP] = "torch.mm writes the dtype of its operands"
        try:
            self.peer(0)
            torch.cuda.synchronize()
            launches[PEER] = self.peer
        except Exception as error:  # ours is measured all the same
            missing[PEER] = f"{type(error).__name__}: {error}".splitlines()[0]
        return Sides(config, self.sets, launches, self.wipe, self.check, missing)


def _results(problem: KGroupedProblem, sets: int) -> list[Any]:
    shape = problem.groups * problem.m, problem.n
    return allocated(shape, "row", problem.out_dtype, sets, math.nan)


def build(problem: KGroupedProblem, config: KGroupedGemmConfig) -> Launcher:
    """The kernel for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
    # Memory that is given back at once: what is bound is where it lies, not what is in it.
    (a,), (b,) = (allocated((k, x), "row", problem.dtype, 1) for x in (m, n))
    (c,) = _results(problem, 1)
    offsets = torch.empty(max(groups, ALIGNMENT // 4), dtype=torch.int32, device=DEVICE)[:groups]
    return gemm_k_grouped.bind(
        TensorView(a.t()),
        TensorView(b.t()),
        TensorView(c.view(groups, m, n)),
        TensorView(offsets),
        config,
    ).launcher()


def contests(
    given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench gemm_k_grouped` measures: the shapes, or the one that settings state, or
    the standard ones.
    """
    wanted = [
        x
        for text in shapes
        for x in (STANDARD if text == "standard" else (parse(text, SPEC.name),))
    ]
    base = SPEC.settings | dict(given)
    if SPEC.extents & given.keys():
        wanted.append((base["m"], base["n"], base["k"], base["experts"], base["split"]))
    return [_contest(given, shape, chip, seed) for shape in wanted or STANDARD]


def _contest(
    given: Mapping[str, Any], shape: tuple[int, int, int, int, str], chip: tp.Chip, seed: int
) -> Contest:
    m, n, k, groups, split = shape
    here = dict(given) | {"m": m, "n": n, "k": k, "experts": groups, "split": split}
    settings, _ = SPEC.configure(here, chip)
    opened = functools.partial(_open, product_of(settings), split, SPEC.config(settings), seed)
    return Contest(f"{m}×{n}×{k}, {groups} groups, {split}", here, 2.0 * m * n * k, opened)


def _open(problem: KGroupedProblem, split: str, config: KGroupedGemmConfig, seed: int) -> Sides:
    torch.cuda.empty_cache()
    operands = KGroupedOperands(problem, split, seed)
    return operands.sides(build(problem, config), config_text(config))
