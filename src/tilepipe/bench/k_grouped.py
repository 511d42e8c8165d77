"""The operands of a product with groups along K in GPU memory, beside PyTorch's `grouped_mm` and a
loop of cuBLAS over the groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.beside import OURS, Contest
from tilepipe.bench.grouped import LOOP, OTHER_DTYPE, PEER
from tilepipe.bench.groups import GroupOperands, contests_of, empty_offsets, grouped_mm
from tilepipe.bench.operands import DEVICE, allocated
from tilepipe.kernels.gemm_grouped.reference import bounds, split_rows
from tilepipe.kernels.gemm_k_grouped import sm90 as gemm_k_grouped
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.heuristics import KGroupedProblem
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.gemm_k_grouped import GEMM_K_GROUPED as SPEC, problem as product_of

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


class KGroupedOperands(GroupOperands[KGroupedProblem]):
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

    def built(self, config: KGroupedGemmConfig) -> Launcher:
        """The kernel with a configuration."""
        return build(self.problem, config)

    def peer(self, i: int) -> None:
        """By PyTorch's grouped_mm, which allocates the result."""
        self.c[PEER][i] = grouped_mm(self.a[i].t(), self.b[i], offs=self.offsets)

    def loop(self, i: int) -> None:
        """By cuBLAS, group by group: the host knows the offsets."""
        a, b, c = self.a[i], self.b[i], self.c[LOOP][i]
        for group, (start, end) in enumerate(self.bounds):
            torch.mm(a[start:end].t(), b[start:end], out=c[group])

    def peers(self) -> Mapping[str, timing.Launch | str]:
        """PyTorch and cuBLAS."""
        same = self.problem.dtype is self.problem.out_dtype
        return {LOOP: self.loop if same else OTHER_DTYPE, PEER: self.peer}

    def pairs(self, side: str, i: int) -> Iterator[tuple[Any, Any]]:
        """As of `GroupOperands`; those of a group without rows are 0."""
        for group, (start, end) in enumerate(self.bounds):
            want = self.a[i][start:end].float().t() @ self.b[i][start:end].float()
            yield self.c[side][i][group], want


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
    return gemm_k_grouped.bind(
        TensorView(a.t()),
        TensorView(b.t()),
        TensorView(c.view(groups, m, n)),
        TensorView(empty_offsets(groups)),
        config,
    ).launcher()


def contests(
    given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench gemm_k_grouped` measures."""
    return contests_of(SPEC, STANDARD, product_of, _operands, given, shapes, chip, seed)


def _operands(problem: KGroupedProblem, settings: Mapping[str, Any], seed: int) -> KGroupedOperands:
    return KGroupedOperands(problem, settings["split"], seed)
