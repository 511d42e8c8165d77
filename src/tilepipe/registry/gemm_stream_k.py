"""What the commands know of the GEMM whose CTAs share tiles along K."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.kernels.gemm import reference, stream_k
from tilepipe.kernels.gemm.config import StreamKConfig
from tilepipe.kernels.gemm.heuristics import SPAN
from tilepipe.registry.gemm import PRODUCT, problem
from tilepipe.registry.instances import SMS, Size, Sizes, steps_of
from tilepipe.registry.products import MNK, random_matrix, tiles_of
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec

_CONFIGS = Configs({"sm90": StreamKConfig})


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    """A swizzle span of K; nothing is chosen for the shape."""
    return {"bk": SPAN // problem(settings).dtype.nbytes}, "the defaults"


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    product, cfg, rng = problem(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    a = random_matrix(rng, (product.m, product.k), product.dtype, product.a_order)
    b = random_matrix(rng, (product.n, product.k), product.dtype, product.b_order)
    c = np.zeros((product.m, product.n), product.out_dtype.numpy)
    # fp8 that the tensor cores add up in fewer bits than float32 has
    rough = product.dtype.nbytes == 1 and cfg.accumulate == "fast"
    return Case(
        stream_k.bind(a, b, c, cfg, chip=chip),
        c,
        functools.partial(reference.compare, c, a, b, cfg.activation, rough=rough),
        tiles_of(product.m, product.n, cfg.bm, cfg.bn),
    )


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    """A tile of which two CTAs have a part each, of steps that use each stage of the ring twice;
    and three tiles of few steps, of which they share one.
    """
    cfg = _CONFIGS.config(settings)
    few, many = steps_of(cfg.stages)
    step = cfg.bk * cfg.k_group_size
    return {
        f"1 tile that {SMS} CTAs share, {SMS * many} K steps": Size(
            {"m": cfg.bm, "n": cfg.bn, "k": SMS * many * step}, SMS
        ),
        f"3 tiles of {few} K step{'s' if few > 1 else ''}, {SMS} CTAs": Size(
            {"m": cfg.bm, "n": 3 * cfg.bn, "k": few * step}, SMS
        ),
    }


GEMM_STREAM_K = KernelSpec(
    "gemm_stream_k",
    "C = A · Bᵀ whose CTAs share the K steps of all tiles equally, through flags in global memory",
    _CONFIGS,
    PRODUCT,
    MNK,
    _make,
    _choose,
    _sizes,
    bench="tilepipe.bench.stream_k",
    zero=("flags",),
)
