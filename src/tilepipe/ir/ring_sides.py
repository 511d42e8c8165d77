"""Which arrays of mbarriers are the two sides of a ring."""

from __future__ import annotations

import re
from collections.abc import Collection

_OTHER_SIDE = {"full": "empty", "empty": "full"}


def ring_side(name: str, names: Collection[str]) -> tuple[str, bool] | None:
    """What an array of mbarriers is for, by its name: (its ring, "" where no other side is known;
    whether its phases are fills of a stage). None where it is no side of a ring.

    Pipelines call the two sides of a ring `<ring>.full` and `<ring>.empty`; others call one that
    stands alone `q_full`, say. `names`: of all arrays.
    """
    word = re.split("[._]", name)[-1]
    if word not in _OTHER_SIDE:
        return None
    ring = name.removesuffix(f".{word}")
    return ring if f"{ring}.{_OTHER_SIDE[word]}" in names else "", word == "full"
