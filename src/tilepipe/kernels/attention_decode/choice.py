"""The problems that the configuration of attention over a cache is chosen for, and the
configurations worth measuring for one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import tilepipe as tp
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention_decode.config import REGISTERS, DecodeConfig, Form
from tilepipe.kernels.attention_decode.fits import check_fits
from tilepipe.kernels.attention_decode.heuristics import choose_sm90
from tilepipe.kernels.attention_decode.validation import Extents
from tilepipe.kernels.common.tunable import Tunable, same_fields

_BN, _MOST_STAGES = range(16, 161, 16), 12


@dataclass(frozen=True)
class DecodeProblem:
    """A problem, as far as the configuration depends on it.

    Attributes:
        capacity: keys that the cache has room for, of each sequence. page: of a page; 0: none.
        narrow: whether the cache is of float8_e4m3.
        causal: whether a token sees no key after its own. left: how many before it; -1: all.
    """

    batch: int
    tokens: int
    heads: int
    kv_heads: int
    capacity: int
    d: int
    page: int = 0
    dtype: tp.DType = tp.bfloat16
    narrow: bool = False
    causal: bool = True
    left: int = -1

    @classmethod
    def of(cls, found: Extents) -> DecodeProblem:
        """The problem of extents."""
        left, right = found.window.left, found.window.right
        made = cls(**same_fields(cls, found))
        return replace(made, causal=right is not None, left=-1 if left is None else left)

    @property
    def extents(self) -> Extents:
        """The extents, with the scale that they have unless another is given."""
        left = None if self.left < 0 else self.left
        return Extents(
            self.batch,
            self.tokens,
            self.heads,
            self.kv_heads,
            self.d,
            self.capacity,
            self.page,
            self.dtype,
            self.d**-0.5,
            self.narrow,
            Window(left, 0 if self.causal else None),
        )


def best(problem: DecodeProblem, chip: tp.Chip) -> DecodeConfig:
    """The configuration that `choose_sm90` picks."""
    return choose_sm90(problem.extents, chip)


def candidates(problem: DecodeProblem, chip: tp.Chip) -> list[DecodeConfig]:
    """The heuristic's pick, then all others that an SM has room for: those whose rings hold about
    as many keys first, of two that hold as many the one with the queries as the pick has them.
    """
    chosen = best(problem, chip)
    found = []
    for ctas, bn, stages in product(REGISTERS, _BN, range(2, _MOST_STAGES + 1)):
        cfg = chosen.changed(bn=bn, stages=stages, ctas=ctas)
        for form in _forms(cfg, problem):
            try:
                check(form, problem, chip)
            except tp.BindError:
                continue
            found += [form.changed(waves=n) for n in {1, chosen.waves}]
    keys = chosen.bn * chosen.stages * chosen.ctas

    def order(cfg: DecodeConfig) -> tuple[object, ...]:
        held = cfg.bn * cfg.stages * cfg.ctas
        far = max(held / keys, keys / held)
        other = cfg.queries != chosen.queries
        return cfg != chosen, far, -cfg.bn, cfg.ctas, other, -cfg.waves

    return sorted({chosen, *found}, key=order)


def _forms(cfg: DecodeConfig, problem: DecodeProblem) -> list[DecodeConfig]:
    """The configuration with its queries as columns and as rows, where these are two programs."""
    found = problem.extents
    both = (cfg.changed(queries=name) for name in ("columns", "rows"))
    forms = {Form.of(found.rows, found.d, found.narrow, x): x for x in both}
    return list(forms.values()) if len(forms) == 2 else [cfg]


def check(cfg: DecodeConfig, problem: DecodeProblem, chip: tp.Chip) -> None:
    """Raises BindError where an SM has no room for a configuration."""
    check_fits(cfg, problem.extents, chip)


TUNABLE = Tunable("attention_decode", DecodeProblem, DecodeConfig, best, candidates, check)
