"""A kernel whose configuration depends on the problem: what is picked, what else is worth
measuring, and how problems are named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, cast

import tilepipe as tp
from tilepipe.kernels.common.settings import Settings

P = TypeVar("P")
C = TypeVar("C", bound=Settings)

UNNAMED = "gemm"  # the kernel whose problems are named without it


def same_fields(problem: type[Any], found: object) -> dict[str, Any]:
    """What checked arguments have under the names of a problem's fields."""
    names = [f.name for f in fields(problem)]
    return {name: getattr(found, name) for name in names if hasattr(found, name)}


def takes_all(cfg: Any, problem: Any, chip: tp.Chip) -> None:
    """Refuses no configuration."""


@dataclass(frozen=True, eq=False)
class Tunable(Generic[P, C]):
    """A kernel whose configuration depends on the problem.

    Attributes:
        kernel: its name, as the commands have it.
        problem: the class of its problems. Fields without a default are the extents; those at their
            defaults are left out of the name of an entry.
        config: the class of its configurations.
        best: the heuristic's pick. candidates: those worth measuring, the likeliest first, the
            heuristic's pick before all others.
        check: raises BindError or LimitError where a configuration cannot be used for a problem.
        computes: settings that say what is computed, and are not tuned.
    """

    kernel: str
    problem: type[P]
    config: type[C]
    best: Callable[[P, tp.Chip], C]
    candidates: Callable[[P, tp.Chip], Sequence[C]]
    check: Callable[[C, P, tp.Chip], None] = takes_all
    computes: tuple[str, ...] = ()

    def entry(self, problem: P, chip: tp.Chip) -> str:
        """The name of the entry of a problem."""
        return f"{chip.name}: {self.text(problem)}"

    def fields(self, problem: P) -> dict[str, int | str | bool]:
        """The fields of a problem by name, for JSON: dtypes as their names."""
        found = {f.name: getattr(problem, f.name) for f in fields(cast(Any, problem))}
        return {name: x if isinstance(x, int | str) else str(x) for name, x in found.items()}

    def text(self, problem: P) -> str:
        """The problem in an entry's name: the kernel, unless it is the GEMM, and the fields."""
        parts = [
            f"{f.name}={value}"
            for f in fields(cast(Any, problem))
            if (value := getattr(problem, f.name)) != f.default
        ]
        return " ".join(parts if self.kernel == UNNAMED else [self.kernel, *parts])
