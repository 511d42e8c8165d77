"""The operands of a blockwise fp8 product with groups along K in GPU memory, beside a loop of
PyTorch's `scaled_mm` over the groups, and DeepGEMM, which adds to float32.
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
from tilepipe.bench.grouped_blockwise import LOOP
from tilepipe.bench.groups import Fp8GroupOperands, contests_of, empty_offsets, fill_fp8
from tilepipe.bench.operands import DEVICE, allocated
from tilepipe.kernels.gemm_blockwise.config import BLOCK
from tilepipe.kernels.gemm_blockwise.reference import ROW_UNIT
from tilepipe.kernels.gemm_blockwise.validation import blocks_of
from tilepipe.kernels.gemm_grouped.reference import bounds, split_rows
from tilepipe.kernels.gemm_k_grouped_blockwise import sm90 as gemm_k_grouped_blockwise
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.heuristics import KGroupedBlockwiseProblem
from tilepipe.kernels.gemm_k_grouped_blockwise.reference import ends_of
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.gemm_k_grouped_blockwise import (
    GEMM_K_GROUPED_BLOCKWISE as SPEC,
    problem as product_of,
)

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

# m, n, k, groups, split: weight gradients of the experts that `bench.grouped_blockwise` measures.
STANDARD = (
    (7168, 4096, 32768, 4, "random"),
    (2048, 7168, 32768, 4, "random"),
    (7168, 4096, 32768, 8, "random"),
    (2048, 7168, 65536, 64, "random"),
)
ADDS = "it adds to float32: -s out_dtype=float32"


class KGroupedBlockwiseOperands(Fp8GroupOperands[KGroupedBlockwiseProblem]):
    """`sets` sets of operands: normal values of fp8, 100 times standard, and scales about 0.01,
    which are, as the offsets, the same for all.

    Attributes:
        a, b: (m, k) and (n, k). a_scales, b_scales: (k blocks, m) and (k blocks, n). c: (groups, m,
            n) by side. parts: of k, of all groups; bounds: (group, start, end) of those that have
            elements of k.
    """

    def __init__(self, problem: KGroupedBlockwiseProblem, split: str, seed: int = 0) -> None:
        self.problem = problem
        m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
        written = groups * m * n * problem.out_dtype.nbytes
        self.sets = timing.sets_for((m + n) * k + written)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.a, self.b = (allocated((rows, k), "row", tp.float8_e4m3, self.sets) for rows in (m, n))
        fill_fp8([*self.a, *self.b], generator)
        self.a_scales, self.b_scales = (
            0.0075 + 0.005 * _scales(rows, k, generator) for rows in (m, n)
        )
        self.c = {
            side: [x.view(groups, m, n) for x in _results(problem, self.sets)]
            for side in (OURS, LOOP, deep_gemm.NAME)
        }
        offsets = split_rows(np.random.default_rng(seed), k, groups, split)
        self.parts = list(bounds(ends_of(offsets, k), k))
        spans = enumerate(self.parts)
        self.bounds = [(group, *span) for group, span in spans if span[0] < span[1]]
        self.offsets = torch.from_numpy(offsets).to(DEVICE)

    def built(self, config: KGroupedBlockwiseGemmConfig) -> Launcher:
        """The kernel with a configuration."""
        return build(self.problem, config)

    def loop(self, i: int) -> None:
        """By PyTorch, group by group: the host knows the offsets. It allocates each result."""
        from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

        flat, rows = SwizzleType.NO_SWIZZLE, ScalingType.BlockWise1x128
        for group, start, end in self.bounds:
            blocks = slice(start // BLOCK, blocks_of(end))
            self.c[LOOP][i][group] = scaled_mm(
                self.a[i][:, start:end],
                self.b[i][:, start:end].t(),
                self.a_scales[blocks].t(),
                rows,
                self.b_scales[blocks].t(),
                rows,
                swizzle_a=flat,
                swizzle_b=flat,
                output_dtype=self.c[LOOP][i].dtype,
            )

    def peers(self) -> Mapping[str, timing.Launch | str]:
        """PyTorch, and DeepGEMM where it is installed."""
        return {LOOP: self.loop, deep_gemm.NAME: self._deep_gemm()}

    def _deep_gemm(self) -> timing.Launch | str:
        if self.problem.out_dtype is not tp.float32:
            return ADDS
        operands = self.a, self.a_scales, self.b, self.b_scales, self.c[deep_gemm.NAME]
        try:
            return deep_gemm.k_grouped(*operands, self.parts)
        except ImportError as error:
            return str(error)

    def wipe(self) -> None:
        """As of `GroupOperands`, but what DeepGEMM adds to is 0."""
        super().wipe()
        for x in self.c[deep_gemm.NAME]:
            x.zero_()

    def pairs(self, side: str, i: int) -> Iterator[tuple[Any, Any]]:
        """As of `GroupOperands`, of the groups that have elements of k; of DeepGEMM the float32
        product as often as it has been added.
        """
        for group, start, end in self.bounds:
            blocks = slice(start // BLOCK, blocks_of(end))
            a, b = (
                x[i][:, start:end].float()
                * scales[blocks].t().repeat_interleave(BLOCK, 1)[:, : end - start]
                for x, scales in ((self.a, self.a_scales), (self.b, self.b_scales))
            )
            got, want = self.c[side][i][group], a @ b.t()
            yield got, want * _times(got, want) if side == deep_gemm.NAME else want


def _times(total: Any, product: Any) -> int:
    """How often a product is in a total, to the nearest whole number of at least 1."""
    ratio = float((total * product).sum(dtype=torch.float64) / (product * product).sum())
    return max(round(ratio), 1) if math.isfinite(ratio) else 1


def _scales(rows: int, k: int, generator: Any = None) -> Any:
    """Uniform numbers (k blocks, rows), whose lines are multiples of 16 bytes apart."""
    width = -(-rows // ROW_UNIT) * ROW_UNIT
    return torch.rand(blocks_of(k), width, generator=generator, device=DEVICE)[:, :rows]


def _results(problem: KGroupedBlockwiseProblem, sets: int) -> list[Any]:
    shape = problem.groups * problem.m, problem.n
    return allocated(shape, "row", problem.out_dtype, sets, math.nan)


def build(problem: KGroupedBlockwiseProblem, config: KGroupedBlockwiseGemmConfig) -> Launcher:
    """The kernel for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    m, n, k, groups = problem.m, problem.n, problem.k, problem.groups
    # Memory that is given back at once: what is bound is where it lies, not what is in it.
    (a,), (b,) = (allocated((rows, k), "row", tp.float8_e4m3, 1) for rows in (m, n))
    (c,) = _results(problem, 1)
    return gemm_k_grouped_blockwise.bind(
        TensorView(a),
        TensorView(b),
        TensorView(_scales(m, k)),
        TensorView(_scales(n, k)),
        TensorView(c.view(groups, m, n)),
        TensorView(empty_offsets(groups)),
        config,
    ).launcher()


def contests(
    given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench gemm_k_grouped_blockwise` measures."""
    return contests_of(SPEC, STANDARD, product_of, _operands, given, shapes, chip, seed)


def _operands(
    problem: KGroupedBlockwiseProblem, settings: Mapping[str, Any], seed: int
) -> KGroupedBlockwiseOperands:
    return KGroupedBlockwiseOperands(problem, settings["split"], seed)
