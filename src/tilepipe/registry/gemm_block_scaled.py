"""What the commands know of the block-scaled GEMM: settings, random cases, checked instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm.reference import activated
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.kernels.gemm_block_scaled import reference
from tilepipe.kernels.gemm_block_scaled.config import BlockScaledGemmConfig, tile_settings
from tilepipe.kernels.gemm_block_scaled.layout import Kind, to_blocked
from tilepipe.kernels.gemm_block_scaled.sm100 import bind
from tilepipe.registry.instances import Sizes, fetched_sizes, product_sizes
from tilepipe.registry.products import (
    ADDENDS,
    EXTENTS,
    MNK,
    Addends,
    check_extents,
    tiles_of,
)
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.testing.numerics import Comparison, compare_matmul

ROW_BYTES = 16  # TMA's unit of the distance between rows
_CONFIGS = Configs({"sm100": BlockScaledGemmConfig})
_WORK: dict[str, Setting] = EXTENTS | {
    "kind": "mxfp8",
    "activation": "none",
    "out_dtype": "bfloat16",
    **ADDENDS,
}


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


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    check_extents(settings)
    cfg = _CONFIGS.config(settings)
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
    more = Addends.random(rng, settings, (m, n), out)

    def verify() -> Comparison:
        left, right = reference.dequantize(a, sfa, a_scale), reference.dequantize(b, sfb, b_scale)
        return compare_matmul(
            c, left, right.T, then=lambda z: activated(more.added(z), cfg.activation)
        )

    extras = wholes | more.operands()
    program = bind(a, b, to_blocked(sfa), to_blocked(sfb), c, cfg, chip=chip, **extras)
    return Case(program, c, verify, tiles_of(m, n, cfg.bm, cfg.bn))


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    cfg = _CONFIGS.config(settings)
    return (fetched_sizes if cfg.scheduler == "clc" else product_sizes)(
        cfg, cfg.bk * cfg.k_group_size, ring=cfg.accumulators
    )


GEMM_BLOCK_SCALED = KernelSpec(
    "gemm_block_scaled",
    "C = A · Bᵀ of MXFP8, MXFP4 or NVFP4 (kind=), a scale for each 32 or 16 along K; never run on a"
    " GPU",
    _CONFIGS,
    _WORK,
    MNK,
    _make,
    _choose,
    _sizes,
)
