"""The blockwise fp8 GEMM on the command line: one name for its two forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise import heuristics as blockwise_fp8_choice
from tilepipe.kernels.gemm_blockwise import reference
from tilepipe.kernels.gemm_blockwise import sm90 as hopper
from tilepipe.kernels.gemm_blockwise import sm100 as blackwell
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseFP8Config
from tilepipe.registry.instances import Setting, Sizes, fetched_sizes, product_sizes
from tilepipe.registry.spec import (
    BY_DEFAULT,
    EXTENTS,
    MNK,
    Case,
    Forms,
    GemmSpec,
    check_extents,
    tiles_of,
)
from tilepipe.testing.numerics import Comparison, judged_by_the_whole

_FIXED = ("bk", "k_group_size", "activation")  # of the Blackwell form: there is one value
_FORMS = Forms(
    {"hopper": BlockwiseFP8Config, "blackwell": blackwell.BlackwellBlockwiseConfig}, _FIXED
)
config = _FORMS.config


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
    if settings["form"] != "hopper":
        return dict(_FORMS.of(settings["form"])), "the defaults"
    if chip is None or product.out_dtype not in gemm.OUTPUTS:
        return {}, BY_DEFAULT
    return asdict(blockwise_fp8_choice.best(product, chip)), "chosen for the shape"


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    product, cfg, rng = problem(settings), config(settings), np.random.default_rng(seed)
    a, a_scales = reference.quantized_rows(
        rng.standard_normal((product.m, product.k), dtype=np.float32)
    )
    b, b_scales = reference.quantized_blocks(
        rng.standard_normal((product.n, product.k), dtype=np.float32)
    )
    c = np.zeros((product.m, product.n), product.out_dtype.numpy)
    if isinstance(cfg, BlockwiseFP8Config):
        program = hopper.bind(a, b, a_scales, b_scales, c, cfg, chip=chip)
    else:
        program = blackwell.bind(a, b, a_scales, b_scales, c, cfg, chip=chip)

    def verify() -> Comparison:
        compared = reference.compare(c, a, a_scales, b, b_scales)
        # each block's sum is added in float32
        return judged_by_the_whole(compared, min(product.k, BLOCK), c.dtype.name)

    return Case(program, c, verify, tiles_of(product.m, product.n, cfg.bm, cfg.bn))


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    """An accumulator is that of a block of K, so that only fetched work goes on by one a tile."""
    cfg = config(settings)
    return (fetched_sizes if getattr(cfg, "scheduler", "static") == "clc" else product_sizes)(
        cfg, BLOCK
    )


BLOCKWISE_FP8_GEMM = GemmSpec(
    "blockwise_fp8_gemm",
    "C = A · Bᵀ of fp8 e4m3, a scale for each 1×128 of A and 128×128 of B: wgmma, or tcgen05.mma (form=blackwell)",
    ("sm_90a", "sm_100a"),
    EXTENTS | _FORMS.defaults | {"out_dtype": "bfloat16", "form": "hopper"},
    frozenset(_FORMS.defaults),
    _make,
    _choose,
    config,
    MNK,
    _sizes,
    {"sm_100a": {"form": "blackwell"}},
    _FORMS,
    problem=problem,
    shapes="fp8",
)
