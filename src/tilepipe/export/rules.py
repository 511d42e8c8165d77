"""Whole-number expressions over named extents: the grid of an exported kernel, and the conditions
on its arguments. They are data: Python evaluates them, C has them printed, and JSON holds them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilepipe.errors import ExportError

Number = int | float
CLUSTERS = "num_clusters"


@dataclass(frozen=True, slots=True)
class Op:
    """An operation. `name` is one of `BINARY`, or neg, not, or select (condition, then, else)."""

    name: str
    args: tuple[Rule, ...]


# a number, a name, or an operation
Rule = int | float | str | Op

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
# operations of C, on long long
_C = {
    "add": "({} + {})",
    "sub": "({} - {})",
    "mul": "({} * {})",
    "floordiv": "tilepipe_floordiv({}, {})",
    "mod": "tilepipe_mod({}, {})",
    "min": "({0} < {1} ? {0} : {1})",
    "max": "({0} > {1} ? {0} : {1})",
    "and": "({} & {})",
    "or": "({} | {})",
    "eq": "({} == {})",
    "ne": "({} != {})",
    "lt": "({} < {})",
    "le": "({} <= {})",
    "gt": "({} > {})",
    "ge": "({} >= {})",
    "neg": "(-{})",
    "not": "(!{})",
    "select": "({} ? {} : {})",
}
_ARGS = {"neg": 1, "not": 1, "select": 3}


def binary(name: str, a: Rule, b: Rule) -> Rule:
    """An operation of two, computed where both are numbers."""
    if not isinstance(a, str | Op) and not isinstance(b, str | Op):
        found: Number = BINARY[name](a, b)
        return found
    neutral = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1}.get(name)
    if neutral is not None and b == neutral:
        return a
    if name in ("add", "mul") and a == neutral:
        return b
    return Op(name, (a, b))


def negated(a: Rule) -> Rule:
    """Minus a rule."""
    if not isinstance(a, str | Op):
        return -a
    return a.args[0] if isinstance(a, Op) and a.name == "neg" else Op("neg", (a,))


def names_in(rule: Rule) -> Iterator[str]:
    """The names that a rule depends on, each as often as it occurs."""
    if isinstance(rule, str):
        yield rule
    elif isinstance(rule, Op):
        for arg in rule.args:
            yield from names_in(arg)


def value(rule: Rule, known: Mapping[str, Number]) -> Number:
    """What a rule comes to. A `select` evaluates what it takes alone; division by zero gives 0, as
    in the printed C.
    """
    if isinstance(rule, str):
        return known[rule]
    if not isinstance(rule, Op):
        return rule
    if rule.name == "select":
        condition, yes, no = rule.args
        return value(yes if value(condition, known) else no, known)
    args = [value(arg, known) for arg in rule.args]
    if rule.name == "neg":
        return -args[0]
    if rule.name == "not":
        return not args[0]
    if rule.name in ("floordiv", "mod") and not args[1]:
        return 0 if rule.name == "floordiv" else args[0]
    found: Number = BINARY[rule.name](*args)
    return found


def in_c(rule: Rule, names: Mapping[str, str]) -> str:
    """A rule as an expression of C. `names`: what C calls each name."""
    if isinstance(rule, str):
        return names[rule]
    if isinstance(rule, Op):
        return _C[rule.name].format(*(in_c(arg, names) for arg in rule.args))
    return f"{int(rule)}LL" if isinstance(rule, int) else repr(float(rule))


def to_json(rule: Rule) -> object:
    """A rule as JSON has it: numbers, names, and ["op", ...]."""
    if isinstance(rule, Op):
        return [rule.name, *map(to_json, rule.args)]
    return rule


def from_json(found: object) -> Rule:
    """The rule that JSON holds.

    Raises:
        ExportError: it is none.
    """
    if isinstance(found, int | float | str):
        return found
    if isinstance(found, list) and found and isinstance(found[0], str) and found[0] in _C:
        name, *args = found
        if len(args) == _ARGS.get(name, 2):
            return Op(name, tuple(map(from_json, args)))
    raise ExportError(f"{found!r} is no expression of a manifest")
