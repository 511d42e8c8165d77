"""The grid of a kernel as an expression over extents: `grid=` is called with names in the place of
extents, once for each outcome of the comparisons that it makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from tilepipe.errors import BindError, ExportError, TilepipeError
from tilepipe.export.rules import Op, Rule, binary, negated
from tilepipe.host_arguments import plain_int, shown
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.tensor_map import TensorMap
from tilepipe.program.arguments import resolved

_MOST_PATHS = 64
# comparisons: their outcome for equal sides
_OF_EQUALS = {"eq": True, "le": True, "ge": True, "ne": False, "lt": False, "gt": False}
_INSTEAD = (
    "An exported grid is integer arithmetic on extents: + - * // % and comparisons, min, max and"
    " `-(-a // b)` for a quotient rounded up"
)


class _Undecided(Exception):
    """A comparison whose outcome this call was not given."""

    def __init__(self, condition: Rule) -> None:
        super().__init__()
        self.condition = condition


class _Path:
    """One call of the function. `decided`: the outcomes of its comparisons, in their order."""

    def __init__(self, decided: tuple[bool, ...]) -> None:
        self._decided = list(decided)

    def outcome(self, condition: Rule) -> bool:
        if not isinstance(condition, str | Op):
            return bool(condition)
        if isinstance(condition, Op) and condition.name in _OF_EQUALS:
            left, right = condition.args
            if left == right:
                return _OF_EQUALS[condition.name]
        if not self._decided:
            raise _Undecided(condition)
        return self._decided.pop(0)


class Extent:
    """A number that is known at the launch."""

    __slots__ = ("_path", "_rule")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, path: _Path, rule: Rule) -> None:
        self._path, self._rule = path, rule

    @property
    def rule(self) -> Rule:
        """The expression that computes it."""
        return self._rule

    def _with(self, name: str, other: object, turned: bool = False) -> Extent:
        found = other._rule if isinstance(other, Extent) else plain_int(other)
        if found is None:
            self._refuse(f"computes with {shown(other)}")
        pair = (found, self._rule) if turned else (self._rule, found)
        return Extent(self._path, binary(name, *pair))

    def _refuse(self, what: str) -> NoReturn:
        raise ExportError(
            f"the grid cannot be exported: this line {what}, which takes a number that is known at"
            f" the launch. {_INSTEAD}.",
            caller(),
        )

    def __add__(self, other: object) -> Extent:
        return self._with("add", other)

    def __radd__(self, other: object) -> Extent:
        return self._with("add", other, turned=True)

    def __sub__(self, other: object) -> Extent:
        return self._with("sub", other)

    def __rsub__(self, other: object) -> Extent:
        return self._with("sub", other, turned=True)

    def __mul__(self, other: object) -> Extent:
        return self._with("mul", other)

    def __rmul__(self, other: object) -> Extent:
        return self._with("mul", other, turned=True)

    def __floordiv__(self, other: object) -> Extent:
        return self._with("floordiv", other)

    def __rfloordiv__(self, other: object) -> Extent:
        return self._with("floordiv", other, turned=True)

    def __mod__(self, other: object) -> Extent:
        return self._with("mod", other)

    def __rmod__(self, other: object) -> Extent:
        return self._with("mod", other, turned=True)

    def __neg__(self) -> Extent:
        return Extent(self._path, negated(self._rule))

    def __lt__(self, other: object) -> Extent:
        return self._with("lt", other)

    def __le__(self, other: object) -> Extent:
        return self._with("le", other)

    def __gt__(self, other: object) -> Extent:
        return self._with("gt", other)

    def __ge__(self, other: object) -> Extent:
        return self._with("ge", other)

    def __eq__(self, other: object) -> Extent:  # type: ignore[override]
        return self._with("eq", other)

    def __ne__(self, other: object) -> Extent:  # type: ignore[override]
        return self._with("ne", other)

    def __str__(self) -> str:
        return self._rule if isinstance(self._rule, str) else "a number known at the launch"

    def __bool__(self) -> bool:
        return self._path.outcome(self._rule)

    def __int__(self) -> int:
        self._refuse("converts an extent by int()")

    def __index__(self) -> int:
        self._refuse("uses an extent as an index, or in range()")

    def __float__(self) -> float:
        self._refuse("converts an extent by float()")

    def __truediv__(self, other: object) -> float:
        self._refuse("divides by /")

    __rtruediv__ = __truediv__


class _Shape:
    """The array of a tensor map in a call of `grid=`: it has a shape and no more."""

    def __init__(self, name: str, shape: tuple[object, ...]) -> None:
        self._name, self.shape = name, shape

    def __getattr__(self, attribute: str) -> NoReturn:
        raise ExportError(
            f"the grid cannot be exported: it reads `{attribute}` of the array"
            f" '{object.__getattribute__(self, '_name')}'. {_INSTEAD}.",
            caller(),
        )


def grid_rule(
    grid: Any,
    known: Mapping[str, Any],
    extents: Mapping[str, tuple[int | str, ...]],
    scalars: Container[str],
) -> Rule:
    """What `grid=` of a kernel comes to.

    Args:
        known: what it may ask for, by name.
        extents: of each tensor among them, in elements: numbers, and names of those known at the
            launch.
        scalars: those among them that each launch passes; they count under their own names.

    Raises:
        ExportError: it cannot be expressed; the message names the line.
    """

    def call(path: _Path) -> Rule:
        return _product(resolved(grid, "grid", {n: given(path, n, x) for n, x in known.items()}))

    def given(path: _Path, name: str, x: Any) -> Any:
        if isinstance(x, TensorMap):
            *outer, last = (n if isinstance(n, int) else Extent(path, n) for n in extents[name])
            return replace(x, array=_Shape(name, (*outer, last // x.dtype.per_byte)))
        return Extent(path, name) if name in scalars else x

    return _explored(call, ())


def _explored(call: Callable[[_Path], Rule], decided: tuple[bool, ...]) -> Rule:
    if len(decided) > math.log2(_MOST_PATHS):
        raise ExportError(
            f"the grid cannot be exported: it makes more than {int(math.log2(_MOST_PATHS))}"
            " comparisons of extents, one after the other"
        )
    try:
        return call(_Path(decided))
    except _Undecided as undecided:
        condition = undecided.condition
    except BindError as error:  # what the kernel itself refuses, in its words
        raise ExportError(str(error)) from error
    except TilepipeError:
        raise
    except Exception as error:
        raise ExportError(
            f"the grid cannot be exported: for some extents grid= raises {type(error).__name__}:"
            f" {error}"
        ) from error
    yes, no = (_explored(call, (*decided, outcome)) for outcome in (True, False))
    return yes if yes == no else Op("select", (condition, yes, no))


def _product(found: object) -> Rule:
    """The CTAs of a grid, given as a number or as a tuple of extents."""
    total: Rule = 1
    for extent in found if isinstance(found, tuple) and found else (found,):
        factor = extent.rule if isinstance(extent, Extent) else plain_int(extent)
        if factor is None:
            raise ExportError(f"the grid cannot be exported: grid= gives {shown(found)}")
        total = binary("mul", total, factor)
    return total
