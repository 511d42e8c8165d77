"""The classes of cases of which `make test` runs at least one case each."""

from __future__ import annotations

import re
from typing import Protocol


class Named(Protocol):
    """A case of `tests.cases`."""

    @property
    def name(self) -> str:
        """Its dtypes, and settings such as `n=64`."""


def by_name(case: Named) -> list[str]:
    """The dtypes of a case, and which settings it has, without their values."""
    return re.sub(r"=(?!\w*float)[^=]*?(?= \w+=| random|$)", "=", case.name).split()
