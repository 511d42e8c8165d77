"""One kernel for each number: which features it must have, whether something is wrong in it, and
what.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

import tilepipe as tp
from tests.check.campaign.features import FEATURES
from tests.check.campaign.judge import traced
from tests.check.campaign.lines import Kernel
from tests.check.campaign.mistakes import plant
from tests.check.campaign.skeletons import skeleton

PAIRS = tuple(frozenset(pair) for pair in combinations(FEATURES, 2))
WRONG = 0.6  # how often a mistake is planted: many are none, such as a second fence left out
ATTEMPTS = 30  # to plant one that tracing does not refuse


def drawn(
    seed: int, number: int, required: frozenset[str] | None = None, mistake: str | None = None
) -> tuple[Kernel, tp.Program | tp.TilepipeError]:
    """Kernel `number` of a campaign, traced; the error where it is refused, as it should be or
    because it is right by construction.

    Args:
        required: features, unless given one pair after another. mistake: the one to plant, "" for
            none; drawn unless given.
    """
    r = Random(f"{seed}/{number}")
    while True:
        right = skeleton(r, PAIRS[number % len(PAIRS)] if required is None else required)
        if mistake == "" or (mistake is None and r.random() >= WRONG):
            return right, traced(right)
        for _ in range(ATTEMPTS):
            wrong = plant(r, right, mistake or "")
            if wrong is None:
                break
            made = traced(wrong)
            if isinstance(made, tp.Program) or wrong.expected == "refused":
                return wrong, made
