"""How large instances are, by what their executions complete, and which of them are explored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tilepipe.errors import BindError

# mbarrier array -> for each CTA of the grid, the number of completed phases of each barrier
Completions = dict[str, list[list[int]]]


class HasSize(Protocol):
    """A size, or a verdict."""

    @property
    def instance(self) -> str: ...
    @property
    def completions(self) -> Completions: ...
    @property
    def grid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an instance. `grid`: the number of CTAs."""

    instance: str
    completions: Completions
    grid: int


class TooSmallError(BindError):
    """All instances together are too small to say much of the kernel."""

    def __init__(self, problems: str) -> None:
        super().__init__(
            f"too small to say much of the kernel:\n{problems}\n"
            "Give each CTA more work (rounds of the loops that use these rings, or tiles), on two"
            " CTAs at least"
        )


class PostponedError(Exception):
    """One execution does not decide an instance, and it is not to be explored yet."""

    def __init__(self, size: Size) -> None:
        super().__init__(size.instance)
        self.size = size


# -- whether to explore an instance of this size, which is asked when nothing has been explored


def at_once(size: Size) -> bool:
    """Explore it in any case."""
    return True


def later(size: Size) -> bool:
    """Postpone it: the sizes of the other instances are to be known first."""
    return False


@dataclass(frozen=True, slots=True)
class LargeBeside:
    """Explore it where it is large enough together with these."""

    known: tuple[Size, ...]

    def __call__(self, size: Size) -> bool:
        return not too_small([*self.known, size])


# -- sizes -----------------------------------------------------------------------------


def most_completed(x: Completions, y: Completions) -> Completions:
    """For each mbarrier array those of two executions in which a CTA completes more phases."""
    return {
        name: max(x.get(name, []), y.get(name, []), key=lambda ctas: max(map(sum, ctas), default=0))
        for name in {**x, **y}
    }


def too_small(instances: Sequence[HasSize]) -> str:
    """The problems of instances that are too small, one line for each; empty if they are not.

    The size is measured in the executions, so that this works for any kernel: an mbarrier array
    stands for a ring, and the phases that its barriers complete for the laps. A mistake in a phase
    number shows when a ring is used for the third time; a mistake between CTAs, when there are two.

    Every array of S > 1 mbarriers must complete 2 S + 1 phases, all its barriers together, in some
    CTA of some instance; and some instance must have 2 CTAs, of one cluster or not.
    """
    rings: dict[str, tuple[int, int, str]] = {}  # array -> barriers, phases, instance
    for found in instances:
        for name, ctas in found.completions.items():
            size, reached = max(map(len, ctas)), max(map(sum, ctas))
            if reached > rings.get(name, (0, -1, ""))[1]:
                rings[name] = size, reached, found.instance
    problems = [
        f"ring '{name}' has {size} stages and completes {reached}"
        f" phase{'' if reached == 1 else 's'} in a CTA"
        f"{f' ({instance})' if instance else ''}; to use each stage twice and the first once more"
        f" it needs 2 · {size} + 1 = {2 * size + 1}"
        for name, (size, reached, instance) in rings.items()
        if size > 1 and reached < 2 * size + 1
    ]
    if max((found.grid for found in instances), default=0) < 2:
        problems.append("there is one CTA, and what CTAs do to each other takes two")
    return "\n".join(problems)
