"""The problems that the configuration of the gradients of attention is chosen for, and the
configurations worth measuring for one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import tilepipe as tp
from tilepipe.kernels.attention.validation import Extents
from tilepipe.kernels.attention_backward.config import WALKS, BackwardConfig
from tilepipe.kernels.attention_backward.heuristics import TOGETHER, choose_sm90
from tilepipe.kernels.common.tunable import Tunable, same_fields


@dataclass(frozen=True)
class BackwardProblem:
    """A problem, as far as the configuration depends on it. `deterministic`: parts of dQ are added
    in a fixed order.
    """

    batch: int
    heads: int
    kv_heads: int
    s_q: int
    s_kv: int
    d: int
    d_v: int = 0
    dtype: tp.DType = tp.bfloat16
    causal: bool = False
    deterministic: bool = False

    @classmethod
    def of(cls, found: Extents, *, causal: bool, deterministic: bool) -> BackwardProblem:
        """The problem of extents."""
        return replace(
            cls(**same_fields(cls, found)),
            d_v=found.other_d_v,
            causal=bool(causal),
            deterministic=bool(deterministic),
        )


def best(problem: BackwardProblem, chip: tp.Chip) -> BackwardConfig:
    """The configuration that `choose_sm90` picks."""
    shared, heads = problem.heads > problem.kv_heads, problem.batch * problem.kv_heads
    return choose_sm90(problem.causal, problem.deterministic, shared, heads, problem.s_kv, chip)


def candidates(problem: BackwardProblem, chip: tp.Chip) -> list[BackwardConfig]:
    """The heuristic's pick, then other numbers of heads that are dealt out together and, where it
    matters, other walks.
    """
    chosen = best(problem, chip)
    heads = problem.batch * problem.kv_heads
    walks = WALKS if problem.causal and problem.deterministic else (chosen.walk,)
    others = [BackwardConfig(n, walk) for walk in walks for n in TOGETHER if n < 2 * heads]
    return [chosen, *(cfg for cfg in others if cfg != chosen)]


TUNABLE = Tunable("attention_backward", BackwardProblem, BackwardConfig, best, candidates)
