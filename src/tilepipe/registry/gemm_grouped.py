"""What the commands know of the grouped GEMM: settings, random cases, checked instances."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_grouped import heuristics, reference, sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.heuristics import GroupedProblem
from tilepipe.kernels.gemm_grouped.validation import HALVES
from tilepipe.registry.instances import Sizes, grouped_sizes
from tilepipe.registry.products import BY_DEFAULT, check_sizes
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec

_CONFIGS = Configs({"sm90": GroupedGemmConfig})
_WORK: dict[str, Setting] = {
    "m": 1024,
    "n": 512,
    "k": 512,
    "experts": 8,
    "split": "random",
    "dtype": "bfloat16",
    "out_dtype": "bfloat16",
    "b_order": "row",
}


def problem(settings: Mapping[str, Any]) -> GroupedProblem:
    """The products that settings state.

    Raises:
        BindError: an extent, order or dtype that there cannot be.
    """
    names = "m", "n", "k", "experts"
    m, n, k, experts = (settings[name] for name in names)
    check_sizes(settings, names, m * k, n * k * experts, m * n)
    if settings["b_order"] not in ("row", "col"):
        raise BindError(f"setting b_order must be row or col, got {settings['b_order']!r}")
    dtype, out = tp.dtype(settings["dtype"]), tp.dtype(settings["out_dtype"])
    if dtype not in HALVES:
        raise BindError(f"setting dtype must be {' or '.join(t.name for t in HALVES)}, got {dtype}")
    return GroupedProblem(m, n, k, experts, dtype, out, settings["b_order"])


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    wanted = problem(settings)
    if chip is None:
        return {"bk": SPAN // wanted.dtype.nbytes}, BY_DEFAULT
    return heuristics.best(wanted, chip).as_dict(), "chosen for the shape"


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    wanted, cfg, rng = problem(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    offsets = reference.split_rows(rng, wanted.m, wanted.groups, settings["split"])
    shape = (wanted.groups, wanted.n, wanted.k)
    a, b = (
        rng.standard_normal(x, dtype=np.float32).astype(wanted.dtype.numpy)
        for x in ((wanted.m, wanted.k), shape)
    )
    if wanted.b_order == "col":
        b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    c = np.zeros((wanted.m, wanted.n), wanted.out_dtype.numpy)
    verify = functools.partial(reference.compare, c, c.copy(), a, b, offsets)
    rows = sum(-(-(end - start) // cfg.bm) for start, end in reference.bounds(offsets, wanted.m))
    return Case(
        gemm_grouped.bind(a, b, c, offsets, cfg, chip=chip),
        c,
        verify,
        rows * -(-wanted.n // cfg.bn),
    )


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    """Warpgroups that take turns pass four barriers on, two of them for each tile."""
    cfg = _CONFIGS.config(settings)
    return grouped_sizes(cfg, cfg.bk, ring=2 if cfg.schedule == "pingpong" else 1)


GEMM_GROUPED = KernelSpec(
    "gemm_grouped",
    "C = A · B[group]ᵀ, rows of A by group: a mixture of experts, whose sizes only the GPU knows",
    _CONFIGS,
    _WORK,
    frozenset({"m", "n", "k", "experts", "split"}),
    _make,
    _choose,
    _sizes,
    bench="tilepipe.bench.grouped",
)
