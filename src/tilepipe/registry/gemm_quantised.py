"""What the commands know of the GEMM of quantised weights: settings, random cases, checked
instances.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm_quantised import reference, sm90 as gemm_quantised
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.heuristics import TUNABLE, QuantisedProblem
from tilepipe.kernels.gemm_quantised.layout import BITS, pack
from tilepipe.kernels.gemm_quantised.validation import HALVES, check_group
from tilepipe.registry.instances import Sizes, product_sizes
from tilepipe.registry.products import (
    BY_DEFAULT,
    EXTENTS,
    MNK,
    check_extents,
    random_matrix,
    tiles_of,
)
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.registry.tuning import Tuning, chosen

_CONFIGS = Configs({"sm90": QuantisedGemmConfig})
_WORK: dict[str, Setting] = EXTENTS | {
    "m": 64,
    "bits": 4,
    "group": 128,
    "dtype": "bfloat16",
    "out_dtype": "bfloat16",
    "activation": "none",
}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises BindError for an extent, dtype, group or number of bits that there cannot be."""
    check_extents(settings)
    check_group("setting", settings["group"])
    if settings["bits"] not in BITS:
        raise BindError(f"setting bits must be 4 or 8, got {settings['bits']}")
    dtype = tp.dtype(settings["dtype"])
    if dtype not in HALVES:
        raise BindError(f"setting dtype must be {' or '.join(t.name for t in HALVES)}, got {dtype}")


def problem(settings: Mapping[str, Any]) -> QuantisedProblem:
    """The product that settings state. Raises BindError where there cannot be one."""
    check_settings(settings)
    return QuantisedProblem(*(settings[name] for name in ("m", "n", "k", "bits")))


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    wanted = problem(settings)
    return ({}, BY_DEFAULT) if chip is None else chosen(TUNABLE, wanted, chip, _WORK)


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    check_settings(settings)
    cfg, rng = _CONFIGS.config(settings), np.random.default_rng(seed)
    m, n, k, bits, group = (settings[name] for name in ("m", "n", "k", "bits", "group"))
    a = random_matrix(rng, (m, k), tp.dtype(settings["dtype"]), "row")
    weights, scales = reference.random_weights(rng, n, k, bits, group)
    words = pack(weights, bits)
    c = np.zeros((m, n), tp.dtype(settings["out_dtype"]).numpy)
    return Case(
        gemm_quantised.bind(a, words, scales, c, cfg, group=group, chip=chip),
        c,
        functools.partial(reference.compare, c, a, words, scales, group, cfg.activation),
        tiles_of(n, m, cfg.bm, cfg.bn),
    )


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    cfg = _CONFIGS.config(settings)
    return product_sizes(cfg, cfg.bk * cfg.k_group_size * cfg.split_k, swapped=True)


GEMM_QUANTISED = KernelSpec(
    "gemm_quantised",
    "C = A · (scales · W)ᵀ of 16-bit A and weights of 4 or 8 bits, a scale for each group along K",
    _CONFIGS,
    _WORK,
    MNK,
    _make,
    _choose,
    _sizes,
    bench="tilepipe.bench.quantised",
    tuning=Tuning(TUNABLE, problem, ("m", "n", "k")),
)
