"""Names of entries in the file of tuned configurations, read back: of which kernel, and of which
problem. `Tunable.entry` makes them.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar, cast

import tilepipe as tp
from tilepipe.host_arguments import shown
from tilepipe.kernels.common.tunable import UNNAMED, Tunable

P = TypeVar("P")

# What the fields that are strings may be
CHOICES = {
    "a_order": ("row", "col"),
    "b_order": ("row", "col"),
    "scales": ("none", "tensor", "row", "block"),
    "accumulate": ("fast", "promote"),
}
# Of extents, in the example of a name; of others 4096
_EXAMPLES = {"batch": 4, "heads": 16, "kv_heads": 16, "d": 128, "tokens": 1, "groups": 8}


def kernel_of(name: str) -> str:
    """The kernel that an entry is of."""
    first = name.partition(": ")[2].partition(" ")[0]
    return first if first and "=" not in first else UNNAMED


def chip_of(name: str) -> str:
    """The name of the chip that an entry is of."""
    return name.partition(": ")[0]


def problem_of(name: str, tunable: Tunable[P, Any]) -> P:
    """The problem that an entry of a kernel is of.

    Raises:
        BindError: no lookup asks for an entry of this name.
    """
    chip, _, rest = name.partition(": ")
    words = rest.split(" ")[0 if tunable.kernel == UNNAMED else 1 :]
    given = dict(word.partition("=")[::2] for word in words)
    known = fields(cast(Any, tunable.problem))
    extents = [f.name for f in known if f.default is MISSING and _is(f, int)]
    numbers = [f.name for f in known if _is(f, int)]
    right = (
        name.isprintable()
        and chip != ""
        and [word.partition("=")[0] for word in words] == [f.name for f in known if f.name in given]
        and given.keys() >= {f.name for f in known if f.default is MISSING}
        and all(re.fullmatch(r"-?\d{1,18}", given[x], re.ASCII) for x in numbers if x in given)
        and all(int(given[x]) > 0 for x in extents)
    )
    if not right:
        extent = " ".join(
            f"{f.name}={_EXAMPLES.get(f.name, 4096)}" for f in known if f.default is MISSING
        )
        kernel = "" if tunable.kernel == UNNAMED else f"{tunable.kernel} "
        names = [f.name for f in known]
        unknown = [name for name in given if name not in names] if chip and rest else []
        missing = [f.name for f in known if f.default is MISSING and f.name not in given]
        why = f"; there is no {', '.join(map(shown, unknown))}" if unknown else ""
        why += f"; {', '.join(missing)} is missing" if missing and not unknown and rest else ""
        raise tp.BindError(f"an entry is named as 'H200: {kernel}{extent}', extents first{why}")
    if re.fullmatch("[a-z]+[0-9]+", chip):
        raise tp.BindError(f"no chip is called {chip!r}; {chip.upper()!r} may be meant")
    values = {f.name: _value(f, given[f.name]) for f in known if f.name in given}
    problem = tunable.problem(**values)
    meant = f"{chip}: {tunable.text(problem)}"
    if meant != name:
        raise tp.BindError(
            f"no launch asks for it by this name, but for {meant!r}, without what is the default;"
            " rename it"
        )
    return problem


def _value(field: Field[Any], word: str) -> Any:
    """What a word says of a field, which is a number, a truth, a dtype or a string."""
    if _is(field, int):
        return int(word)
    if _is(field, bool):
        if word not in ("True", "False"):
            raise tp.BindError(f"{field.name} is True or False, got {word!r}")
        return word == "True"
    if isinstance(field.default, tp.DType):
        return tp.dtype(word)
    choices = CHOICES[field.name]
    if word not in choices:
        listed = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise tp.BindError(f"{field.name} is {listed}, got {word!r}")
    return word


def _is(field: Field[Any], kind: type) -> bool:
    return field.type in (kind, kind.__name__)
