"""What the configurations of all kernels have in common: fields of one kind each, and rules that
they obey together.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

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
        for field in fields(self):
            kind, value = type(field.default), getattr(self, field.name)
            if kind is int and (number := plain_int(value)) is not None:
                object.__setattr__(self, field.name, value := number)  # of NumPy, too
            if type(value) is not kind:
                raise tp.BindError(f"{field.name} must be {_KINDS[kind]}, got {shown(value)}")
        numbers = [field.name for field in fields(self) if isinstance(field.default, int)]
        least = {name: LEAST.get(name, 1) for name in numbers}
        broken = [
            f"{name} must be at least {n}" for name, n in least.items() if getattr(self, name) < n
        ]
        most = {name: MOST.get(name, INT32_MAX) for name in numbers}
        broken = broken or [
            f"{name} must be at most {n}" for name, n in most.items() if getattr(self, name) > n
        ]
        broken = broken or [rule for rule, holds in self._rules().items() if not holds]
        if broken:
            raise tp.BindError(f"{'; '.join(broken)} ({self})")

    def changed(self, **settings: int | str) -> Self:
        """The configuration with other values of these settings."""
        return replace(self, **settings)

    @classmethod
    def names(cls) -> list[str]:
        """The names of the settings: of the fields that can be given."""
        return [field.name for field in fields(cls) if field.init]

    def as_dict(self) -> dict[str, int | str]:
        """The settings by name."""
        return {name: getattr(self, name) for name in self.names()}

    def _rules(self) -> dict[str, bool]:
        """Sentences, and whether they hold; all numbers are at least 1, or as `LEAST` says."""
        raise NotImplementedError
