"""What the configurations of all kernels have in common: fields of one kind each, and rules that
they obey together.
"""

from __future__ import annotations

import re
from dataclasses import Field, dataclass, fields, replace
from typing import Any, Self

import tilepipe as tp
from tilepipe.host_arguments import INT32_MAX, plain_int, shown

# No chip has shared memory for so many. They are refused before any loop over them runs.
MOST = {"stages": 128, "store_slots": 128, "source_slots": 128}
LEAST = {"source_slots": 0}  # of the settings that may be less than 1
_KINDS = {int: "an integer", str: "a string"}


@dataclass(frozen=True)
class Settings:
    """Base of a configuration, whose fields are integers of at least 1 (or as `LEAST` says), or
    strings, each with a default.
    """

    def __post_init__(self) -> None:
        """Raises BindError for a setting of the wrong kind, and for broken rules."""
        numbers: list[tuple[str, int]] = []
        for field in _fields(type(self)):
            name, kind = field.name, type(field.default)
            value = getattr(self, name)
            if kind is int and type(value) is not int and (number := plain_int(value)) is not None:
                object.__setattr__(self, name, value := number)  # of NumPy, too
            if type(value) is not kind:
                raise tp.BindError(f"{name} must be {_KINDS[kind]}, got {shown(value)}")
            if isinstance(value, int):
                numbers.append((name, value))
        least = ((name, x, LEAST.get(name, 1)) for name, x in numbers)
        most = ((name, x, MOST.get(name, INT32_MAX)) for name, x in numbers)
        broken = [f"{name} must be at least {n}" for name, x, n in least if x < n]
        broken = broken or [f"{name} must be at most {n}" for name, x, n in most if x > n]
        broken = broken or [rule for rule, holds in self._rules().items() if not holds]
        if broken:
            raise self.broken("; ".join(broken))

    def broken(self, rule: str) -> tp.BindError:
        """What to raise of a rule that the configuration breaks: its sentence, and after that the
        configuration, with the settings that the sentence names and those that are not at their
        defaults.
        """
        named = set(re.findall(r"\w+", rule))
        found = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in _fields(type(self))
            if f.init and (f.name in named or getattr(self, f.name) != f.default)
        ]
        error = tp.BindError(f"{rule} ({type(self).__name__}({', '.join(found)}))")
        error.rule = rule
        return error

    def changed(self, **settings: int | str) -> Self:
        """The configuration with other values of these settings."""
        return replace(self, **settings)

    @classmethod
    def names(cls) -> list[str]:
        """The names of the settings: of the fields that can be given."""
        return [field.name for field in _fields(cls) if field.init]

    def as_dict(self) -> dict[str, int | str]:
        """The settings by name."""
        return {name: getattr(self, name) for name in self.names()}

    def _rules(self) -> dict[str, bool]:
        """Sentences, and whether they hold; all numbers are at least 1, or as `LEAST` says."""
        raise NotImplementedError


# A heuristic makes thousands of configurations, each of which asks for its fields.
_known: dict[type, tuple[Field[Any], ...]] = {}


def _fields(cls: type[Settings]) -> tuple[Field[Any], ...]:
    """`dataclasses.fields` of a class, put together once."""
    found = _known.get(cls)
    if found is None:
        found = _known[cls] = fields(cls)
    return found
