"""What the commands know of the grouped blockwise fp8 GEMM: settings, random cases, checked
instances.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.kernels.gemm_blockwise.config import BLOCK, WINDOW, BlockwiseGemmConfig
from tilepipe.kernels.gemm_grouped.reference import rows_of
from tilepipe.kernels.gemm_grouped_blockwise import (
    reference,
    sm90 as gemm_grouped_blockwise,
)
from tilepipe.kernels.gemm_grouped_blockwise.heuristics import TUNABLE, GroupedBlockwiseProblem
from tilepipe.registry.gemm_grouped import grouped_extents, grouped_offsets
from tilepipe.registry.instances import Sizes, grouped_sizes
from tilepipe.registry.products import BY_DEFAULT
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.registry.tuning import Tuning, chosen

_CONFIGS = Configs({"sm90": BlockwiseGemmConfig})
_WORK: dict[str, Setting] = {
    "m": 1024,
    "n": 512,
    "k": 512,
    "experts": 8,
    "split": "random",
    "form": "rows",
    "out_dtype": "bfloat16",
}


def problem(settings: Mapping[str, Any]) -> GroupedBlockwiseProblem:
    """The products that settings state: of m rows in all, in form "padded" of m for each group at
    most.

    Raises:
        BindError: an extent, form or dtype that there cannot be.
    """
    m, n, k, experts = grouped_extents(settings)
    out = tp.dtype(settings["out_dtype"])
    if out not in OUTPUTS:
        raise BindError(
            f"setting out_dtype must be one of {', '.join(t.name for t in OUTPUTS)}, got {out}"
        )
    return GroupedBlockwiseProblem(m, n, k, experts, out)


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    wanted = problem(settings)
    if chip is None:
        return {}, BY_DEFAULT
    return chosen(TUNABLE, wanted, chip)


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    wanted, cfg, rng = problem(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    offsets, padded = grouped_offsets(settings, rng), settings["form"] == "padded"
    x = reference.Operands.random(rng, wanted.m, wanted.n, wanted.k, wanted.groups, padded=padded)
    shape = (wanted.groups,) * padded + (wanted.m, wanted.n)
    c = np.zeros(shape, wanted.out_dtype.numpy)
    verify = functools.partial(reference.compare, c, c.copy(), x, offsets)
    rows = sum(-(-(end - start) // cfg.bm) for _, start, end in rows_of(c, offsets))
    program = gemm_grouped_blockwise.bind(
        x.a, x.b, x.a_scales, x.b_scales, c, offsets, cfg, chip=chip
    )
    return Case(program, c, verify, rows * -(-wanted.n // cfg.bn))


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    cfg = _CONFIGS.config(settings)
    return grouped_sizes(cfg, BLOCK * cfg.blocks_of_stage, least=WINDOW + 2)


GEMM_GROUPED_BLOCKWISE = KernelSpec(
    "gemm_grouped_blockwise",
    "gemm_grouped of fp8 e4m3, a scale for each 1×128 of A and 128×128 of B; rows that follow each"
    " other, or form=padded",
    _CONFIGS,
    _WORK,
    frozenset({"m", "n", "k", "experts", "split"}),
    _make,
    _choose,
    _sizes,
    bench="tilepipe.bench.grouped_blockwise",
    tuning=Tuning(TUNABLE, problem, ("m", "n", "k", "experts")),
)
