"""The classes of cases of which `make test` runs at least one case each."""

from __future__ import annotations

import re
from typing import Protocol

_DTYPE = re.compile(r"(?:b?float|u?int)\d+(?:_e\dm\d)?|boolean|bf16|f16|f32|e\dm\d|tf32")


class Named(Protocol):
    """A case of `tests.cases`."""

    @property
    def name(self) -> str:
        """Its dtypes, and settings such as `n=64`."""


def by_name(case: Named) -> list[str]:
    """The dtypes of a case, and which settings it has, without their values."""
    return re.sub(r"=(?!\w*float)[^=]*?(?= \w+=| random|$)", "=", case.name).split()


def by_deed(case: Named) -> list[str]:
    """As `by_words`, of whatever dtypes."""
    return by_words(case) if " " in case.name or "=" in case.name else by_words(case)[:2]


def by_words(case: Named) -> list[str]:
    """Of a case such as `row_sum_warp_a_row_bfloat16`, without numbers: what is done, which its
    first two words say; what it is done to, the other words; and each dtype with the first word. As
    `by_name` where there are settings.
    """
    if " " in case.name or "=" in case.name:
        return by_name(case)
    words = [x for x in re.sub(r"\d+", "", _DTYPE.sub("", case.name)).split("_") if x]
    dtypes = (f"{words[0]} {dtype}" for dtype in _DTYPE.findall(case.name))
    return ["_".join(words[:2]), f"to {'_'.join(words[2:])}", *dtypes]
