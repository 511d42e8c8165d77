"""Generated programs: of every family, whole or with one thing wrong."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from tests.support.check import oracle
from tests.support.check.families import OFTEN, group
from tests.support.check.programs import SLOTS, Program

LIMIT = 520  # of `Program.size`


# -- one thing wrong -------------------------------------------------------------------


def mutated(r: Random, p: Program) -> Program:
    """The program with one act dropped, doubled, swapped with the next, or changed by one; or with
    another count.
    """
    if p.counts and r.random() < 0.15:
        i = r.randrange(len(p.counts))
        return replace(
            p, counts=(*p.counts[:i], max(1, p.counts[i] + r.choice((-1, 1))), *p.counts[i + 1 :])
        )
    which = r.choice([i for i, part in enumerate(p.parts) if part.acts])
    part = p.parts[which]
    acts = list(part.acts)
    i = r.randrange(len(acts))
    act = acts[i]
    how = r.choice(("drop", "drop", "double", "swap", "number", "place", "lanes", "branch"))
    if how == "drop":
        del acts[i]
    elif how == "double":
        acts.insert(i, act)
    elif how == "swap":
        acts[i : i + 2] = reversed(acts[i : i + 2])
    elif how == "number":
        step = 16 if act.kind in ("expect", "announce", "credit") else 1
        acts[i] = replace(
            act,
            n=max(
                0 if act.kind != "arrive" else 1,
                act.n + r.choice((-step, step)) * (act.kind != "copy"),
            ),
        )
    elif how == "place":
        limit = (
            len(p.named)
            if act.kind in ("meet", "leave")
            else SLOTS
            if act.kind in ("put", "get", "store")
            else len(p.counts)
        )
        acts[i] = replace(act, at=(act.at + 1) % max(limit, 1))
    elif how == "lanes":
        acts[i] = replace(act, every=not act.every and act.kind in ("arrive", "put", "get"))
    elif act.kind == "try":
        acts[i] = (
            replace(act, other=act.other[1:])
            if r.random() < 0.5
            else replace(act, then=act.other, other=act.then)
        )
    return replace(
        p, parts=(*p.parts[:which], replace(part, acts=tuple(acts)), *p.parts[which + 1 :])
    )


def generate(r: Random) -> Program:
    """One program; about half of them are right."""
    while True:
        p = r.choice(OFTEN)(r)
        if r.random() < 0.55:
            p = mutated(r, p)
        if p.size <= LIMIT and any(part.acts for part in p.parts):
            return p


def generate_plain(r: Random) -> Program:
    """One program of barriers only, as the oracle knows them, of warps."""
    while True:
        p = generate(r)
        if oracle.knows(p) and not any(part.group for part in p.parts):
            return p


def generate_group(r: Random) -> Program:
    """One program of barriers only with a warpgroup, up to two things wrong in it."""
    while True:
        p = group(r)
        for _ in range(r.randint(0, 2)):
            p = mutated(r, p)
        if oracle.knows(p) and any(part.group for part in p.parts):
            return p


@st.composite
def programs(draw: st.DrawFn, plain: bool = False) -> Program:
    """`generate` as a strategy, whose examples shrink."""
    r = draw(st.randoms(use_true_random=False))
    return generate_plain(r) if plain else generate(r)
