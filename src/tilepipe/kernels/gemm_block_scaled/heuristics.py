"""Tile settings of the block-scaled GEMM for a number format."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_block_scaled.layout import KINDS


def tile_settings(kind: str) -> dict[str, int | str]:
    """The settings that make the rows of K tiles fill one swizzle span."""
    # For an unknown kind the configuration raises the error.
    elements = KINDS[kind].elements if kind in KINDS else ("float8_e4m3",)
    return {"bk": SPAN * 8 // tp.dtype(elements[0]).bits}
