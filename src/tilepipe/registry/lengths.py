"""Lengths of packed sequences as a setting: `lengths=100,30:200,0`, queries and, where they differ,
keys of each.
"""

from __future__ import annotations

from tilepipe.errors import BindError


def parsed(text: str) -> list[tuple[int, int]]:
    """(queries, keys) of each sequence; none for the empty text.

    Raises:
        BindError: something else, or no query, or no key, in all of them.
    """
    if not text:
        return []
    found = []
    for part in text.split(","):
        queries, _, keys = part.partition(":")
        if not queries.isdecimal() or not (keys or queries).isdecimal():
            raise BindError(
                "setting lengths has the queries of each packed sequence, and the keys where they"
                f" are not as many, such as 100,30:200,0; got {part!r} in {text!r}"
            )
        found.append((int(queries), int(keys or queries)))
    if not all(map(sum, zip(*found, strict=True))):
        raise BindError(f"setting lengths: one sequence must have a query, and one a key: {text!r}")
    return found
