"""The two GEMMs on the command line."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.common.epilogue import activated
from tilepipe.kernels.gemm import heuristics as gemm_choice
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm import sm100 as blackwell_gemm
from tilepipe.kernels.gemm import tuned
from tilepipe.kernels.gemm.heuristics import SPAN, Problem
from tilepipe.registry.instances import Setting, Sizes, fetched_sizes, product_sizes
from tilepipe.registry.spec import (
    BY_DEFAULT,
    EXTENTS,
    MNK,
    Case,
    GemmSpec,
    KernelSpec,
    check_extents,
    random_matrix,
    tiles_of,
)
from tilepipe.testing.numerics import Comparison, compare_matmul, judged_by_the_whole

_HOPPER = asdict(gemm.GemmConfig())
_BLACKWELL = asdict(blackwell_gemm.BlackwellGemmConfig())
_NO_TILES = frozenset({"activation"})  # fields of the configurations that say what is computed
_OPERANDS: dict[str, Setting] = {
    "dtype": "bfloat16",
    "out_dtype": "bfloat16",
    "a_order": "row",
    "b_order": "row",
}


def problem(settings: Mapping[str, Any]) -> Problem:
    """The product that settings state.

    Raises:
        BindError: an extent, order or dtype that no matrix has.
    """
    check_extents(settings)
    for name in ("a_order", "b_order"):
        if settings[name] not in ("row", "col"):
            raise BindError(f"setting {name} must be row or col, got {settings[name]!r}")
    dtype, out = tp.dtype(settings["dtype"]), tp.dtype(settings["out_dtype"])
    return Problem(
        settings["m"], settings["n"], settings["k"], dtype=dtype, out_dtype=out, a_order=settings["a_order"],
        b_order=settings["b_order"], extras=settings["activation"] != "none",
    )  # fmt: skip


def hopper_config(settings: Mapping[str, Any]) -> gemm.GemmConfig:
    """The configuration that settings make."""
    return gemm.GemmConfig(**{name: settings[name] for name in _HOPPER})


def blackwell_config(settings: Mapping[str, Any]) -> blackwell_gemm.BlackwellGemmConfig:
    """The configuration that settings make."""
    return blackwell_gemm.BlackwellGemmConfig(**{name: settings[name] for name in _BLACKWELL})


def _choose_hopper(
    settings: Mapping[str, Any], chip: tp.Chip | None
) -> tuple[dict[str, Setting], str]:
    product = problem(settings)
    if product.dtype not in gemm.INPUTS:
        return {}, ""  # making the case says what is wrong
    if chip is None:
        return _one_line(product), BY_DEFAULT
    remembered = tuned.lookup(product, chip)
    config = gemm_choice.best(product, chip) if remembered is None else remembered
    tiles = {name: value for name, value in asdict(config).items() if name not in _NO_TILES}
    return tiles, "chosen for the shape" if remembered is None else "tuned for the shape"


def _choose_blackwell(
    settings: Mapping[str, Any], chip: tp.Chip | None
) -> tuple[dict[str, Setting], str]:
    product = problem(settings)
    return ({}, "") if product.dtype not in gemm.INPUTS else (_one_line(product), "the defaults")


def _one_line(product: Problem) -> dict[str, Setting]:
    """K tiles whose rows are a swizzle span."""
    return {"bk": SPAN // product.dtype.nbytes}


def _operands(
    product: Problem, seed: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    rng = np.random.default_rng(seed)
    a = random_matrix(rng, (product.m, product.k), product.dtype, product.a_order)
    b = random_matrix(rng, (product.n, product.k), product.dtype, product.b_order)
    return a, b, np.zeros((product.m, product.n), product.out_dtype.numpy)


def _make_hopper(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    product, config = problem(settings), hopper_config(settings)
    a, b, c = _operands(product, seed)
    rows, cols = (product.m, product.n) if config.swap == "none" else (product.n, product.m)
    rough = product.dtype.nbytes == 1 and config.accumulate == "fast"
    verify = functools.partial(_verify, c, a, b, config.activation, rough)
    return Case(
        gemm.bind(a, b, c, config, chip=chip), c, verify, tiles_of(rows, cols, config.bm, config.bn)
    )


def _make_blackwell(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    product, config = problem(settings), blackwell_config(settings)
    a, b, c = _operands(product, seed)
    verify = functools.partial(_verify, c, a, b, config.activation, product.dtype.nbytes == 1)
    return Case(
        blackwell_gemm.bind(a, b, c, config, chip=chip),
        c,
        verify,
        tiles_of(product.m, product.n, config.bm, config.bn),
    )


def _sizes_hopper(settings: Mapping[str, Any]) -> Sizes:
    """Warpgroups that take turns pass four barriers on, two of them for each tile."""
    cfg = hopper_config(settings)
    step = cfg.bk * cfg.k_group_size * cfg.split_k
    return product_sizes(
        cfg, step, ring=2 if cfg.schedule == "pingpong" else 1, swapped=cfg.swap == "ab"
    )


def _sizes_blackwell(settings: Mapping[str, Any]) -> Sizes:
    cfg = blackwell_config(settings)
    return (fetched_sizes if cfg.scheduler == "clc" else product_sizes)(
        cfg, cfg.bk * cfg.k_group_size, ring=cfg.accumulators
    )


def _verify(
    c: npt.NDArray[Any], a: npt.NDArray[Any], b: npt.NDArray[Any], activation: str, rough: bool
) -> Comparison:
    """`rough`: fp8 that the tensor cores add up in fewer bits than float32 has."""
    comparison = compare_matmul(c, a, b.T, then=functools.partial(activated, name=activation))
    return judged_by_the_whole(comparison, a.shape[1], c.dtype.name) if rough else comparison


GEMM = GemmSpec(
    "gemm",
    "C = A · Bᵀ: persistent, warp-specialised, TMA in and out, wgmma, cluster multicast",
    ("sm_90a",),
    EXTENTS | _HOPPER | _OPERANDS,
    frozenset(_HOPPER) - _NO_TILES,
    _make_hopper,
    _choose_hopper,
    hopper_config,
    MNK,
    _sizes_hopper,
    problem=problem,
    searched=True,
)
BLACKWELL_GEMM = KernelSpec(
    "blackwell_gemm",
    "the same with tcgen05.mma and tensor memory: pairs of CTAs, cluster launch control; simulated and compiled, never run on a GPU",
    ("sm_100a",),
    EXTENTS | _BLACKWELL | _OPERANDS,
    frozenset(_BLACKWELL) - _NO_TILES,
    _make_blackwell,
    _choose_blackwell,
    blackwell_config,
    MNK,
    _sizes_blackwell,
)
