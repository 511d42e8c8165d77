"""What the commands know of the GEMM: settings, random cases, checked instances."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.common.tiling import store_width
from tilepipe.kernels.gemm import reference, sm90, sm100, sm100_heuristics
from tilepipe.kernels.gemm.config import GemmConfig, Sm100GemmConfig
from tilepipe.kernels.gemm.heuristics import SPAN, TUNABLE, Problem
from tilepipe.kernels.gemm.validation import INPUTS
from tilepipe.registry.instances import Sizes, fetched_sizes, parts_sizes, product_sizes
from tilepipe.registry.products import (
    ADDENDS,
    BY_DEFAULT,
    EXTENTS,
    MNK,
    Addends,
    check_extents,
    random_matrix,
    tiles_of,
)
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, GemmSpec
from tilepipe.registry.tuning import Tuning, chosen

_CONFIGS = Configs({"sm90": GemmConfig, "sm100": Sm100GemmConfig})
PRODUCT: dict[str, Setting] = EXTENTS | {
    "dtype": "bfloat16",
    "out_dtype": "bfloat16",
    "a_order": "row",
    "b_order": "row",
    "activation": "none",
}
_WORK = PRODUCT | ADDENDS


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
        settings["m"],
        settings["n"],
        settings["k"],
        dtype=dtype,
        out_dtype=out,
        a_order=settings["a_order"],
        b_order=settings["b_order"],
        extras=settings["activation"] != "none"
        or any(settings.get(name, x) != x for name, x in ADDENDS.items()),
        source=bool(settings.get("source")),
    )


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    product = problem(settings)
    if product.dtype not in INPUTS:
        return {}, ""  # making the case says what is wrong
    one_line: dict[str, Setting] = {"bk": SPAN // product.dtype.nbytes}  # a swizzle span
    if chip is None:
        return one_line, BY_DEFAULT
    if settings["arch"] == "sm100":
        tiles = sm100_heuristics.choose(product, chip).as_dict()
        return {name: x for name, x in tiles.items() if name not in _WORK}, "chosen for the shape"
    return chosen(TUNABLE, product, chip, _WORK)


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    product, cfg, rng = problem(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    a = random_matrix(rng, (product.m, product.k), product.dtype, product.a_order)
    b = random_matrix(rng, (product.n, product.k), product.dtype, product.b_order)
    c = np.zeros((product.m, product.n), product.out_dtype.numpy)
    # fp8 that the tensor cores add up in fewer bits than float32 has
    rough = product.dtype.nbytes == 1 and getattr(cfg, "accumulate", "fast") == "fast"
    more = Addends.random(rng, settings, (product.m, product.n), product.out_dtype)
    verify = functools.partial(
        reference.compare, c, a, b, cfg.activation, added=more.added, rough=rough
    )
    rows, cols = (product.m, product.n) if cfg.swap == "none" else (product.n, product.m)
    bind = sm90.bind if isinstance(cfg, GemmConfig) else sm100.bind
    program = bind(a, b, c, cfg, chip=chip, **more.operands())
    return Case(program, c, verify, tiles_of(rows, cols, cfg.bm, cfg.bn))


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    """Hopper's warpgroups that take turns pass four barriers on, two of them for each tile; where
    the source comes through a ring, that goes round, too.
    """
    cfg = _CONFIGS.config(settings)
    step = cfg.bk * cfg.k_group_size * cfg.split_k
    if isinstance(cfg, GemmConfig) and cfg.k_parts > 1:
        return parts_sizes(cfg, step, cfg.k_parts, swapped=cfg.swap == "ab")
    if isinstance(cfg, GemmConfig):
        ring = 2 if cfg.schedule == "pingpong" else 1
        if settings["source"] and cfg.source_slots:
            width = store_width(tp.dtype(settings["out_dtype"]), cfg)
            slices = cfg.rows // cfg.block_rows * (cfg.bn // cfg.split_k // width)
            tiles = -(-(2 * cfg.source_slots + 1) // slices)
            ring = max(ring, -(-tiles // 2)) if tiles > 2 else ring
        return product_sizes(cfg, step, ring=ring, swapped=cfg.swap == "ab")
    return (fetched_sizes if cfg.scheduler == "clc" else product_sizes)(
        cfg, step, ring=cfg.accumulators
    )


GEMM = GemmSpec(
    "gemm",
    "C = A · Bᵀ: persistent, warp-specialised, TMA in and out, multicast; wgmma, or tcgen05.mma in"
    " CTA pairs (arch=sm100; never run on a GPU)",
    _CONFIGS,
    _WORK,
    MNK,
    _make,
    _choose,
    _sizes,
    zero=("tickets",),
    problem=problem,
    tuning=Tuning(TUNABLE, problem, ("m", "n", "k")),
)
