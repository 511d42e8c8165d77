"""Settings of the blockwise fp8 GEMM with groups along K, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.kernels.common.tiling import BLOCK_ROWS
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig

# Registers of a thread that totals, partial sums and scales may take, by MMA warpgroups: with more,
# ptxas spills.
MAX_SUMS = {1: 200, 2: 200, 3: 128}


@dataclass(frozen=True)
class KGroupedBlockwiseGemmConfig(BlockwiseGemmConfig):
    """Static settings where both operands have a scale for each row and K is divided among groups:
    those of `BlockwiseGemmConfig`. A warpgroup has 64 rows of a tile, and keeps the scales of its
    columns in registers.
    """

    splits: int = field(default=1, init=False, repr=False)
    # With more ptxas spills: the scales of the next block take registers, too.
    unroll: int = field(default=1, init=False, repr=False)

    def _rules(self) -> dict[str, bool]:
        rules = super()._rules()
        if not all(rules.values()):
            return rules
        scales = self.bn // 2  # of a block and of the next, a quarter of the columns a thread
        registers, limit = self.sums + scales, MAX_SUMS[self.consumers]
        return {
            f"bm must be {BLOCK_ROWS} rows for each warpgroup": self.rows == BLOCK_ROWS,
            f"totals, partial sums and scales of {self.bn} columns take {self.sums} + {scales} ="
            f" {registers} registers of each thread; at most {limit} leave room for the rest: lower"
            " bn": registers <= limit,
        }
