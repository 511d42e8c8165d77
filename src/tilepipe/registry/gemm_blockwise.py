"""What the commands know of the blockwise fp8 GEMM: settings, random cases, checked instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.kernels.gemm_blockwise import reference, sm90, sm100
from tilepipe.kernels.gemm_blockwise.config import (
    BLOCK,
    WINDOW,
    BlockwiseGemmConfig,
    Sm100BlockwiseGemmConfig,
)
from tilepipe.kernels.gemm_blockwise.heuristics import TUNABLE
from tilepipe.registry.instances import Sizes, fetched_sizes, product_sizes
from tilepipe.registry.products import BY_DEFAULT, EXTENTS, MNK, check_extents, tiles_of
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, GemmSpec
from tilepipe.registry.tuning import Tuning, chosen
from tilepipe.testing.numerics import Comparison, judged_by_the_whole

_CONFIGS = Configs(
    {"sm90": BlockwiseGemmConfig, "sm100": Sm100BlockwiseGemmConfig},
    constant=("bk", "k_group_size", "activation"),
)


def problem(settings: Mapping[str, Any]) -> Problem:
    """The product of fp8 operands with a scale for each block that settings state.

    Raises:
        BindError: an extent or dtype that no matrix has.
    """
    check_extents(settings)
    out = tp.dtype(settings["out_dtype"])
    return Problem(
        settings["m"],
        settings["n"],
        settings["k"],
        dtype=tp.float8_e4m3,
        out_dtype=out,
        scales="block",
    )


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    product = problem(settings)
    if settings["arch"] != "sm90":
        return dict(_CONFIGS.of(settings["arch"])), "the defaults"
    if chip is None or product.out_dtype not in OUTPUTS:
        return {}, BY_DEFAULT
    return chosen(TUNABLE, product, chip)


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    product, cfg, rng = problem(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    a, a_scales = reference.quantized_rows(
        rng.standard_normal((product.m, product.k), dtype=np.float32)
    )
    b, b_scales = reference.quantized_blocks(
        rng.standard_normal((product.n, product.k), dtype=np.float32)
    )
    c = np.zeros((product.m, product.n), product.out_dtype.numpy)
    bind = sm90.bind if isinstance(cfg, BlockwiseGemmConfig) else sm100.bind
    program = bind(a, b, a_scales, b_scales, c, cfg, chip=chip)

    def verify() -> Comparison:
        compared = reference.compare(c, a, a_scales, b, b_scales)
        # each block's sum is added in float32
        return judged_by_the_whole(compared, min(product.k, BLOCK), c.dtype.name)

    return Case(program, c, verify, tiles_of(product.m, product.n, cfg.bm, cfg.bn))


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    """An accumulator is that of a block of K, so that only fetched work goes on by one a tile. On
    Hopper one instance has scales of a second window.
    """
    cfg = _CONFIGS.config(settings)
    if isinstance(cfg, BlockwiseGemmConfig):
        return product_sizes(cfg, BLOCK * cfg.blocks_of_stage, least=WINDOW + 2)
    return (fetched_sizes if cfg.scheduler == "clc" else product_sizes)(cfg, BLOCK)


GEMM_BLOCKWISE = GemmSpec(
    "gemm_blockwise",
    "C = A · Bᵀ of fp8 e4m3, a scale for each 1×128 of A and 128×128 of B: wgmma, or tcgen05.mma"
    " (arch=sm100; never run on a GPU)",
    _CONFIGS,
    EXTENTS | {"out_dtype": "bfloat16"},
    MNK,
    _make,
    _choose,
    _sizes,
    problem=problem,
    shapes="fp8",
    tuning=Tuning(TUNABLE, problem, ("m", "n", "k")),
)
