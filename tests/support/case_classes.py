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


def by_words(case: Named) -> list[str]:
    """Of a case such as `row_sum_warp_a_row_bfloat16`: the words without dtypes and numbers, and
    each dtype with the first word, which says what is done. As `by_name` where there are settings.
    """
    if " " in case.name or "=" in case.name:
        return by_name(case)
    done = case.name.partition("_")[0]
    words = re.sub(r"\d+", "", _DTYPE.sub("", case.name))
    return [words, *(f"{done} {dtype}" for dtype in _DTYPE.findall(case.name))]
