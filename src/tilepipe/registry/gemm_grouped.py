"""What the commands know of the grouped GEMM: settings, random cases, checked instances."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.kernels.gemm_grouped import reference, sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.heuristics import TUNABLE, GroupedProblem
from tilepipe.kernels.gemm_grouped.validation import HALVES
from tilepipe.registry.instances import Sizes, grouped_sizes
from tilepipe.registry.products import BY_DEFAULT, check_sizes
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.registry.tuning import Tuning, chosen

_CONFIGS = Configs({"sm90": GroupedGemmConfig})
_WORK: dict[str, Setting] = {
    "m": 1024,
    "n": 512,
    "k": 512,
    "experts": 8,
    "split": "random",
    "form": "rows",
    "dtype": "bfloat16",
    "out_dtype": "bfloat16",
    "b_order": "row",
}


FORMS = ("rows", "padded")  # what a and c hold: rows of all groups, or a matrix for each


def grouped_extents(settings: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """m, n, k and the number of groups that settings state: m rows in all, in form "padded" at most
    m of each group.

    Raises:
        BindError: an extent or form that there cannot be.
    """
    names = "m", "n", "k", "experts"
    m, n, k, experts = (settings[name] for name in names)
    if settings["form"] not in FORMS:
        raise BindError(f"setting form must be rows or padded, got {settings['form']!r}")
    rows = m * experts if settings["form"] == "padded" else m
    check_sizes(settings, names, rows * k, n * k * experts, rows * n)
    return m, n, k, experts


def grouped_offsets(settings: Mapping[str, Any], rng: np.random.Generator) -> Any:
    """Offsets of the groups, in form "padded" the rows of each, for the settings' split."""
    ends = reference.split_rows(rng, settings["m"], settings["experts"], settings["split"])
    return np.diff(ends, prepend=np.int32(0)) if settings["form"] == "padded" else ends


def problem(settings: Mapping[str, Any]) -> GroupedProblem:
    """The products that settings state.

    Raises:
        BindError: an extent, form, order or dtype that there cannot be.
    """
    m, n, k, experts = grouped_extents(settings)
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
    return chosen(TUNABLE, wanted, chip)


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    wanted, cfg, rng = problem(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    offsets = grouped_offsets(settings, rng)
    shape = wanted.groups, wanted.n, wanted.k
    batch = (wanted.groups,) if settings["form"] == "padded" else ()
    a, b = (
        rng.standard_normal(x, dtype=np.float32).astype(wanted.dtype.numpy)
        for x in ((*batch, wanted.m, wanted.k), shape)
    )
    if wanted.b_order == "col":
        b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    c = np.zeros((*batch, wanted.m, wanted.n), wanted.out_dtype.numpy)
    verify = functools.partial(reference.compare, c, c.copy(), a, b, offsets)
    rows = sum(-(-(end - start) // cfg.bm) for _, start, end in reference.rows_of(c, offsets))
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
    tuning=Tuning(TUNABLE, problem, ("m", "n", "k", "experts")),
)
