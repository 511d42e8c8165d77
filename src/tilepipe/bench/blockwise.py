"""The operands of a blockwise fp8 product in GPU memory, beside PyTorch's
`torch.nn.functional.scaled_mm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tilepipe.bench import operands
from tilepipe.bench.operands import Operands
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise import sm90 as gemm_blockwise
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.reference import ROW_UNIT
from tilepipe.kernels.gemm_blockwise.validation import blocks_of
from tilepipe.ops.torch.views import TensorView

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher


class BlockwiseOperands(Operands):
    """Operands whose scales are of blocks: `a_scale` (k blocks, m), M contiguous, and `b_scale` (n
    blocks, k blocks), the same for all sets. Lines of both are padded to 16 bytes, which is what
    `scaled_mm` asks for, too.
    """

    scale_names = "a_scales", "b_scales"

    def __init__(self, problem: Problem, seed: int = 0, sets: int | None = None) -> None:
        super().__init__(problem, seed, sets)
        self.a_scale, self.b_scale = scales(
            problem, torch.Generator(operands.DEVICE).manual_seed(seed + 1)
        )

    def peer(self, i: int) -> None:
        """The product of set `i` by PyTorch, which allocates the result."""
        from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

        flat = SwizzleType.NO_SWIZZLE
        assert self.a_scale is not None
        assert self.b_scale is not None
        lines = self.b_scale if self.b_scale.is_contiguous() else self.b_scale.as_strided(
            (self.b_scale.shape[0], self.b_scale.stride(0)), (self.b_scale.stride(0), 1)
        )  # fmt: skip
        self.peer_c[i] = scaled_mm(
            self.a[i], self.b[i].t(), self.a_scale.t(), ScalingType.BlockWise1x128, lines.t(), ScalingType.BlockWise128x128,
            swizzle_a=flat, swizzle_b=flat, output_dtype=self.c[i].dtype,
        )  # fmt: skip

    def _added(self) -> int:
        """Each block's sum is added in float32."""
        return min(self.problem.k, BLOCK)

    def want(self, i: int) -> Any:
        """The float64 product of set `i`."""
        k = self.problem.k
        assert self.a_scale is not None
        assert self.b_scale is not None
        a_scale = self.a_scale.double().t().repeat_interleave(BLOCK, 1)[:, :k]
        b_scale = (
            self.b_scale.double()
            .repeat_interleave(BLOCK, 0)
            .repeat_interleave(BLOCK, 1)[: self.problem.n, :k]
        )
        return (self.a[i].double() * a_scale) @ (self.b[i].double() * b_scale).t()


def scales(problem: Problem, generator: Any) -> tuple[Any, Any]:
    """Scales about 0.01: of A (k blocks, m), of B (n blocks, k blocks)."""

    def lines(count: int, width: int) -> Any:
        padded = torch.rand(
            count, -(-width // ROW_UNIT) * ROW_UNIT, generator=generator, device=operands.DEVICE
        )
        return (0.0075 + 0.005 * padded)[:, :width]

    k_blocks = blocks_of(problem.k)
    return lines(k_blocks, problem.m), lines(blocks_of(problem.n), k_blocks)


def build(problem: Problem, config: BlockwiseGemmConfig) -> Launcher:
    """The kernel for a problem and a configuration, compiled and loaded.

    Raises:
        TilepipeError: the configuration is impossible, or does not compile.
    """
    a, b, c = operands.matrices(problem)
    a_scale, b_scale = scales(problem, None)
    return gemm_blockwise.bind(
        TensorView(a),
        TensorView(b),
        TensorView(a_scale),
        TensorView(b_scale),
        TensorView(c),
        config,
    ).launcher()
