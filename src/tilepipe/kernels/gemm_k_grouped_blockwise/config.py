"""Settings of the blockwise fp8 GEMM with groups along K, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig

# Registers of a thread that totals, partial sums and scales of columns may take, by MMA warpgroups:
# with more, ptxas spills.
MAX_SUMS = {1: 200, 2: 200, 3: 136}
UNIT = 16  # columns whose scales are read at once
SCALES_OF_LINE = 32  # of 128 bytes, to which TMA aligns tiles


@dataclass(frozen=True)
class KGroupedBlockwiseGemmConfig(BlockwiseGemmConfig):
    """Static settings where both operands have a scale for each row and K is divided among groups:
    those of `BlockwiseGemmConfig`, without `splits` and `takes`.
    """

    splits: int = field(default=1, init=False, repr=False)
    takes: str = field(default="rows", init=False, repr=False)

    @property
    def early_cols(self) -> int:
        """Columns whose scales a warpgroup reads while the tensor cores multiply: a thread has
        registers for a quarter of them.
        """
        room = 4 * (MAX_SUMS[self.consumers] - self.sums)
        return min(room // UNIT * UNIT, self.bn)

    @property
    def held_scales(self) -> int:
        """None: they come with the stages."""
        return 0

    @property
    def staged_scales(self) -> int:
        """One for each column."""
        return -(-self.bn // SCALES_OF_LINE) * SCALES_OF_LINE
