"""The synchronising lines of a traced kernel, and the judgement of the kernel without each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tilepipe.check.mutation import rewriting
from tilepipe.check.mutation.judging import judge, outputs
from tilepipe.check.mutation.mutants import SUBJECTS, Mutant, described, subjects, text
from tilepipe.check.mutation.observations import Observations
from tilepipe.check.mutation.redundancy import explain
from tilepipe.check.mutation.rewriting import Place
from tilepipe.check.sensitivity.results import Line
from tilepipe.check.verdict import Bounds
from tilepipe.ir.location import Loc
from tilepipe.ir.program import Kernel, Launch
from tilepipe.machine.rules import Rules

NAMES = ("wait", "named sync", "arrive", "expect", "fence", "syncwarp", "commit", "dealloc")


def judgements(launch: Launch, bounds: Bounds, rules: Rules) -> list[Callable[[], Line]]:
    """For each line of the kernel that synchronises, what judges the kernel without it.

    Raises:
        SimFault: the unchanged kernel ends in a fault.
    """
    kernel = launch.kernel
    reference, observations = outputs(launch), Observations([launch])

    def judged(members: Sequence[Place]) -> Line:
        first = members[0].op
        mutant = Mutant(
            f"drop {SUBJECTS[type(first)]}",
            f"dropped: {described(members[0])}",
            members[0],
            rewriting.without(kernel, members),
        )
        outcome = judge(mutant, launch, reference, bounds=bounds, rules=rules)
        why = (
            explain(mutant, kernel, observations, bool(outcome.advice))
            if outcome.fate == "redundant"
            else ""
        )
        roles = dict.fromkeys(p.role.name if p.role is not None else "set-up" for p in members)
        return Line.of(
            first.loc, first.loc.source, text(first), len(members), SUBJECTS[type(first)],
            tuple(roles), outcome, why,
        )  # fmt: skip

    return [partial(judged, members) for members in _groups(kernel).values()]


def _groups(kernel: Kernel) -> dict[tuple[Loc, str], list[Place]]:
    """The ops to remove together: those of one line that do the same to the same barriers."""
    groups: dict[tuple[Loc, str], list[Place]] = {}
    for name, place in subjects(kernel):
        if name in NAMES:
            groups.setdefault((place.op.loc, _kind(place)), []).append(place)
    return groups


def _kind(place: Place) -> str:
    bar = getattr(place.op, "bar", None)
    name = getattr(getattr(bar, "array", bar), "name", "")
    return f"{type(place.op).__name__} {name}"
