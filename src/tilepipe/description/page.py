"""A kernel as a part of a page: its graph, and beside it what the graph leaves out."""

from __future__ import annotations

from tilepipe import markup
from tilepipe.description.description import Action, Description


def part(d: Description) -> str:
    """The graph beside tables of arguments and of the lines that use each barrier."""
    tables = markup.table(
        "arguments",
        ("", "value", "type", "use"),
        ((a.name, a.value, a.what, a.use) for a in d.arguments),
    )
    tables += markup.table(
        "barriers",
        ("a phase takes", "who, and in which lines"),
        ((f"{x.name}: {x.needs}", _who(d, x.actions)) for x in d.every_barrier),
    )
    return markup.part(f'<div class="beside"><div>{d.svg()}</div><div>{tables}</div></div>')


def _who(d: Description, actions: tuple[Action, ...]) -> str:
    """The roles that complete phases, then those that wait."""
    ordered = sorted(actions, key=lambda a: a.waits)
    return "; ".join(f"{d.roles[a.role].name} {a.does} {', '.join(a.at)}" for a in ordered)
