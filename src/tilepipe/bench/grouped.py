"""The operands of a grouped product in GPU memory, beside PyTorch's `grouped_mm` and a loop of
cuBLAS over the groups.
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
from tilepipe.bench.groups import GroupOperands, contests_of, empty_offsets, grouped_mm
from tilepipe.bench.operands import DEVICE, allocated
from tilepipe.errors import BindError
from tilepipe.kernels.gemm_grouped import reference, sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.heuristics import GroupedProblem
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.gemm_grouped import GEMM_GROUPED as SPEC, problem as product_of

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

PEER, LOOP = "grouped_mm", "loop of mm"
OTHER_DTYPE = "torch.mm writes the dtype of its operands"
# m, n, k, groups, split: eight large experts; 64 experts up and down, with many rows each, some,
# and as few as in decoding.
STANDARD = (
    (32768, 4096, 4096, 8, "even"),
    (32768, 4096, 4096, 8, "random"),
    (65536, 4096, 7168, 64, "random"),
    (65536, 7168, 2048, 64, "random"),
    (16384, 4096, 7168, 64, "skewed"),
    (8192, 4096, 7168, 64, "random"),
    (8192, 28672, 4096, 8, "random"),
    (1024, 4096, 7168, 64, "random"),
)


class GroupedOperands(GroupOperands[GroupedProblem]):
    """`sets` sets of operands, standard normal values; the offsets are the same for all.

    Attributes:
        a: (m, k). b: (groups, n, k), in the problem's order. c: (m, n) by side. ends: the offsets
            on the host; `offsets` on the GPU.
    """

    def __init__(self, problem: GroupedProblem, split: str, seed: int = 0) -> None:
        self.problem = problem
        m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
        size = problem.dtype.nbytes
        self.sets = timing.sets_for((m + n * groups) * k * size + m * n * problem.out_dtype.nbytes)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.a = allocated((m, k), "row", problem.dtype, self.sets)
        lines, width = (n, k) if problem.b_order == "row" else (k, n)
        flat = [
            x.view(groups, lines, width)
            for x in allocated((groups * lines, width), "row", problem.dtype, self.sets)
        ]
        for x in (*self.a, *flat):
            x.normal_(generator=generator)
        self.b = flat if problem.b_order == "row" else [x.transpose(1, 2) for x in flat]
        self.c = {
            side: allocated((m, n), "row", problem.out_dtype, self.sets, math.nan)
            for side in (OURS, PEER, LOOP)
        }
        self.ends = reference.split_rows(np.random.default_rng(seed), m, groups, split)
        self.bounds = [(g, *x) for g, x in enumerate(reference.bounds(self.ends, m)) if x[0] < x[1]]
        self.offsets = torch.from_numpy(self.ends).to(DEVICE)

    def built(self, config: GroupedGemmConfig) -> Launcher:
        """The kernel with a configuration."""
        return build(self.problem, config)

    def peer(self, i: int) -> None:
        """By PyTorch's grouped_mm, which allocates the result."""
        right = self.b[i].transpose(1, 2)
        self.c[PEER][i] = grouped_mm(self.a[i], right, offs=self.offsets)

    def loop(self, i: int) -> None:
        """By cuBLAS, group by group: the host knows the offsets."""
        a, b, c = self.a[i], self.b[i], self.c[LOOP][i]
        for group, start, end in self.bounds:
            torch.mm(a[start:end], b[group].t(), out=c[start:end])

    def peers(self) -> Mapping[str, timing.Launch | str]:
        """PyTorch and cuBLAS."""
        same = self.problem.dtype is self.problem.out_dtype
        return {LOOP: self.loop if same else OTHER_DTYPE, PEER: self.peer}

    def pairs(self, side: str, i: int) -> Iterator[tuple[Any, Any]]:
        """As of `GroupOperands`, of the groups that have rows."""
        for group, start, end in self.bounds:
            want = self.a[i][start:end].float() @ self.b[i][group].float().t()
            yield self.c[side][i][start:end], want


def build(problem: GroupedProblem, config: GroupedGemmConfig) -> Launcher:
    """The kernel for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
    # Memory that is given back at once: what is bound is where it lies, not what is in it.
    lines, width = (n, k) if problem.b_order == "row" else (k, n)
    (a,), (b,), (c,) = (
        allocated(shape, "row", dtype, 1)
        for shape, dtype in (
            ((m, k), problem.dtype),
            ((groups * lines, width), problem.dtype),
            ((m, n), problem.out_dtype),
        )
    )
    b = b.view(groups, lines, width)
    return gemm_grouped.bind(
        TensorView(a),
        TensorView(b if problem.b_order == "row" else b.transpose(1, 2)),
        TensorView(c),
        TensorView(empty_offsets(groups)),
        config,
    ).launcher()


def contests(
    given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """The problems of `tilepipe bench gemm_grouped`."""
    if given.get("form", "rows") != "rows":
        raise BindError(
            f"tilepipe bench {SPEC.name} measures form=rows, got form={given['form']}; groups with"
            " a matrix each are measured by tilepipe bench gemm_grouped_blockwise"
        )
    return contests_of(SPEC, STANDARD, product_of, _operands, given, shapes, chip, seed)


def _operands(problem: GroupedProblem, settings: Mapping[str, Any], seed: int) -> GroupedOperands:
    return GroupedOperands(problem, settings["split"], seed)
