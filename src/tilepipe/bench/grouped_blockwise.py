"""The operands of a grouped blockwise fp8 product in GPU memory, beside a loop of PyTorch's
`scaled_mm` over the groups (PyTorch has no grouped product with scales of blocks) and DeepGEMM.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import tilepipe as tp
from tilepipe.bench import deep_gemm, timing
from tilepipe.bench.beside import OURS, Contest
from tilepipe.bench.groups import Fp8GroupOperands, contests_of, empty_offsets, fill_fp8
from tilepipe.bench.operands import DEVICE, allocated
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.reference import ROW_UNIT
from tilepipe.kernels.gemm_blockwise.validation import blocks_of
from tilepipe.kernels.gemm_grouped.reference import rows_of
from tilepipe.kernels.gemm_grouped_blockwise import sm90 as gemm_grouped_blockwise
from tilepipe.kernels.gemm_grouped_blockwise.heuristics import GroupedBlockwiseProblem
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.gemm_grouped import grouped_offsets
from tilepipe.registry.gemm_grouped_blockwise import (
    GEMM_GROUPED_BLOCKWISE as SPEC,
    problem as product_of,
)

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

LOOP = "loop of scaled_mm"
# m, n, k, groups, split: the experts of DeepSeek-V3, up and down, with many rows each, some, and as
# few as in decoding.
STANDARD = (
    (32768, 4096, 7168, 4, "random"),
    (32768, 7168, 2048, 4, "random"),
    (32768, 4096, 7168, 8, "random"),
    (32768, 7168, 2048, 8, "random"),
    (65536, 4096, 7168, 64, "random"),
    (8192, 4096, 7168, 64, "random"),
    (1024, 4096, 7168, 64, "random"),
)


class GroupedBlockwiseOperands(Fp8GroupOperands[GroupedBlockwiseProblem]):
    """`sets` sets of operands: normal values of fp8, 100 times standard, and scales about 0.01,
    which are, as the offsets, the same for all.

    Attributes:
        a: (m, k), or (groups, m, k) in form "padded". b: (groups, n, k). c: as a, by side.
    """

    def __init__(self, problem: GroupedBlockwiseProblem, settings: Mapping[str, Any], seed: int):
        self.problem = problem
        m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
        self.batch = (groups,) if settings["form"] == "padded" else ()
        rows = m * math.prod(self.batch)
        written = rows * n * problem.out_dtype.nbytes
        self.sets = timing.sets_for((rows + n * groups) * k + written)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        a, b = (
            allocated((lines, k), "row", tp.float8_e4m3, self.sets) for lines in (rows, groups * n)
        )
        fill_fp8([*a, *b], generator)
        self.a = [x.view(*self.batch, m, k) for x in a]
        self.b = [x.view(groups, n, k) for x in b]
        self.c = {
            side: [
                x.view(*self.batch, m, n)
                for x in allocated((rows, n), "row", problem.out_dtype, self.sets, math.nan)
            ]
            for side in (OURS, LOOP, deep_gemm.NAME)
        }
        blocks, width = blocks_of(k), -(-m // ROW_UNIT) * ROW_UNIT
        self.a_scales, self.b_scales = (
            0.0075 + 0.005 * torch.rand(shape, generator=generator, device=DEVICE)
            for shape in ((*self.batch, blocks, width), (groups, blocks_of(n), blocks))
        )
        self.a_scales = self.a_scales[..., :m]
        offsets = grouped_offsets(settings, np.random.default_rng(seed))
        self.rows = list(rows_of(np.empty((*self.batch, m, 1), np.bool_), offsets))
        self.offsets = torch.from_numpy(offsets).to(DEVICE)
        # of each group by itself, whose columns `scaled_mm` wants one after the other
        self.parts = [self._scales(*group) for group in self.rows]

    def built(self, config: BlockwiseGemmConfig) -> Launcher:
        """The kernel with a configuration."""
        return build(self.problem, config, padded=bool(self.batch))

    def _scales(self, group: int, start: int, end: int) -> tuple[Any, Any]:
        """The scales of a group as `scaled_mm` takes them."""
        rows = self.a_scales[group] if self.batch else self.a_scales
        lines = self.b_scales[group]
        width = -(-lines.shape[1] // ROW_UNIT) * ROW_UNIT
        padded = torch.zeros(lines.shape[0], width, device=DEVICE)
        padded[:, : lines.shape[1]] = lines
        return rows[:, start:end].contiguous().t(), padded.t()

    def _of(self, tensor: Any, group: int, start: int, end: int) -> Any:
        return (tensor[group] if self.batch else tensor)[start:end]

    def loop(self, i: int) -> None:
        """By PyTorch, group by group: the host knows the offsets. It allocates each result."""
        from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

        flat = SwizzleType.NO_SWIZZLE
        for group, (a_scale, b_scale) in zip(self.rows, self.parts, strict=True):
            self._of(self.c[LOOP][i], *group).copy_(
                scaled_mm(
                    self._of(self.a[i], *group),
                    self.b[i][group[0]].t(),
                    a_scale,
                    ScalingType.BlockWise1x128,
                    b_scale,
                    ScalingType.BlockWise128x128,
                    swizzle_a=flat,
                    swizzle_b=flat,
                    output_dtype=self.c[LOOP][i].dtype,
                )
            )

    def peers(self) -> Mapping[str, timing.Launch | str]:
        """PyTorch, and DeepGEMM where it is installed."""
        return {LOOP: self.loop, deep_gemm.NAME: self._deep_gemm()}

    def _deep_gemm(self) -> timing.Launch | str:
        if self.problem.out_dtype is not tp.bfloat16:
            return deep_gemm.WRITES
        operands = self.a, self.a_scales, self.b, self.b_scales, self.c[deep_gemm.NAME]
        try:
            if self.batch:
                return deep_gemm.padded(*operands, self.offsets)
            return deep_gemm.grouped(*operands, self.rows)
        except ImportError as error:
            return str(error)

    def pairs(self, side: str, i: int) -> Iterator[tuple[Any, Any]]:
        """As of `GroupOperands`, of the groups that have rows."""
        n, k = self.problem.n, self.problem.k
        for group in self.rows:
            a_scale = self._of(self.a_scales.transpose(-1, -2), *group)
            a = self._of(self.a[i], *group).float() * a_scale.repeat_interleave(BLOCK, 1)[:, :k]
            b_scale = self.b_scales[group[0]].repeat_interleave(BLOCK, 0)
            b_scale = b_scale.repeat_interleave(BLOCK, 1)[:n, :k]
            want = a @ (self.b[i][group[0]].float() * b_scale).t()
            yield self._of(self.c[side][i], *group), want


def build(
    problem: GroupedBlockwiseProblem, config: BlockwiseGemmConfig, *, padded: bool = False
) -> Launcher:
    """The kernel for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
    batch = (groups,) if padded else ()
    rows = m * math.prod(batch)
    # Memory that is given back at once: what is bound is where it lies, not what is in it.
    (a,), (b,), (c,) = (
        allocated(shape, "row", dtype, 1)
        for shape, dtype in (
            ((rows, k), tp.float8_e4m3),
            ((groups * n, k), tp.float8_e4m3),
            ((rows, n), problem.out_dtype),
        )
    )
    width = -(-m // ROW_UNIT) * ROW_UNIT
    a_scales = torch.empty(*batch, blocks_of(k), width, device=DEVICE)[..., :m]
    b_scales = torch.empty(groups, blocks_of(n), blocks_of(k), device=DEVICE)
    return gemm_grouped_blockwise.bind(
        TensorView(a.view(*batch, m, k)),
        TensorView(b.view(groups, n, k)),
        TensorView(a_scales),
        TensorView(b_scales),
        TensorView(c.view(*batch, m, n)),
        TensorView(empty_offsets(groups)),
        config,
    ).launcher()


def contests(
    given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench gemm_grouped_blockwise` measures."""
    made = GroupedBlockwiseOperands
    return contests_of(SPEC, STANDARD, product_of, made, given, shapes, chip, seed)
