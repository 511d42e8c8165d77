"""Settings of the GEMM of quantised weights, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.kernels.common.tiling import BLOCK_ROWS, Sm90Tiling
from tilepipe.kernels.gemm_quantised.layout import BLOCK

# Registers of a thread that the totals, the sums of a group and the weights of a row block may
# take, by MMA warpgroups: with more, ptxas spills.
MAX_REGISTERS = {1: 192, 2: 192, 3: 112}


@dataclass(frozen=True)
class QuantisedGemmConfig(Sm90Tiling):
    """Static settings on Hopper. The product is computed as Cᵀ = W · Aᵀ: the weights, once they
    have 16 bits, are the operand of wgmma that may be in registers.

    Attributes:
        bm: rows of W, columns of C, in a tile: 64 or 128 for each MMA warpgroup.
        bn: rows of A and C in a tile: a multiple of 16 up to 128.
        stages: pairs of barriers, each for k_group_size K tiles. k_group_size: K tiles of 128 that
            share a barrier pair; within them the next weights are made beside the MMAs.
        consumers: MMA warpgroups, 1 to 3, which split the rows of W.
        split_k: CTAs that each take a part of K of the same tile; they exchange sums through
            distributed shared memory and add them in one fixed order.
        store_slots: buffers of 64 columns of C for each consumer's stores.
        activation: of the output: "none", "relu", "gelu" (tanh form), "silu" or
            "gelu_erf" (GELU itself).
    """

    bn: int = 64
    stages: int = 2
    k_group_size: int = 2
    # There is no choice of what the other Hopper GEMMs may set.
    bk: int = field(default=BLOCK, init=False, repr=False)
    schedule: str = field(default="cooperative", init=False, repr=False)
    swap: str = field(default="ab", init=False, repr=False)
    cluster: int = field(default=1, init=False, repr=False)
    cluster_n: int = field(default=1, init=False, repr=False)
    accumulate: str = field(default="fast", init=False, repr=False)
    raster: str = field(default="grouped", init=False, repr=False)
    group: int = field(default=8, init=False, repr=False)

    def _rules(self) -> dict[str, bool]:
        if self.bn % 16 or self.bn > 128:
            return {"bn must be a multiple of 16 up to 128": False}
        # Parts of a tile that go to other CTAs are narrower here than those of the plain GEMM.
        rules = {
            sentence: holds
            for sentence, holds in super()._rules().items()
            if not sentence.startswith("bn / split_k")
        }
        if not all(rules.values()):  # what follows divides by what these are about
            return rules
        used, limit = self.sums, MAX_REGISTERS[self.consumers]
        return rules | {
            "bn / split_k must be a multiple of 8": self.bn % (8 * self.split_k) == 0,
            f"totals of {self.rows}×{self.bn}, twice sums of {BLOCK_ROWS}×{self.bn} and weights of"
            f" {BLOCK_ROWS}×{BLOCK} take ({self.rows} * {self.bn} + 2 * {BLOCK_ROWS} * {self.bn} +"
            f" {BLOCK_ROWS} * {BLOCK}) / 128 = {used} registers of each thread; at most"
            f" {limit} leave room for the rest: lower bm or bn": used <= limit,
        }

    @property
    def sums(self) -> int:
        """Registers of a thread for totals, sums of two units, and their weights of 16 bits."""
        return ((self.rows + 2 * BLOCK_ROWS) * self.bn + BLOCK_ROWS * BLOCK) // 128
