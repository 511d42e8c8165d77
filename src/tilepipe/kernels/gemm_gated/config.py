"""Settings of the gated GEMM, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.kernels.common.tiling import Sm90Tiling
from tilepipe.kernels.gemm.config import GemmConfig


@dataclass(frozen=True)
class GatedGemmConfig(Sm90Tiling):
    """Static settings of the gated GEMM: those of `GemmConfig` of the same names.

    Attributes:
        bm, bn, bk: the tile of the MMAs, elements. bn: columns of both products together, half of
            them of gate and half of up: a multiple of 32 up to 256. A tile of C has bn / 2 columns.
        stages: K tiles in flight. k_group_size: K tiles that share a barrier pair.
        consumers: MMA warpgroups, 1 to 3. schedule: "cooperative" or "pingpong".
        cluster, cluster_n: CTAs along M that share the tiles of gate and up by multicast, and along
            N that share A tiles; one of them 1.
        raster: order of the output tiles ("grouped", "rows", "columns"). group: cluster tiles of a
            "grouped" band.
        store_slots: buffers of 64 rows × 128 bytes for each consumer's stores.
        activation: of the gate: "silu" (SwiGLU), "gelu" (GeGLU, tanh form), "gelu_erf" (GeGLU
            itself), "relu" (ReGLU), "none".
    """

    # There is no choice of what the plain GEMM may set.
    swap: str = field(default="none", init=False, repr=False)
    split_k: int = field(default=1, init=False, repr=False)
    accumulate: str = field(default="fast", init=False, repr=False)
    activation: str = "silu"

    def _rules(self) -> dict[str, bool]:
        return super()._rules() | {
            "bn must be a multiple of 32 in 32..256: halves of it are of gate and of up": (
                self.bn % 32 == 0 and self.bn <= 256
            ),
            "bn / 2 / cluster must be a multiple of 8": self.bn % (16 * self.cluster) == 0,
        }

    @property
    def output(self) -> GemmConfig:
        """How C is divided into tiles and stored: as that of a product with half the columns."""
        return GemmConfig(
            bm=self.bm,
            bn=self.bn // 2,
            bk=self.bk,
            consumers=self.consumers,
            schedule=self.schedule,
            cluster=self.cluster,
            raster=self.raster,
            group=self.group,
            cluster_n=self.cluster_n,
            store_slots=self.store_slots,
        )
