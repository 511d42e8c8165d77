"""Settings of attention on Blackwell, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.common.settings import Settings

ROWS = 128  # queries of a tile: the lanes of tensor memory
# of queries in a CTA: the tensor core works on one while the softmax of the other is computed
TILES = 2
PART = 64  # elements of the depth of Q and K that have barriers of their own: a span of the swizzle
SLICE = 32  # columns of tensor memory that are in registers at once beside others


@dataclass(frozen=True)
class Sm100AttentionConfig(Settings):
    """Static settings of attention on Blackwell.

    Attributes:
        bn: keys of a block. Tensor memory holds S and O of two tiles, 2 · (bn + d) columns of 512;
            a row of S is in registers at once.
        stages: K tiles, and as many V tiles, in shared memory.
        rescale_above: the output of a row is rescaled where its maximum has grown by more than this
            power of 2. P may be so large.
    """

    bn: int = 128
    stages: int = 2
    rescale_above: int = 8

    def _rules(self) -> dict[str, bool]:
        return {
            "bn must be a multiple of 32 in 32..128": self.bn % 32 == 0 and self.bn <= 128,
            "stages must be at least 2: a V tile is held until the next block has been begun": self.stages
            >= 2,
            "rescale_above must be at most 15: float16 holds P up to 2^15": self.rescale_above
            <= 15,
        }

    def fa4(self, dtype: tp.DType, d: int) -> tp.FA4Config:
        """The shape of the kernel for heads of d elements."""
        return tp.FA4Config(
            qkv_dtype=dtype,
            depth=d,
            BM=TILES * ROWS,
            BN=self.bn,
            num_kv_stages=self.stages,
            num_qk_stages=d // PART,
            use_fused_kv=False,
        )


def default_config(d: int) -> Sm100AttentionConfig:
    """What shared memory has room for beside the queries: 192 KB in K and V of 128, 160 KB of 64
    elements.
    """
    return Sm100AttentionConfig(stages=2 if d > PART else 4)
