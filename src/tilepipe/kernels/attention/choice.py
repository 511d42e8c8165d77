"""The problems that attention's configuration is chosen for, and the configurations worth measuring
for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import tilepipe as tp
from tilepipe.kernels.attention.config import NARROW_STEP, ROWS, AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm90
from tilepipe.kernels.attention.validation import Extents
from tilepipe.kernels.common.tunable import Tunable, same_fields

_BN, _CONSUMERS = range(32, 257, 16), (1, 2, 3)
_OTHERS: dict[str, tuple[int | str, ...]] = {
    "stages": (2, 3, 4),
    "qk_stages": (1, 2),
    "q_stages": (1, 2),
    "order": ("turns", "free"),
    "schedule": ("persistent", "dynamic", "single"),
    "store": ("registers", "tile"),
}
_BANDS = (1, 2, 4, 8, 16)  # heads of K and V that are dealt out together


@dataclass(frozen=True)
class AttentionProblem:
    """A problem of attention, as far as the configuration depends on it.

    Attributes:
        d_v: elements of a head of V; 0: as of Q and K, d.
        sequences: how many are packed; s_q and s_kv are then all their queries and keys, and
            `longest` the most keys of one, 0: unknown.
        on_left, on_right: whether queries see only some keys on that side.
        changes: how many changes are made to scores before the softmax: softcap, slopes, function.
        block_q, block_k: of a block mask; 0: there is none.
        accumulate: as of `AttentionConfig`; "": as the heuristic has it.
    """

    batch: int
    heads: int
    kv_heads: int
    s_q: int
    s_kv: int
    d: int
    d_v: int = 0
    dtype: tp.DType = tp.bfloat16
    sequences: int = 0
    longest: int = 0
    on_left: bool = False
    on_right: bool = False
    changes: int = 0
    block_q: int = 0
    block_k: int = 0
    accumulate: str = ""

    @classmethod
    def of(
        cls,
        found: Extents,
        sides: tuple[bool, bool],
        longest: int | None = None,
        *,
        changes: int = 0,
        block: tuple[int, int] | None = None,
        accumulate: str | None = None,
    ) -> AttentionProblem:
        """The arguments are those of `choose_sm90`."""
        on_left, on_right = sides
        block_q, block_k = block or (0, 0)
        return replace(
            cls(**same_fields(cls, found)),
            d_v=found.other_d_v,
            longest=longest or 0,
            on_left=on_left,
            on_right=on_right,
            changes=changes,
            block_q=block_q,
            block_k=block_k,
            accumulate=accumulate or "",
        )

    @property
    def extents(self) -> Extents:
        """The extents, with the scale that they have unless another is given."""
        return Extents(
            self.batch,
            self.s_q,
            self.s_kv,
            self.heads,
            self.kv_heads,
            self.d,
            self.d_v or self.d,
            self.dtype,
            self.d**-0.5,
            self.sequences,
        )


def best(problem: AttentionProblem, chip: tp.Chip) -> AttentionConfig:
    """The configuration that `choose_sm90` picks."""
    return choose_sm90(
        problem.extents,
        (problem.on_left, problem.on_right),
        problem.longest or None,
        changes=problem.changes,
        block=(problem.block_q, problem.block_k) if problem.block_q else None,
        accumulate=problem.accumulate or None,
    )


def candidates(problem: AttentionProblem, chip: tp.Chip) -> list[AttentionConfig]:
    """The heuristic's pick; then others of its tiles, one setting changed; then other tiles, the
    nearest first.
    """
    chosen = best(problem, chip)
    found = [chosen]
    for cfg in (*_changed(chosen, problem), *_tiles(chosen)):
        try:
            check(cfg, problem, chip)
        except tp.BindError:
            continue
        if cfg not in found:
            found.append(cfg)
    return found


def _changed(chosen: AttentionConfig, problem: AttentionProblem) -> Iterator[AttentionConfig]:
    for name, values in _OTHERS.items():
        for value in values:
            yield chosen.changed(**{name: value})
    if problem.on_right:
        shared = problem.heads // problem.kv_heads
        for band in _BANDS:
            yield chosen.changed(group=band * shared)


def _tiles(chosen: AttentionConfig) -> list[AttentionConfig]:
    every = [
        replace(chosen, bn=bn, consumers=consumers, q_stages=q_stages)
        for bn in _BN
        for consumers in _CONSUMERS
        for q_stages in (1, 2)
    ]
    rows = chosen.bn * chosen.consumers

    def distance(cfg: AttentionConfig) -> tuple[int, int]:
        other = abs(cfg.consumers - chosen.consumers) + abs(cfg.q_stages - chosen.q_stages)
        return abs(cfg.bn * cfg.consumers - rows) // 32 + other, abs(cfg.bn - chosen.bn)

    return sorted(every, key=distance)


def check(cfg: AttentionConfig, problem: AttentionProblem, chip: tp.Chip) -> None:
    """Raises BindError where a configuration cannot be used for a problem, or where it adds up in
    another way than is asked for.
    """
    accumulate = best(problem, chip).accumulate
    if cfg.accumulate != accumulate:
        raise tp.BindError(f'accumulate="{cfg.accumulate}" is not "{accumulate}"')
    if problem.block_q and (problem.block_q % (ROWS * cfg.consumers) or problem.block_k % cfg.bn):
        raise tp.BindError(
            f"tiles of {ROWS * cfg.consumers} queries and {cfg.bn} keys do not divide blocks of"
            f" {problem.block_q}×{problem.block_k}"
        )
    if problem.dtype.nbytes == 1 and cfg.bn % NARROW_STEP:
        raise tp.BindError(f"bn={cfg.bn} is no multiple of {NARROW_STEP}")
    cfg.tiles(problem.dtype, problem.d, problem.d_v or problem.d)


TUNABLE = Tunable("attention", AttentionProblem, AttentionConfig, best, candidates, check)
