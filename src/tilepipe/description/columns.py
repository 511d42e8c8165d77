"""The order of the roles in the picture: what is handed on goes to the right where it can."""

from __future__ import annotations

from itertools import combinations

from tilepipe.description.description import Action, Description

_BACK = 3  # how much worse an arrow to the left is than one to the right over as many columns


def order(d: Description) -> list[int]:
    """The numbers of the roles, from left to right; the set-up stands first.

    The order by warps, in which two roles change places for as long as that shortens arrows. A
    layout library would be asked for no more than this: what is drawn below the roles, a row for
    each barrier, needs no placing.
    """
    arrows = [
        (a.role, b.role)
        for barrier in (*(ring.full for ring in d.rings), *d.barriers)
        for a in barrier.actions
        for b in barrier.actions
        if brings(a) and b.waits and a.role != b.role
    ]
    found = list(range(len(d.roles)))
    best = _cost(found, arrows)
    movable = range(1 if d.roles and d.roles[0].setup else 0, len(found))
    improved = True
    while improved:
        improved = False
        for i, j in combinations(movable, 2):
            other = list(found)
            other[i], other[j] = other[j], other[i]
            cost = _cost(other, arrows)
            if cost < best:
                found, best, improved = other, cost, True
    return found


def brings(action: Action) -> bool:
    """It helps to complete a phase."""
    return not action.waits


def _cost(places: list[int], arrows: list[tuple[int, int]]) -> tuple[int, int]:
    """How long the arrows are; and how many roles have changed places."""
    at = {role: i for i, role in enumerate(places)}
    steps = [at[b] - at[a] for a, b in arrows]
    turned = sum(a > b for a, b in combinations(places, 2))
    return sum(step if step > 0 else -_BACK * step for step in steps), turned
