"""What the commands know of the gated GEMM: settings, random cases, checked instances."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm_gated import reference, sm90 as gemm_gated
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig
from tilepipe.kernels.gemm_gated.heuristics import TUNABLE
from tilepipe.kernels.gemm_gated.validation import HALVES
from tilepipe.registry.instances import Size, Sizes, product_sizes
from tilepipe.registry.products import (
    BY_DEFAULT,
    EXTENTS,
    MNK,
    check_sizes,
    random_matrix,
    tiles_of,
)
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.registry.tuning import Tuning, chosen

_CONFIGS = Configs({"sm90": GatedGemmConfig})
_WORK: dict[str, Setting] = EXTENTS | {
    "dtype": "bfloat16",
    "out_dtype": "bfloat16",
    "a_order": "row",
    "b_order": "row",
    "activation": "silu",
}


def problem(settings: Mapping[str, Any]) -> Problem:
    """The product that settings state; `n`: columns of C, of gate and of up each.

    Raises:
        BindError: an extent, order or dtype that there cannot be.
    """
    m, n, k = (settings[name] for name in "mnk")
    check_sizes(settings, "mnk", m * k, n * k, m * n)
    for name in ("a_order", "b_order"):
        if settings[name] not in ("row", "col"):
            raise BindError(f"setting {name} must be row or col, got {settings[name]!r}")
    dtype, out = tp.dtype(settings["dtype"]), tp.dtype(settings["out_dtype"])
    if dtype not in HALVES:
        raise BindError(f"setting dtype must be {' or '.join(t.name for t in HALVES)}, got {dtype}")
    a_order, b_order = settings["a_order"], settings["b_order"]
    return Problem(m, n, k, dtype=dtype, out_dtype=out, a_order=a_order, b_order=b_order)


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    wanted = problem(settings)
    if chip is None:
        return {"bk": SPAN // wanted.dtype.nbytes}, BY_DEFAULT
    return chosen(TUNABLE, wanted, chip, _WORK)


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    wanted, cfg, rng = problem(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    a = random_matrix(rng, (wanted.m, wanted.k), wanted.dtype, wanted.a_order)
    gate, up = (
        random_matrix(rng, (wanted.n, wanted.k), wanted.dtype, wanted.b_order) for _ in range(2)
    )
    c = np.zeros((wanted.m, wanted.n), wanted.out_dtype.numpy)
    return Case(
        gemm_gated.bind(a, gate, up, c, cfg, chip=chip),
        c,
        functools.partial(reference.compare, c, a, gate, up, cfg.activation),
        tiles_of(wanted.m, wanted.n, cfg.bm, cfg.bn // 2),
    )


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    """Those of a product whose tiles have half the columns. Warpgroups that take turns pass four
    barriers on, two of them for each tile.
    """
    cfg = _CONFIGS.config(settings)
    found = product_sizes(
        cfg, cfg.bk * cfg.k_group_size, ring=2 if cfg.schedule == "pingpong" else 1
    )
    return {
        name: Size({**size.extents, "n": int(size.extents["n"]) // 2}, size.clusters)
        for name, size in found.items()
    }


GEMM_GATED = KernelSpec(
    "gemm_gated",
    "C = silu(A · gateᵀ) * (A · upᵀ), or gelu, relu: both products of a gated layer at once",
    _CONFIGS,
    _WORK,
    MNK,
    _make,
    _choose,
    _sizes,
    bench="tilepipe.bench.gated",
    tuning=Tuning(TUNABLE, problem, ("m", "n", "k")),
)
