"""Which configuration of the gated GEMM for which problem: that of a plain product with the columns
of both, by the model of the GEMM. Its epilogue takes slices of both halves of the sums, so that,
unlike that of a plain product with an activation, it needs no registers beside an accumulator of
any size.
"""

from __future__ import annotations

import functools

import tilepipe as tp
from tilepipe.kernels.common import limits
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm import heuristics
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.model import Problem, predicted_us
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig


@functools.lru_cache(maxsize=4096)
def best(problem: Problem, chip: tp.Chip = tp.H200) -> GatedGemmConfig:
    """The configuration that the model expects to be fastest.

    Args:
        problem: n: of gate, and of up. b_order: of both.

    Raises:
        LimitError: the chip has no room for any.
    """
    found = candidates(problem, chip, 1)
    if not found:
        raise tp.LimitError(
            f"no configuration of the gated GEMM fits {chip.name}, whose CTAs have"
            f" {chip.smem_per_cta:,} bytes of shared memory"
        )
    return found[0]


def candidates(
    problem: Problem, chip: tp.Chip = tp.H200, limit: int | None = None
) -> list[GatedGemmConfig]:
    """Configurations that fit the problem and the chip, the fastest by the model first."""
    both = Problem(
        problem.m,
        2 * problem.n,
        problem.k,
        dtype=problem.dtype,
        out_dtype=problem.out_dtype,
        a_order=problem.a_order,
        b_order=problem.b_order,
        extras=True,  # the activation takes time
    )
    allowed = (
        (predicted_us(both, cfg, chip), found)
        for cfg in heuristics.fitting(both, chip)
        if (found := gated(cfg)) is not None and _takes_order(both, found) and _stores_lines(found)
    )
    return [found for _, found in sorted(allowed, key=lambda pair: pair[0])][:limit]


def gated(cfg: GemmConfig) -> GatedGemmConfig | None:
    """The configuration of the gated GEMM with the same tiles; None where there is none."""
    if cfg.swap != "none" or cfg.split_k > 1 or cfg.accumulate != "fast":
        return None
    names = set(GatedGemmConfig.names()) - {"activation"}
    try:
        return GatedGemmConfig(**{n: v for n, v in cfg.as_dict().items() if n in names})  # type: ignore[arg-type]  # a dict of both kinds
    except tp.BindError:
        return None


def _takes_order(problem: Problem, cfg: GatedGemmConfig) -> bool:
    """True if the part of gate that a CTA loads is of whole swizzle panels where it must be."""
    return limits.loads_panels(problem.b_order, _part(cfg))


def _part(cfg: GatedGemmConfig) -> int:
    """Rows of gate, and of up, that a CTA loads of a tile."""
    return cfg.bn // 2 // cfg.cluster


def _stores_lines(cfg: GatedGemmConfig) -> bool:
    """True if stores are of 64 bytes of a row of C at least, where the tensor cores idle during
    them (an H200's figures for 256×160 and 256×192 are in docs/performance/gemm-variants.md).
    Ping-pong hides narrower ones.
    """
    return cfg.schedule == "pingpong" or cfg.bn % 64 == 0


def check(cfg: GatedGemmConfig, problem: Problem, chip: tp.Chip) -> None:
    """Raises BindError where a configuration cannot be used for a product."""
    heuristics.check_room(cfg, problem.dtype, chip)
    limits.check_panels("gate", problem.b_order, _part(cfg), "bn and cluster")


TUNABLE = Tunable("gemm_gated", Problem, GatedGemmConfig, best, candidates, check, ("activation",))
