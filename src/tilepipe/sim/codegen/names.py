"""Python names for IR objects in generated source."""

from __future__ import annotations

import keyword
import re

RESERVED = {"m", "ag", "np"}


class Names:
    """Python names of a function: readable, unique, one for each IR object."""

    def __init__(self, reserved: set[str]) -> None:
        self._taken = set(reserved) | RESERVED
        self._of: dict[int, str] = {}
        self.given: list[tuple[str, object]] = []  # the names so far, each with what it stands for

    def __call__(self, thing: object, wish: str) -> str:
        """The name of `thing`, made from `wish` when it is first asked for."""
        name = self._of.get(id(thing))
        if name is None:
            name = self._of[id(thing)] = self.fresh(wish)
            self.given.append((name, thing))
        return name

    def fresh(self, wish: str) -> str:
        base = re.sub(r"\W", "_", wish) or "x"
        if base[0].isdigit() or keyword.iskeyword(base) or base.startswith("__"):
            base = f"x{base}"
        name, n = base, 2
        while name in self._taken:
            name, n = f"{base}_{n}", n + 1
        self._taken.add(name)
        return name
