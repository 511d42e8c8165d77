"""The fields of a manifest as JSON holds them, read by kind: one that is missing or of another kind
is one error, which says where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilepipe.errors import ExportError, TilepipeError
from tilepipe.export.rules import Number, Rule, from_json
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType

_MISSING = object()


@dataclass(frozen=True)
class Fields:
    """An object of a manifest. `place`: where it stands in it, as "parameters[0].", or "" of the
    whole.
    """

    path: Path
    body: Any
    place: str = ""

    def text(self, name: str, *choices: str) -> str:
        """A text, one of `choices` where there are any."""
        found = self._of(name)
        wanted = f"one of {', '.join(choices)}" if choices else "a text"
        if not isinstance(found, str) or (choices and found not in choices):
            raise self.wrong(name, found, wanted)
        return found

    def integer(self, name: str, least: int = 0, *, unless: int | None = None) -> int:
        """An integer from `least`; `unless`: what it is where it is missing."""
        found = self._of(name, unless)
        if not _is_integer(found, least):
            raise self.wrong(name, found, f"an integer from {least}")
        return int(found)

    def number(self, name: str) -> Number:
        """An integer or a float."""
        found = self._of(name)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.wrong(name, found, "a number")
        return found

    def flag(self, name: str) -> bool:
        """True or false."""
        found = self._of(name)
        if not isinstance(found, bool):
            raise self.wrong(name, found, "true or false")
        return found

    def integers(self, name: str, count: int, least: int = 0) -> tuple[int, ...]:
        """So many integers from `least`."""
        found = self._of(name)
        if not isinstance(found, list) or not all(_is_integer(x, least) for x in found):
            raise self.wrong(name, found, f"{count} integers from {least}")
        if len(found) != count:
            raise self.wrong(name, found, f"{count} integers from {least}")
        return tuple(found)

    def integers_or_null(self, name: str, count: int, least: int = 0) -> tuple[int, ...] | None:
        """So many integers from `least`, or None."""
        return None if self._of(name) is None else self.integers(name, count, least)

    def extents(self, name: str, count: int) -> tuple[int | str, ...]:
        """So many extents: integers from 1, or names."""
        found = self._of(name)
        right = isinstance(found, list) and len(found) == count
        if not right or not all(isinstance(x, str) or _is_integer(x, 1) for x in found):
            raise self.wrong(name, found, f"{count} extents, integers from 1 or names")
        return tuple(found)

    def dtype(self, name: str) -> DType:
        """A dtype by its name."""
        found = self.text(name)
        try:
            return dtypes.dtype(found)
        except TilepipeError:
            raise self.wrong(name, found, "the name of a dtype") from None

    def rule(self, name: str) -> Rule:
        """An expression."""
        found = self._of(name)
        try:
            return from_json(found)
        except ExportError:
            raise self.wrong(name, found, "an expression over extents") from None

    def rules(self, name: str) -> tuple[Rule, ...]:
        """Several expressions."""
        found = self._of(name)
        if not isinstance(found, list):
            raise self.wrong(name, found, "an array of expressions")
        place = f"{self.place}{name}"
        several = Fields(self.path, {f"[{i}]": x for i, x in enumerate(found)}, place)
        return tuple(several.rule(f"[{i}]") for i in range(len(found)))

    def part(self, name: str) -> Fields:
        """An object in this one."""
        found = self._of(name)
        if not isinstance(found, dict):
            raise self.wrong(name, found, "an object")
        return Fields(self.path, found, f"{self.place}{name}.")

    def parts(self, name: str) -> Iterator[Fields]:
        """The objects of an array."""
        found = self._of(name)
        if not isinstance(found, list) or not all(isinstance(x, dict) for x in found):
            raise self.wrong(name, found, "an array of objects")
        return (Fields(self.path, x, f"{self.place}{name}[{i}].") for i, x in enumerate(found))

    def wrong(self, name: str, found: object, wanted: str) -> ExportError:
        """What is said of a field: it is missing, or not what is wanted."""
        what = f"has no {self.place}{name}"
        if found is not _MISSING:
            what = f"has {self.place}{name} = {found!r:.60}"
        return ExportError(
            f"{self.path} {what}, where `export` writes {wanted}. Export again, all files together."
        )

    def _of(self, name: str, unless: object = None) -> Any:
        missing = _MISSING if unless is None else unless
        return self.body.get(name, missing)


def _is_integer(x: object, least: int) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and least <= x < 2**63
