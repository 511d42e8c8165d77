"""The problems that the configurations of the kernels of rows are chosen for, and the
configurations worth measuring for one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.rows import heuristics
from tilepipe.kernels.rows.config import VECTOR, WARP, WARPGROUP, RowConfig
from tilepipe.kernels.rows.validation import MOST_BYTES

Heuristic = Callable[[int, int], RowConfig]  # columns, bytes of the widest element
_CTAS, _WARPGROUPS = (1, 2, 3, 4, 6, 8), (1, 2, 4)
_LEAST_HELD = VECTOR  # elements of a row that a thread holds


@dataclass(frozen=True)
class RowProblem:
    """m rows of n columns.

    Attributes:
        dtype: of the rows. wide: whether a vector beside them, such as the weight, has wider
            elements. backward: whether it is the gradient.
    """

    m: int
    n: int
    dtype: tp.DType = tp.bfloat16
    wide: bool = False
    backward: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the widest element."""
        return tp.float32.nbytes if self.wide else self.dtype.nbytes


def _best(forward: Heuristic, backward: Heuristic, problem: RowProblem, chip: tp.Chip) -> RowConfig:
    return (backward if problem.backward else forward)(problem.n, problem.nbytes)


def _candidates(
    forward: Heuristic, backward: Heuristic, problem: RowProblem, chip: tp.Chip
) -> list[RowConfig]:
    """The heuristic's pick; then those whose threads hold about as much of a row and of whose CTAs
    an SM has about as many, the nearest first.
    """
    chosen = _best(forward, backward, problem, chip)
    of_chosen = _held(chosen, problem), chosen.warpgroups * chosen.ctas

    def distance(cfg: RowConfig) -> float:
        mine = _held(cfg, problem), cfg.warpgroups * cfg.ctas
        apart = (abs(math.log2(x / y)) for x, y in zip(mine, of_chosen, strict=True))
        return sum(apart) + abs(math.log2(cfg.warpgroups / chosen.warpgroups)) / 2

    found = [cfg for cfg in _every(problem) if _fits(cfg, problem) and cfg != chosen]
    return [chosen, *sorted(found, key=distance)]


def _every(problem: RowProblem) -> Iterator[RowConfig]:
    shared = [(WARP, parts, cluster) for parts in (1, 2, 4, 8, 16) for cluster in (1, 2, 4, 8)]
    alone = [(threads, 1, 1) for threads in (1, 2, 4, 8, 16, 64, WARPGROUP)]
    of_ahead = (1, 2) if problem.backward else (1,)
    for (threads, parts, cluster), groups, ctas, ahead in itertools.product(
        (*alone, *shared), _WARPGROUPS, _CTAS, of_ahead
    ):
        warps = groups * WARPGROUP // WARP
        if (cluster > 1 and parts != warps) or warps % parts or groups * ctas > 16:
            continue
        yield RowConfig(threads, groups, parts, cluster, ctas=ctas, ahead=ahead)


def _held(cfg: RowConfig, problem: RowProblem) -> float:
    """Elements of a row that a thread holds."""
    return cfg.width(problem.n) / cfg.threads * cfg.blocks


def _fits(cfg: RowConfig, problem: RowProblem) -> bool:
    """True if threads hold neither too much of a row for their registers nor less than there is."""
    held, step = _held(cfg, problem), VECTOR * cfg.threads * cfg.members
    too_wide = step >= 2 * problem.n and cfg.threads * cfg.members > 1
    return held * problem.dtype.nbytes <= MOST_BYTES and held >= _LEAST_HELD and not too_wide


def check(cfg: RowConfig, problem: RowProblem, chip: tp.Chip) -> None:
    """Raises BindError where the registers have no room for what a thread holds."""
    if _held(cfg, problem) * problem.dtype.nbytes > MOST_BYTES:
        raise tp.BindError(
            f"{_held(cfg, problem):.0f} elements of a row are more than the registers of a thread"
            f" have room for, {MOST_BYTES // problem.dtype.nbytes}"
        )


def _tunable(
    kernel: str, forward: Heuristic, backward: Heuristic
) -> Tunable[RowProblem, RowConfig]:
    return Tunable(
        kernel,
        RowProblem,
        RowConfig,
        partial(_best, forward, backward),
        partial(_candidates, forward, backward),
        check,
    )


TUNABLES = {
    found.kernel: found
    for found in (
        _tunable("rms_norm", heuristics.norm, heuristics.norm_backward),
        _tunable("layer_norm", heuristics.layer_norm, heuristics.layer_norm_backward),
        _tunable("softmax", heuristics.softmax, heuristics.softmax_backward),
        _tunable("cross_entropy", heuristics.cross_entropy, heuristics.cross_entropy),
    )
}
