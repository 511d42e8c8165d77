"""What the commands know of the blockwise fp8 GEMM with groups along K: settings, random cases,
checked instances.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.kernels.gemm_blockwise.config import BLOCK
from tilepipe.kernels.gemm_grouped.reference import split_rows
from tilepipe.kernels.gemm_k_grouped_blockwise import (
    reference,
    sm90 as gemm_k_grouped_blockwise,
)
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.heuristics import TUNABLE, KGroupedBlockwiseProblem
from tilepipe.registry.instances import Sizes, k_grouped_sizes
from tilepipe.registry.products import BY_DEFAULT, check_sizes, tiles_of
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.registry.tuning import Tuning, chosen

_CONFIGS = Configs({"sm90": KGroupedBlockwiseGemmConfig})
_WORK: dict[str, Setting] = {
    "m": 512,
    "n": 512,
    "k": 2048,
    "experts": 4,
    "split": "random",
    "out_dtype": "bfloat16",
}


def problem(settings: Mapping[str, Any]) -> KGroupedBlockwiseProblem:
    """The products that settings state. Groups end where `split` has them, rounded down to blocks
    of 128.

    Raises:
        BindError: an extent or dtype that there cannot be.
    """
    names = "m", "n", "k", "experts"
    m, n, k, experts = (settings[name] for name in names)
    check_sizes(settings, names, m * k, n * k, m * n * experts)
    out = tp.dtype(settings["out_dtype"])
    if out not in OUTPUTS:
        raise BindError(
            f"setting out_dtype must be one of {', '.join(t.name for t in OUTPUTS)}, got {out}"
        )
    return KGroupedBlockwiseProblem(m, n, k, experts, out)


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    wanted = problem(settings)
    if chip is None:
        return {}, BY_DEFAULT
    return chosen(TUNABLE, wanted, chip)


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    wanted, cfg, rng = problem(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    offsets = split_rows(rng, wanted.k, wanted.groups, settings["split"])
    x = reference.Operands.random(rng, wanted.m, wanted.n, wanted.k)
    c = np.zeros((wanted.groups, wanted.m, wanted.n), wanted.out_dtype.numpy)
    return Case(
        gemm_k_grouped_blockwise.bind(x.a, x.b, x.a_scales, x.b_scales, c, offsets, cfg, chip=chip),
        c,
        functools.partial(reference.compare, c, x, offsets),
        wanted.groups * tiles_of(wanted.m, wanted.n, cfg.bm, cfg.bn),
    )


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    return k_grouped_sizes(_CONFIGS.config(settings), aligned=True)


GEMM_K_GROUPED_BLOCKWISE = KernelSpec(
    "gemm_k_grouped_blockwise",
    f"gemm_k_grouped of fp8 e4m3, a scale for each 1×{BLOCK} of A and of B",
    _CONFIGS,
    _WORK,
    frozenset({"m", "n", "k", "experts", "split"}),
    _make,
    _choose,
    _sizes,
    bench="tilepipe.bench.k_grouped_blockwise",
    tuning=Tuning(TUNABLE, problem, ("m", "n", "k", "experts")),
)
