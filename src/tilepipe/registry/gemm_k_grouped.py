"""What the commands know of the GEMM with groups along K: settings, random cases, checked
instances.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_grouped.reference import split_rows
from tilepipe.kernels.gemm_grouped.validation import HALVES
from tilepipe.kernels.gemm_k_grouped import reference, sm90 as gemm_k_grouped
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.heuristics import TUNABLE, KGroupedProblem
from tilepipe.registry.instances import Sizes, k_grouped_sizes
from tilepipe.registry.products import BY_DEFAULT, check_sizes, tiles_of
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.registry.tuning import Tuning, chosen

_CONFIGS = Configs({"sm90": KGroupedGemmConfig})
_WORK: dict[str, Setting] = {
    "m": 512,
    "n": 512,
    "k": 1024,
    "experts": 8,
    "split": "random",
    "dtype": "bfloat16",
    "out_dtype": "bfloat16",
}


def problem(settings: Mapping[str, Any]) -> KGroupedProblem:
    """The products that settings state.

    Raises:
        BindError: an extent or dtype that there cannot be.
    """
    names = "m", "n", "k", "experts"
    m, n, k, experts = (settings[name] for name in names)
    check_sizes(settings, names, m * k, n * k, m * n * experts)
    dtype, out = tp.dtype(settings["dtype"]), tp.dtype(settings["out_dtype"])
    if dtype not in HALVES:
        raise BindError(f"setting dtype must be {' or '.join(t.name for t in HALVES)}, got {dtype}")
    return KGroupedProblem(m, n, k, experts, dtype, out)


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    wanted = problem(settings)
    if chip is None:
        return {"bk": SPAN // wanted.dtype.nbytes}, BY_DEFAULT
    return chosen(TUNABLE, wanted, chip)


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    wanted, cfg, rng = problem(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    offsets = split_rows(rng, wanted.k, wanted.groups, settings["split"])
    a, b = (
        rng.standard_normal((wanted.k, x), dtype=np.float32).astype(wanted.dtype.numpy).T
        for x in (wanted.m, wanted.n)
    )
    c = np.zeros((wanted.groups, wanted.m, wanted.n), wanted.out_dtype.numpy)
    return Case(
        gemm_k_grouped.bind(a, b, c, offsets, cfg, chip=chip),
        c,
        functools.partial(reference.compare, c, a, b, offsets),
        wanted.groups * tiles_of(wanted.m, wanted.n, cfg.bm, cfg.bn),
    )


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    return k_grouped_sizes(_CONFIGS.config(settings))


GEMM_K_GROUPED = KernelSpec(
    "gemm_k_grouped",
    "C[group] = A · Bᵀ over the group's part of K: weight gradients of a mixture of experts",
    _CONFIGS,
    _WORK,
    frozenset({"m", "n", "k", "experts", "split"}),
    _make,
    _choose,
    _sizes,
    bench="tilepipe.bench.k_grouped",
    tuning=Tuning(TUNABLE, problem, ("m", "n", "k", "experts")),
)
