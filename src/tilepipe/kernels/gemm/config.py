"""Settings of the GEMM on each architecture."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.kernels.common.tiling import Sm90Tiling, Sm100Tiling


@dataclass(frozen=True)
class GemmConfig(Sm90Tiling):
    """Static settings of the GEMM on Hopper: those of `Sm90Tiling`."""


@dataclass(frozen=True)
class Sm100GemmConfig(Sm100Tiling):
    """Static settings of the GEMM on Blackwell: those of `Sm100Tiling`."""
