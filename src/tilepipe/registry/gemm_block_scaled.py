"""The block-scaled GEMM on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.common.epilogue import activated
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.kernels.gemm_block_scaled import reference
from tilepipe.kernels.gemm_block_scaled.layout import KINDS, Kind, to_blocked
from tilepipe.kernels.gemm_block_scaled.sm100 import BlockScaledConfig, bind
from tilepipe.registry.instances import Setting, Sizes, fetched_sizes, product_sizes
from tilepipe.registry.spec import EXTENTS, MNK, Case, KernelSpec, check_extents, tiles_of
from tilepipe.testing.numerics import Comparison, compare_matmul

SPAN = 128  # bytes of K in a tile: a swizzle span
ROW_BYTES = 16  # TMA's unit of the distance between rows
_SETTINGS = asdict(BlockScaledConfig())
# fields of the configuration that say what is computed
_NO_TILES = frozenset({"activation", "kind"})


def tile_settings(kind: str) -> dict[str, Any]:
    """K tiles of a kind whose rows are a swizzle span."""
    # the configuration says what is wrong with another kind
    elements = KINDS[kind].elements if kind in KINDS else ("float8_e4m3",)
    return {"bk": SPAN * 8 // tp.dtype(elements[0]).bits}


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    return tile_settings(settings["kind"]), "the defaults"


def _operand(
    rng: np.random.Generator, rows: int, k: int, kind: Kind
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Any]:
    """Values with rows padded for TMA, scales, and the scale of the whole, 1 but in NVFP4."""
    x = rng.standard_normal((rows, k), dtype=np.float32)
    values, scales, whole = (
        reference.quantize_nvfp4(x)
        if kind.name == "nvfp4"
        else (*reference.quantize_mx(x, kind.elements[0]), 1.0)
    )
    padded = np.zeros((rows, -(-values.shape[1] // ROW_BYTES) * ROW_BYTES), values.dtype)[
        :, : values.shape[1]
    ]
    padded[...] = values
    return padded, scales, whole


def config(settings: Mapping[str, Any]) -> BlockScaledConfig:
    """The configuration that settings make."""
    return BlockScaledConfig(**{name: settings[name] for name in _SETTINGS})


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    check_extents(settings)
    cfg = config(settings)
    m, n, k = (settings[name] for name in "mnk")
    if k % cfg.format.block:
        raise BindError(
            f"setting k must be a multiple of {cfg.format.block}, the elements of {cfg.kind} that"
            f" share a scale, got {k}"
        )
    out, rng = tp.dtype(settings["out_dtype"]), np.random.default_rng(seed)
    if out not in OUTPUTS:
        raise BindError(
            f"setting out_dtype must be one of {', '.join(t.name for t in OUTPUTS)}, got {out}"
        )
    a, sfa, a_scale = _operand(rng, m, k, cfg.format)
    b, sfb, b_scale = _operand(rng, n, k, cfg.format)
    c = np.zeros((m, n), out.numpy)
    wholes: dict[str, Any] = {}
    if cfg.kind == "nvfp4":
        wholes = {
            "a_scale": np.array([a_scale], np.float32),
            "b_scale": np.array([b_scale], np.float32),
        }

    def verify() -> Comparison:
        left, right = reference.dequantize(a, sfa, a_scale), reference.dequantize(b, sfb, b_scale)
        return compare_matmul(c, left, right.T, then=lambda z: activated(z, cfg.activation))

    program = bind(a, b, to_blocked(sfa), to_blocked(sfb), c, cfg, chip=chip, **wholes)
    return Case(program, c, verify, tiles_of(m, n, cfg.bm, cfg.bn))


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    cfg = config(settings)
    return (fetched_sizes if cfg.scheduler == "clc" else product_sizes)(
        cfg, cfg.bk * cfg.k_group_size, ring=cfg.accumulators
    )


BLOCK_SCALED_GEMM = KernelSpec(
    "block_scaled_gemm",
    "C = A · Bᵀ of MXFP8, MXFP4 or NVFP4 (kind=), a scale for each 32 or 16 along K, for Blackwell; never run on a GPU",
    ("sm_100a",),
    EXTENTS | _SETTINGS | {"out_dtype": "bfloat16"},
    frozenset(_SETTINGS) - _NO_TILES,
    _make,
    _choose,
    config,
    MNK,
    _sizes,
)
