"""The error of a member that an object of a kernel does not have, such as `ctx.threadIdx`: which
member does it, by a table of other languages' names, or which has a similar name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from tilepipe.errors import MemberError
from tilepipe.ir.location import caller
from tilepipe.lang.tracing import other_names


def plain(name: str) -> str:
    """A name without case, underscores and a final `sync`: `__shfl_down_sync` is `shfldown`."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    return letters.removesuffix("sync") or letters


def missing(
    what: str, called: str, other_names: Mapping[str, str]
) -> Callable[[object, str], NoReturn]:
    """A `__getattr__` that raises MemberError.

    Args:
        what: the object, in words. called: what a kernel calls it.
        other_names: what to write instead of names, as `plain` makes them.
    """

    def answer(self: object, name: str) -> NoReturn:
        hidden = name.startswith("_") and (not name.startswith("__") or name.endswith("__"))
        if hidden:  # protocols of Python, and attributes that are not set yet
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        advice = instead(called, dir(self), other_names, name)
        raise MemberError(f"{what} has no member {name!r}{advice}", caller())

    return answer


def of_ctx(name: str) -> str:
    """What a kernel writes for a name that the package does not have: of members of `ctx`."""
    from tilepipe.lang.context.context import Context

    members = {plain(one): one for one in dir(Context) if not one.startswith("_")}
    if plain(name) in members:
        return f": in a kernel, `ctx.{members[plain(name)]}`"
    found = other_names.CONTEXT.get(plain(name))
    return f": in a kernel, {found}" if found else ""


def instead(
    called: str, attributes: Iterable[str], other_names: Mapping[str, str], name: str
) -> str:
    """What to write, after the sentence that there is no such member."""
    members = [one for one in attributes if not one.startswith("_")]
    letters = re.sub(r"[^a-z0-9]", "", name.lower())
    same = {plain(one): one for one in members}
    alias = next((other_names[key] for key in (letters, plain(name)) if key in other_names), "")
    if plain(name) in same and not alias:
        return f": write `{called}.{same[plain(name)]}`"
    if alias:
        return f": {alias}"
    import difflib

    close = difflib.get_close_matches(name, members, 3, 0.65)
    if close:
        return f"; it has {' and '.join(f'`{called}.{one}`' for one in close)}"
    return f"; docs/reference/language.md has all of `{called}`" if called == "ctx" else ""
